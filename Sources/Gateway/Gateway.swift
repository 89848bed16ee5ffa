import Glibc
import HTTPTypes
import Hummingbird
import HummingbirdCore
import HummingbirdTLS
import LinuxSystem
package import Logging
import NIOConcurrencyHelpers
import NIOCore
import Nightbell
import PushService
import ServiceLifecycle

/// The door through which people and machines reach a supervisor by HTTP.
package struct Gateway: Sendable {
    /// Why it does not serve.
    package struct Failure: Error, Sendable, CustomStringConvertible {
        package let description: String
        /// The certificate or its key cannot be used; otherwise it cannot listen.
        package let isCertificate: Bool
    }

    private let configuration: GatewayConfiguration
    private let logger: Logger

    package init(_ configuration: GatewayConfiguration, logger: Logger) {
        self.configuration = configuration
        self.logger = logger
    }

    /// Serves until SIGTERM or SIGINT.
    ///
    /// - Parameter onListening: called with the port when connections are accepted.
    package func run(onListening: @escaping @Sendable (Int) -> Void) async throws {
        let limits = configuration.limits
        let hub = EventHub(limits)
        let durations = WakeDurations()
        let link = SupervisorLink(path: configuration.socketPath, limits: limits)
        let door = try configuration.push.map { _ in try PushDoor() }
        let origin = NIOLockedValueBox(configuration.push?.origin)
        let endpoints = Endpoints(
            link: link,
            status: RecentAnswer(link, age: limits.answerAge) { (supervisor) throws(NightbellError) in
                try supervisor.status()
            },
            clients: RecentAnswer(link, age: limits.answerAge) { (supervisor) throws(NightbellError) in
                try supervisor.list().sorted { $0.identifier < $1.identifier }
            },
            hub: hub,
            tokens: TokenStore(TokenFile(configuration.tokenFile), logger),
            metrics: MetricsPage(hub: hub, durations: durations, requests: OwnMetrics()), limits: limits,
            strangers: StrangerLimits(limits),
            pushes: door.map { door in
                PushEndpoints(door: door, limits: limits) { origin.withLockedValue { $0 } }
            })
        try EventFeed(path: configuration.socketPath, hub: hub, durations: durations, logger: logger).start()

        let roster = ConnectionRoster(limits.connections)
        let server: HTTPServerBuilder
        do {
            server = try self.server(roster)
        } catch {
            throw Failure(description: "the certificate cannot be used: \(error)", isCertificate: true)
        }
        let application = Application(
            router: endpoints.router, server: server,
            configuration: ApplicationConfiguration(
                address: .hostname(configuration.host, port: configuration.port), serverName: nil,
                availableConnectionsDelegate: roster),
            services: [Heartbeat(hub: hub, interval: limits.heartbeat)],
            onServerRunning: { [configuration, logger] channel in
                // Fails only if the server has ended already.
                try? await AcceptPause.add(to: channel)
                let port = channel.localAddress?.port ?? 0
                if let push = configuration.push, let door {
                    let url = push.origin?.description ?? configuration.url(port: port)
                    origin.withLockedValue { $0 = Origin(url) }
                    // Not before clients can connect, too.
                    Self.startPushes(push, supervisor: configuration.socketPath, url, door, logger) {
                        onListening(port)
                    }
                } else {
                    onListening(port)
                }
            },
            logger: logger)
        defer { door?.close() }
        do {
            try await application.runService()
        } catch let error as IOError {
            throw Failure(
                description: "cannot listen on \(configuration.host):\(configuration.port): \(error)",
                isCertificate: false)
        }
    }

    /// Runs the push service on a thread of its own. While its store cannot be opened, everything else is served.
    private static func startPushes(
        _ push: GatewayConfiguration.Push, supervisor: String, _ url: String, _ door: PushDoor,
        _ logger: Logger, onReady: @escaping @Sendable () -> Void
    ) {
        let configuration = PushService.Configuration(
            directory: push.directory, socket: push.socket, supervisor: supervisor, publicURL: url)
        let code = Thread.start {
            var isReady = false
            while true {
                do throws(PushError) {
                    let service = try PushService(configuration, door: door, logger: logger)
                    if !isReady { onReady() }
                    isReady = true
                    return try service.run()
                } catch {
                    logger.critical("there is no push service: \(error)")
                    if !isReady { onReady() }
                    isReady = true
                    door.withdrawAll()
                    sleep(Self.pauseAfterFailure)
                }
            }
        }
        guard code == 0 else {
            logger.critical("\(SystemError(code: code, call: "pthread_create"))")
            exit(EX_OSERR)
        }
    }

    /// In seconds.
    private static let pauseAfterFailure: UInt32 = 10

    private func server(_ roster: ConnectionRoster) throws -> HTTPServerBuilder {
        let limits = configuration.limits
        let plain = HTTPServerBuilder.http1(
            configuration: HTTP1Channel.Configuration(
                additionalChannelHandlers: [ConnectionGuard(limits, roster)],
                httpDecoderConfiguration: .init(
                    maxHeaderFieldSize: limits.headerBytes, maxHeaderListSize: limits.headerBytes,
                    maxHeaderFieldCount: limits.headerFields)))
        guard let files = configuration.certificate else { return plain }
        let certificate = try CertificateStore(files, logger)
        return try .tls(plain, tlsConfiguration: certificate.tlsConfiguration)
    }
}

/// Lets streams without events give a sign of life, so that a peer that has gone is noticed.
private struct Heartbeat: Service {
    let hub: EventHub
    let interval: Duration

    func run() async throws {
        await cancelWhenGracefulShutdown {
            while (try? await Task.sleep(for: interval)) != nil { hub.beat() }
        }
    }
}
