import ArgumentParser
import EventHandlers
import EventLoop
import Glibc
import LinuxSystem
import MachineMonitor
import Nightbell

@main
struct DistributorCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-distributor",
        abstract: "Hands messages of the push service to the programs of a session, by UnifiedPush.",
        discussion: """
            It is org.unifiedpush.Distributor.nightbell on the session bus. It needs a supervisor, and nightbell-gateway with \
            --push. The bus can start it; under nightbell run, the supervisor starts it again for messages.

            Exit codes: 0 SIGTERM; 64 the command line is wrong; 69 there is no supervisor, no push service or no bus; 71 the \
            system refused what is needed.
            """,
        version: "0.1.0")

    @Option(
        help: ArgumentHelp(
            "The supervisor's control socket. By default as for nightbell, see nightbell --help.",
            valueName: "path"))
    var socket: String?

    @Option(
        help: ArgumentHelp(
            "The address of the session bus. Default: DBUS_SESSION_BUS_ADDRESS, or the socket bus in XDG_RUNTIME_DIR.",
            valueName: "address"))
    var bus: String?

    /// Each user has one.
    private static var identifier: String { "org.unifiedpush.nightbell.\(geteuid())" }

    func run() throws {
        signal(SIGPIPE, SIG_IGN)
        let signals = try Self.signals()
        let loop: HandlerLoop
        do throws(HandlerError) {
            loop = try HandlerLoop()
        } catch {
            throw Self.failure(EX_OSERR, "\(error)")
        }
        guard let address = bus ?? Self.busAddress else {
            throw Self.failure(EX_UNAVAILABLE, "there is no session bus")
        }
        do {
            try serve(loop, signals, address)
        } catch {
            throw Self.failure(EX_UNAVAILABLE, "\(error)")
        }
    }

    private func serve(_ loop: HandlerLoop, _ signals: borrowing SignalDescriptor, _ address: String) throws {
        // Handlers run on this thread, in `processPending`.
        nonisolated(unsafe) var arrived: [Pushes] = []
        var handlers = Client.Handlers()
        handlers.push = { unsafe arrived.append($0) }
        var configuration = Client.Configuration(
            identifier: Environment.value("NIGHTBELL_IDENTIFIER") ?? Self.identifier, modes: [],
            socketPath: socket)
        configuration.driver = .manual
        let client = try Client(configuration, handlers: handlers)
        let connection = BusConnection(loop, address: address, takesDescriptors: false)
        let distributor = Distributor(loop, client, connection)
        try distributor.restore()
        let messages = try DescriptorWatch(loop, client.fileDescriptor, .read) { _ in
            do throws(NightbellError) {
                try client.processPending()
            } catch {
                complain("\(error)")
                loop.stop()
            }
        }
        let end = try DescriptorWatch(loop, signals.rawValue, .read) { _ in loop.stop() }
        loop.onTurnEnd = {
            while unsafe !arrived.isEmpty { distributor.handle(unsafe arrived.removeFirst()) }
            connection.endTurn()
        }
        try loop.run()
        withExtendedLifetime((messages, end)) {}
        client.close()
    }

    private static var busAddress: String? {
        if let address = Environment.value("DBUS_SESSION_BUS_ADDRESS") { return address }
        return Environment.value("XDG_RUNTIME_DIR").map { "unix:path=\($0)/bus" }
    }

    private static func signals() throws -> SignalDescriptor {
        do throws(SystemError) {
            return try SignalDescriptor([SIGTERM, SIGINT])
        } catch {
            throw failure(EX_OSERR, "\(error)")
        }
    }

    private static func failure(_ code: Int32, _ text: String) -> ExitCode {
        complain(text)
        return ExitCode(code)
    }
}

/// Writes a line to the standard error.
func complain(_ text: String) {
    let line = Array("nightbell-distributor: \(text)\n".utf8)
    _ = unsafe write(STDERR_FILENO, line, line.count)
}
