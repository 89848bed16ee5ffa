import Glibc
import Nightbell

// One small client for each reason to wake. `Package.swift` of a program of your own needs only the product
// `Nightbell`.
let arguments = CommandLine.arguments.dropFirst()
let client = start()
while true { pause() }

func start() -> Client {
    do {
        return try example()
    } catch let error as NightbellError where error.code == .invalidArgument {
        fail("\(error)", EX_DATAERR)
    } catch {
        fail("\(error)", EX_UNAVAILABLE)
    }
}

func example() throws -> Client {
    switch arguments.first {
    case "fetch": try fetchNow()
    case "push": try takePushes()
    case "transfer": try Downloads.run(onlyArgument())
    case "newsstand": try Issues.run()
    case "network": try followNetwork()
    case "sleep": try runBeforeSleep()
    case "unlock": try waitForUnlock()
    case "notification": try notify(onlyArgument())
    case "audio": try play(Array(arguments.dropFirst()))
    case "location": try followLocation(Array(arguments.dropFirst()))
    case "bluetooth": try watchBluetooth(Array(arguments.dropFirst()))
    case "peripheral": try Peripheral.run(onlyArgument())
    case "accessory": try Accessory.run(onlyArgument())
    default: explain()
    }
}

func onlyArgument() -> String {
    guard arguments.count == 2, let argument = arguments.last else { explain() }
    return argument
}

func explain() -> Never {
    print(
        """
        usage: mode-example fetch | push | newsstand | network | sleep | unlock
               mode-example transfer ADDRESS
               mode-example location [home | significant | continuous | foreground]
               mode-example notification SECONDS
               mode-example audio COMMAND [ARGUMENTS]
               mode-example bluetooth DEVICE CHARACTERISTIC
               mode-example peripheral ADAPTER
               mode-example accessory PATH
        """)
    exit(EX_USAGE)
}

/// Says in one line why it cannot go on.
func fail(_ reason: String, _ code: CInt) -> Never {
    let line = "mode-example: \(reason)\n"
    write(STDERR_FILENO, line, line.utf8.count)
    exit(code)
}

func enterBackground(_ client: Client) throws {
    try client.enterBackground()
    report("is in the background")
}

/// Prints what happens, behind the seconds since the machine was started.
func report(_ what: String) {
    var time = timespec()
    clock_gettime(CLOCK_BOOTTIME, &time)
    print("\(Double(time.tv_sec) + Double(time.tv_nsec) / 1e9) \(what)")
    fflush(nil)
}

/// The name that the supervisor has launched this as, or one that says what it shows.
func configuration(_ mode: String, _ modes: Set<Mode>) -> Client.Configuration {
    let name = getenv("NIGHTBELL_IDENTIFIER").map { String(cString: $0) }
    return .init(identifier: name ?? "org.example.\(mode)", modes: modes)
}

/// Every example reports its wakes, and when it falls asleep.
func handlers() -> Client.Handlers {
    var handlers = Client.Handlers { wake in
        report("is woken: \(wake.reasons)")
        for occurrence in wake.occurrences { report("\(occurrence.name): \(occurrence.kind)") }
    }
    handlers.prepareToSuspend = {
        report("falls asleep")
        return []
    }
    return handlers
}
