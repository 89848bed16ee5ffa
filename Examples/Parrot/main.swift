import Glibc
import Nightbell

let line = try Line(port: CommandLine.arguments.dropFirst().first ?? "7010")  // waits for a caller

let client = try Client(
    .init(identifier: "org.example.parrot"),
    handlers: .init { wake in
        while let words = line.hear() {
            line.say("\(words), after \(wake.asleepFor) of sleep\n")
        }
    })
_ = try client.handOver(line.descriptor, as: .voip, name: "caller")
try client.enterBackground()  // from here on the process sleeps between two lines
while true { pause() }
