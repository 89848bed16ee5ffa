import ArgumentParser
import Gateway
import Glibc
import Logging
import Nightbell

@main
struct GatewayCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbell-gateway",
        abstract: "Shows a Nightbell supervisor to people and machines by HTTP.",
        discussion: """
            It needs nothing but the supervisor's control socket, and sees as much as the supervisor grants to its user: \
            see gateway.user in nightbelld's configuration.
            """,
        version: "0.1.0",
        subcommands: [ServeCommand.self, TokenCommand.self],
        defaultSubcommand: ServeCommand.self)

    static let defaultTokenFile = "/etc/nightbell/gateway-tokens"
}

struct TokenFileOption: ParsableArguments {
    @Option(help: ArgumentHelp("The file with the hashes of tokens.", valueName: "path"))
    var tokens = GatewayCommand.defaultTokenFile
}

struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve", abstract: "Serves until SIGTERM. This is the default.",
        discussion: """
            /                 the dashboard
            /metrics          for Prometheus
            /v1/openapi.json  the interface for programs
            /healthz, /readyz whether it runs, and whether a supervisor answers

            Exit codes: 0 stopped, 64 the command line is wrong, 69 it cannot listen there, 78 a certificate cannot be used.
            """)

    @Option(
        help: ArgumentHelp(
            "Where it listens: a port, or an address and a port, such as [::]:7480. Port 0 is any free one.",
            valueName: "address"))
    var listen = "127.0.0.1:7480"

    @Option(
        help: ArgumentHelp("The certificate and those between it and its root, in PEM.", valueName: "path"))
    var certificate: String?

    @Option(help: ArgumentHelp("The certificate's private key, in PEM.", valueName: "path"))
    var key: String?

    @Flag(
        help: """
            Listens without TLS on an address that other machines can reach. Tokens can then be read on the way, unless a \
            proxy encrypts them.
            """)
    var plaintext = false

    @OptionGroup var tokenFile: TokenFileOption

    @Option(
        help: ArgumentHelp(
            "The supervisor's control socket. By default as for nightbell, see nightbell --help.",
            valueName: "path"))
    var socket: String?

    @Option(
        help: ArgumentHelp(
            "Keep pushes for clients, in this directory of its own user.", valueName: "directory"))
    var push: String?

    @Option(
        help: ArgumentHelp(
            "Where clients connect to the push service: gateway.pushSocket of nightbelld's configuration.",
            valueName: "path"))
    var pushSocket: String?

    @Option(
        help: ArgumentHelp(
            "The scheme, host and port by which senders of pushes reach it, such as https://push.example.org.",
            valueName: "URL"))
    var publicURL: String?

    @Option(help: ArgumentHelp("The most open connections.", valueName: "count"))
    var connections: Int?

    @Option(help: ArgumentHelp("The most connections that follow events.", valueName: "count"))
    var streams: Int?

    @Option(
        help: ArgumentHelp(
            "Refused requests of strangers answered at once, a second; others wait a second.",
            valueName: "count"))
    var refusals: Int?

    @Option(
        help: ArgumentHelp(
            "Requests that need no token answered at once, a second; others wait a second.",
            valueName: "count"))
    var pages: Int?

    func validate() throws {
        guard let address else {
            throw ValidationError("--listen: expected a port, or an address and a port: \(listen)")
        }
        guard (certificate == nil) == (key == nil) else {
            throw ValidationError("--certificate and --key belong together")
        }
        guard push != nil || pushSocket == nil && publicURL == nil else {
            throw ValidationError("--push-socket and --public-url go with --push")
        }
        if let publicURL, Origin(publicURL) == nil {
            throw ValidationError("--public-url: expected https://host or https://host:port: \(publicURL)")
        }
        for (name, value) in [
            ("--connections", connections), ("--streams", streams), ("--refusals", refusals),
            ("--pages", pages),
        ] {
            if let value, !(1...100_000).contains(value) {
                throw ValidationError("\(name): expected a number from 1 to 100000")
            }
        }
        var tried = GatewayConfiguration(tokenFile: "", socketPath: "")
        tried.host = address.host
        let hasOrigin = !tried.isWildcard && Origin(tried.url(port: 1)) != nil
        guard push == nil || publicURL != nil || hasOrigin else {
            throw ValidationError(
                "\(listen) is no address that senders of pushes can use: give --public-url, too")
        }
        guard certificate != nil || tried.isLoopback || plaintext else {
            throw ValidationError(
                "\(listen) can be reached by other machines: give --certificate and --key, or --plaintext")
        }
    }

    private var address: (host: String, port: Int)? {
        guard let colon = listen.lastIndex(of: ":") else {
            return Self.port(listen).map { ("127.0.0.1", $0) }
        }
        var host = listen[..<colon]
        if host.hasPrefix("["), host.hasSuffix("]") { host = host.dropFirst().dropLast() }
        guard !host.isEmpty, let port = Self.port(listen[listen.index(after: colon)...]) else { return nil }
        return (String(host), port)
    }

    /// A connection of either side needs one. Without the few of its event loops SwiftNIO ends the process with
    /// a signal, so that too low a limit is told here.
    private static func raiseDescriptorLimit(_ logger: Logger) throws {
        var limit = rlimit()
        guard getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0 else { return }
        limit.rlim_cur = limit.rlim_max
        setrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit)
        let least = 64 + 4 * rlim_t(max(1, sysconf(Int32(_SC_NPROCESSORS_ONLN))))
        guard limit.rlim_max >= least else {
            logger.critical(
                "this process may have only \(limit.rlim_max) descriptors, and needs \(least): LimitNOFILE=")
            throw ExitCode(EX_UNAVAILABLE)
        }
    }

    private static func port(_ text: some StringProtocol) -> Int? {
        UInt16(text).map(Int.init)
    }

    func run() async throws {
        signal(SIGPIPE, SIG_IGN)
        LoggingSystem.bootstrap { StreamLogHandler.standardError(label: $0) }
        var logger = Logger(label: "nightbell-gateway")
        logger.logLevel = .notice
        try Self.raiseDescriptorLimit(logger)
        var configuration = GatewayConfiguration(
            tokenFile: tokenFile.tokens,
            socketPath: socket ?? Client.Configuration.defaultSocketPath())
        if let address { (configuration.host, configuration.port) = address }
        if let certificate, let key { configuration.certificate = .init(chain: certificate, key: key) }
        if let connections { configuration.limits.connections = connections }
        if let streams { configuration.limits.streams = streams }
        if let refusals { configuration.limits.refusalsPerSecond = refusals }
        if let pages { configuration.limits.pagesPerSecond = pages }
        if let push {
            configuration.push = .init(
                directory: push, socket: pushSocket ?? Client.Configuration.defaultPushSocketPath(),
                origin: publicURL.flatMap(Origin.init))
        }
        let served = configuration
        do {
            try await Gateway(configuration, logger: logger).run { port in
                // For programs that have asked for any free port.
                print(served.url(port: port) + "/")
                fflush(nil)
            }
        } catch let error as Gateway.Failure {
            logger.critical("\(error)")
            throw ExitCode(error.isCertificate ? 78 : EX_UNAVAILABLE)
        }
        logger.notice("the gateway has ended as it was asked to")
    }
}
