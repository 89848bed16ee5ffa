internal import ArgumentParser
internal import ChatService
internal import Glibc

@main
struct ChatServerCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "chat-server",
        abstract: "A chat with rooms, for browsers, whose idle connections are hibernated.",
        discussion: "Open the address that it prints. It ends with SIGINT or SIGTERM.")

    @Option(help: "Where it listens, on the loopback interface; 0: any free port.")
    var port = 8080

    @Option(help: ArgumentHelp("How long a connection is idle before it is hibernated.", valueName: "time"))
    var hibernateAfter = Time(.seconds(30))

    @Flag(help: "Never hibernate a connection.")
    var noHibernate = false

    @Option(help: ArgumentHelp("How often an idle connection is pinged; 0: never.", valueName: "time"))
    var pingEvery = Time(.seconds(20))

    @Option(help: "Event loops.")
    var threads = 1

    func validate() throws {
        guard (0...65_535).contains(port) else { throw ValidationError("a port is 0 to 65535") }
        guard (1...64).contains(threads) else { throw ValidationError("1 to 64 threads") }
        guard pingEvery.value == .zero || (.seconds(5)...(.seconds(7_200))).contains(pingEvery.value) else {
            throw ValidationError("--ping-every: 5s to 120m, or 0")
        }
        guard hibernateAfter.value > .zero else { throw ValidationError("--hibernate-after: more than 0") }
    }

    func run() throws {
        // Waited for below, and by no other thread.
        var signals = sigset_t()
        sigemptyset(&signals)
        sigaddset(&signals, SIGINT)
        sigaddset(&signals, SIGTERM)
        pthread_sigmask(SIG_BLOCK, &signals, nil)
        signal(SIGPIPE, SIG_IGN)
        useAllDescriptors()

        var configuration = ChatServer.Configuration()
        configuration.port = port
        configuration.hibernateAfter = noHibernate ? nil : hibernateAfter.value
        configuration.pingEvery = pingEvery.value > .zero ? pingEvery.value : nil
        configuration.threads = threads
        let server = try ChatServer(configuration)
        print("listening on http://127.0.0.1:\(server.port)/")
        fflush(nil)

        var signal: CInt = 0
        sigwait(&signals, &signal)
        try server.stop()
    }

    private func useAllDescriptors() {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
    }
}

/// A time with its unit, such as `30s` or `500ms`; without one, seconds.
struct Time: ExpressibleByArgument, CustomStringConvertible {
    let value: Duration

    init(_ value: Duration) { self.value = value }

    init?(argument: String) {
        let number = argument.prefix { $0.isNumber || $0 == "." }
        guard let amount = Double(number), amount < 1e6 else { return nil }
        switch argument.dropFirst(number.count) {
        case "ms": value = .seconds(amount / 1_000)
        case "s", "": value = .seconds(amount)
        case "m": value = .seconds(amount * 60)
        default: return nil
        }
    }

    var description: String { "\(value)" }
    var defaultValueDescription: String { "\(value.components.seconds)s" }
}
