internal import Glibc
internal import NIOCore
internal import NIOHTTP1
internal import NIOPosix
internal import NIOWebSocket
internal import NightbellNIO
internal import Synchronization

/// A chat server: rooms, members and messages over WebSocket; idle connections are hibernated.
public final class ChatServer: Sendable {
    public struct Configuration: Sendable {
        /// 0: any free port.
        public var port = 8080
        /// How long a connection is idle before it is hibernated; nil: never hibernate.
        public var hibernateAfter: Duration? = .seconds(30)
        /// How often a silent connection is pinged; nil: never.
        public var pingEvery: Duration? = .seconds(20)
        /// Event loops.
        public var threads = 1
        /// Called before the session of a woken connection is made. Tests throw here.
        package var willRebuild: @Sendable () throws -> Void = {}

        public init() {}
    }

    /// Another process has the port, for example.
    public struct CannotListen: Error, CustomStringConvertible {
        public let port: Int
        /// The system's `errno`.
        public let code: Int32

        public var description: String {
            "cannot listen on 127.0.0.1:\(port): \(String(cString: strerror(code)))"
        }
    }

    public let port: Int
    private let group: MultiThreadedEventLoopGroup
    private let listener: any Channel
    private let hibernator: Hibernator?
    private let allMembers: AllMembers
    private let tally = Tally()

    /// Listens on the loopback interface.
    public init(_ configuration: Configuration) throws {
        let tally = self.tally
        let group = MultiThreadedEventLoopGroup(numberOfThreads: configuration.threads)
        let allMembers = try AllMembers(
            group, tally, pingInterval: configuration.pingEvery.map { TimeAmount($0) })
        do {
            let hibernator = try configuration.hibernateAfter.map { idleTime in
                try Self.hibernator(allMembers, idleTime: idleTime, configuration)
            }
            try allMembers.meet(hibernator)
            let facts = PageHandler.Facts(
                counters: { tally.counters(hibernator) },
                sleepers: { allMembers.sleepers(in: $0, for: $1) })
            listener = try Self.bootstrap(group, allMembers, hibernator, facts)
                .bind(host: "127.0.0.1", port: configuration.port).wait()
            self.hibernator = hibernator
        } catch {
            try allMembers.close()
            try group.syncShutdownGracefully()
            guard let refusal = error as? IOError else { throw error }
            throw CannotListen(port: configuration.port, code: refusal.errnoCode)
        }
        port = listener.localAddress?.port ?? 0
        self.group = group
        self.allMembers = allMembers
    }

    public var counters: ChatCounters { tally.counters(hibernator) }

    /// Closes everything.
    public func stop() throws {
        try listener.close().wait()
        try allMembers.close()
        hibernator?.close()
        try group.syncShutdownGracefully()
    }

    // MARK: Hibernating

    private static func hibernator(
        _ allMembers: AllMembers, idleTime: Duration, _ server: Configuration
    ) throws -> Hibernator {
        var configuration = Hibernator.Configuration(idleTime: TimeAmount(idleTime))
        configuration.framing = .webSocket
        if let pingEvery = server.pingEvery {
            configuration.profile = try .webSocket(isServer: true, interval: pingEvery)
        }
        configuration.whenLost = { allMembers.members(on: $1).lose($0) }
        return try Hibernator(configuration) { channel, woken in
            try server.willRebuild()
            try channel.syncOptions?.setOption(.writeBufferWaterMark, value: waterMark)
            let session = Session(allMembers.members(on: channel.eventLoop), woken)
            let operations = channel.pipeline.syncOperations
            try operations.addHandler(
                ByteToMessageHandler(WebSocketFrameDecoder(maxFrameSize: Limits.frameBytes)))
            // The last step: from here on the session leaves the room by itself, even if the connection is
            // lost.
            try operations.addHandler(session)
            return session
        }
    }

    private static let waterMark = ChannelOptions.Types.WriteBufferWaterMark(
        low: Limits.unreadBytes / 2, high: Limits.unreadBytes)

    // MARK: Connections

