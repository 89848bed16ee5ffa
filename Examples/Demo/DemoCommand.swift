import ArgumentParser
import Glibc

@main
struct DemoCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-demo",
        abstract: "Sleeping softphones, woken by calls.",
        discussion: """
            Starts a private supervisor, softphones and callers, and shows what happens. Everything stays on the \
            loopback interface and is gone at the end.

            Exit codes: 0 every call was answered and nothing was late; 1 something was not as it must be; 2 the \
            demo could not run; 130 interrupted.
            """)

    @Option(help: "How the phones are suspended: auto, cgroup, signal or none.")
    var suspend: SuspensionMethod = .auto

    @Option(help: "How the phones reach the server: tcp, udp or both (half of them each).")
    var transport: Transport = .both

    @Option(help: "The SIP server: builtin, or kamailio with SIPp as the caller.")
    var registrar: RegistrarChoice = .builtin

    @Option(help: "Phones.")
    var clients = 20

    @Option(help: "Calls.")
    var calls = 200

    @Option(help: "Calls a second.")
    var rate = 10.0

    @Option(help: "Chooses phones and moments: the same seed, the same calls.")
    var seed: UInt64 = 1

    @Option(
        help: ArgumentHelp("The longest time between two keep-alive runs of a phone.", valueName: "seconds"))
    var keepAlive = 8

    @Option(
        help: ArgumentHelp(
            "Before the calls: connections (the server closes them), resets, or supervisor (it restarts).",
            valueName: "what"))
    var disturb: [Disturbance] = []

    @Option(
        name: .customLong("set"),
        help: ArgumentHelp("A setting of the supervisor, as for nightbelld.", valueName: "key=value"))
    var settings: [String] = []

    @Flag(help: "Print one JSON object as the last line.")
    var json = false

    @Flag(help: "Keep the directory with the logs.")
    var keepLogs = false

    @Option(help: "Where nightbelld and nightbell-softphone are, if not beside this program.")
    var programs: String?

    @Option(help: "The SIPp scenario, for --registrar kamailio.")
    var scenario = "scripts/sipp/caller.xml"

    enum Transport: String, ExpressibleByArgument, CaseIterable {
        case tcp, udp, both
    }

    enum Disturbance: String, ExpressibleByArgument, CaseIterable {
        case connections, resets, supervisor
    }

    enum RegistrarChoice: String, ExpressibleByArgument, CaseIterable {
        case builtin, kamailio
    }

    func validate() throws {
        guard (1...500).contains(clients) else { throw ValidationError("--clients must be 1 to 500.") }
        guard (1...10_000).contains(calls) else { throw ValidationError("--calls must be 1 to 10000.") }
        guard (0.1...200).contains(rate) else { throw ValidationError("--rate must be 0.1 to 200.") }
        guard (2...3600).contains(keepAlive) else { throw ValidationError("--keep-alive must be 2 to 3600.") }
    }

    func run() throws {
        let command = self
        // This is the main thread, and everything happens on it.
        let code = MainActor.assumeIsolated { () -> CInt in
            do {
                let demo = try Demo(command)
                return try demo.run() ? 0 : 1
            } catch DemoError.interrupted {
                complain("interrupted")
                return 130
            } catch {
                complain("\(error)")
                return 2
            }
        }
        if code != 0 { throw ExitCode(code) }
    }
}

extension SuspensionMethod: ExpressibleByArgument {}

func complain(_ text: String) {
    let line = "nightbell-demo: \(text)\n"
    _ = Array(line.utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
}
