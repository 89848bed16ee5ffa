import ArgumentParser
import CLinux
import Glibc
import LinuxSystem
import MachineMonitor
import ProcessPrivileges

@main
struct MonitorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-monitor",
        abstract: "Observes the machine for a supervisor, which starts it.",
        discussion: """
            Descriptor 3 is a connection to the supervisor (SOCK_SEQPACKET), with the messages of monitor.proto. Its \
            end ends the monitor.

            Exit codes: 0 after the end of the connection; 64 the command line is wrong; 69 with --names: there is no \
            bus; 71 the system refused what \
            is needed; 76 the supervisor's message cannot be decoded; 77 it cannot become the given user.
            """)

    @Option(
        help: ArgumentHelp(
            "Become this user, as root. Without it, root stays root.", valueName: "name or number"))
    var user: String?

    @Flag(help: "Observe the user's session as well: its bus and its PipeWire.")
    var session = false

    @Flag(help: "Be killed when the thread that started it ends, even if it is stopped then.")
    var endsWithParent = false

    @Flag(
        help: """
            Print the names on the system bus, or with --session on the session's, also those of services that it \
            would start, and end.
            """)
    var names = false

    func run() throws {
        if names { return try printNames() }
        let descriptor: CInt = 3
        guard clinux_set_close_on_exec(descriptor, 1) == 0 else {
            throw Self.failure(EX_USAGE, "descriptor 3 is no connection to a supervisor")
        }
        let socket = SeqPacketSocket(adopting: OwnedDescriptor(adopting: descriptor))
        do throws(SystemError) {
            if let user { try Privileges.become(user) }
            try Privileges.confine()
            if endsWithParent { try Privileges.endWithParent() }
        } catch {
            throw Self.failure(EX_NOPERM, "\(error)")
        }
        do throws(MonitorError) {
            let monitor = try MachineMonitor(socket, .fromEnvironment(isSession: session))
            try monitor.run()
        } catch {
            throw Self.failure(error.exitCode, "\(error)")
        }
    }

    private func printNames() throws {
        do throws(BusError) {
            let configuration = MonitorConfiguration.fromEnvironment(isSession: session)
            let address = session ? configuration.sessionBusAddress : configuration.systemBusAddress
            for name in try BusNames.known(address: address) { print(name) }
        } catch {
            throw Self.failure(EX_UNAVAILABLE, "the \(session ? "session" : "system") bus: \(error)")
        }
    }

    private static func failure(_ code: Int32, _ text: String) -> ExitCode {
        let line = Array("nightbell-monitor: \(text)\n".utf8)
        _ = unsafe write(STDERR_FILENO, line, line.count)
        return ExitCode(code)
    }
}

extension MonitorError {
    fileprivate var exitCode: Int32 {
        switch self {
        case .loop, .system, .connection, .tooLong: EX_OSERR
        case .nonsense: EX_PROTOCOL
        }
    }
}