    private static func bootstrap(
        _ group: MultiThreadedEventLoopGroup, _ allMembers: AllMembers, _ hibernator: Hibernator?,
        _ facts: PageHandler.Facts
    ) -> ServerBootstrap {
        let upgrader = NIOWebSocketServerUpgrader(
            maxFrameSize: Limits.frameBytes, automaticErrorHandling: false
        ) { channel, head in
            channel.eventLoop.makeSucceededFuture(isWelcome(head) ? [:] : nil)
        } upgradePipelineHandler: { channel, _ in
            channel.eventLoop.makeCompletedFuture {
                let operations = channel.pipeline.syncOperations
                let session = Session(allMembers.members(on: channel.eventLoop))
                try operations.addHandler(session)
                let decoder = try operations.handler(type: ByteToMessageHandler<WebSocketFrameDecoder>.self)
                try hibernator?.watch(channel, saving: session, readingFrom: decoder)
            }
        }
        return ServerBootstrap(group: group)
            .serverChannelOption(.socketOption(.so_reuseaddr), value: 1)
            .serverChannelOption(.backlog, value: 4_096)
            // Without a free descriptor it waits a second, instead of retrying at once.
            .serverChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    try channel.pipeline.syncOperations.addHandler(AcceptBackoffHandler())
                }
            }
            .childChannelOption(.writeBufferWaterMark, value: waterMark)
            .childChannelInitializer { channel in
                channel.eventLoop.makeCompletedFuture { try build(channel, upgrader, facts) }
            }
    }

    /// The pipeline of a connection before its request.
    private static func build(
        _ channel: any Channel, _ upgrader: NIOWebSocketServerUpgrader, _ facts: PageHandler.Facts
    ) throws {
        let operations = channel.pipeline.syncOperations
        try operations.addHandler(IdleStateHandler(allTimeout: .seconds(60)), name: "idle")
        try operations.configureHTTPServerPipeline(
            withServerUpgrade: (
                upgraders: [upgrader],
                completionHandler: { context in
                    for name in ["idle", "page"] { context.pipeline.removeHandler(name: name, promise: nil) }
                }
            ))
        try operations.addHandler(PageHandler(facts), name: "page")
    }

    /// A browser names the page that opens the connection: only this server's own may.
    private static func isWelcome(_ head: HTTPRequestHead) -> Bool {
        guard head.uri.prefix(while: { $0 != "?" }) == "/ws", let host = head.localHost else { return false }
        let origins = head.headers["origin"]
        guard let origin = origins.first else { return true }
        return origins.count == 1 && (origin == "http://\(host)" || origin == "https://\(host)")
    }
}

/// The members of all event loops.
private final class AllMembers: Sendable {
    private let perLoop: [ObjectIdentifier: NIOLoopBound<Members>]
    private let outboxes: [Outbox]

    init(_ group: MultiThreadedEventLoopGroup, _ tally: Tally, pingInterval: TimeAmount?) throws {
        let loops = Array(group.makeIterator())
        let outboxes = loops.map { Outbox($0) }
        self.outboxes = outboxes
        let hall = Hall(outboxes)
        var perLoop: [ObjectIdentifier: NIOLoopBound<Members>] = [:]
        for (number, loop) in loops.enumerated() {
            let members = try loop.submit {
                NIOLoopBound(
                    Members(hall, tally, loop, number: number, pingInterval: pingInterval), eventLoop: loop)
            }.wait()
            perLoop[ObjectIdentifier(loop)] = members
            outboxes[number].open { members.value.deliver($0) }
        }
        self.perLoop = perLoop
    }

    func meet(_ hibernator: Hibernator?) throws {
        for members in perLoop.values {
            try members.eventLoop.submit { members.value.hibernator = hibernator }.wait()
        }
    }

    /// Breaks the reference cycles between the members and their users.
    func close() throws {
        for outbox in outboxes { outbox.close() }
        try meet(nil)
    }

    /// - Parameter loop: the event loop of the request.
    func sleepers(in room: String, for loop: any EventLoop) -> EventLoopFuture<Sleepers> {
        let asked = perLoop.values.map { members in
            members.eventLoop.submit { members.value.sleepers(in: room) }
        }
        return EventLoopFuture.reduce(into: Sleepers(), asked, on: loop) { $0.add($1) }
    }

    func members(on loop: any EventLoop) -> Members {
        guard let members = perLoop[ObjectIdentifier(loop)] else {
            preconditionFailure("connections are on the event loops of the group")
        }
        return members.value
    }
}
