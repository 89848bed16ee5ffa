/// A client of the Nightbell supervisor.
public final class Client: Sendable {
    /// Connects to the supervisor and registers. Blocks for at most the request timeout.
    public init(_ configuration: Configuration, handlers: Handlers = Handlers()) throws(NightbellError) {
        throw NightbellError(.cannotConnect, "not built yet")
    }

    public var minimumKeepAliveTimeout: Duration { .zero }
    /// `cgroup`, `signal` or `none`
    public var suspensionMethod: String { "" }
    /// The identifier that was registered.
    public var identifier: String { "" }
    public var isConnected: Bool { false }

    public func handOver(
        _ descriptor: CInt, as tag: SocketTag, name: String = ""
    ) throws(NightbellError) -> ParkedSocket { throw NightbellError(.closed, "") }

    /// One result for each, in order; the call throws only when nothing could be asked.
    public func handOver(
        _ sockets: [SocketToPark]
    ) throws(NightbellError) -> [Result<ParkedSocket, NightbellError>] { throw NightbellError(.closed, "") }

    public struct SocketToPark: Sendable {
        public var descriptor: CInt
        public var tag: SocketTag
        public var name: String
        public init(_ descriptor: CInt, as tag: SocketTag, name: String = "") {
            self.descriptor = descriptor
            self.tag = tag
            self.name = name
        }
    }

    public func release(_ socket: ParkedSocket) throws(NightbellError) {}
    /// Releases the socket, then closes its descriptor.
    public func close(socket: ParkedSocket) throws(NightbellError) {}
    public func enterBackground() throws(NightbellError) {}
    public func enterForeground() throws(NightbellError) {}
    public func setKeepAliveTimeout(
        _ timeout: Duration, handler: @escaping @Sendable () -> Void
    ) throws(NightbellError) {}
    public func clearKeepAliveTimeout() throws(NightbellError) {}
    public func beginBackgroundTask(_ name: String = "") throws(NightbellError) -> BackgroundTask {
        throw NightbellError(.closed, "")
    }
    public func end(_ task: BackgroundTask) throws(NightbellError) {}
    public func backgroundTimeRemaining() throws(NightbellError) -> BackgroundTimeRemaining { .unlimited }
    public func mediaActivity() throws(NightbellError) {}
    public var wakes: Wakes { Wakes() }
    public var fileDescriptor: CInt { -1 }
    public func processPending() throws(NightbellError) {}
    public func close() {}

    /// Wakes as they come; one consumer at a time.
    public struct Wakes: AsyncSequence, Sendable {
        public typealias Element = Wake
        public typealias Failure = Never
        public struct AsyncIterator: AsyncIteratorProtocol {
            public mutating func next() async -> Wake? { nil }
            public mutating func next(isolation actor: isolated (any Actor)?) async -> Wake? { nil }
        }
        public func makeAsyncIterator() -> AsyncIterator { AsyncIterator() }
    }
}
