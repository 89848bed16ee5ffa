import CLinux
import Glibc
public import NIOCore
import NIOPosix
public import NightbellCore
public import NightbellParking
import Synchronization

/// The handler of a pipeline that saves the state of its connection.
public protocol HibernatableHandler: ChannelHandler {
    /// Called on the channel's event loop when the channel has been idle for the configured time. If the
    /// socket can be parked, the pipeline is removed after this call; `channelInactive` is not sent to its
    /// handlers.
    ///
    /// - Returns: the state that `rebuild` needs, or nil if work is under way. It is called again after the
    ///   same time.
    func stateForHibernation() -> [UInt8]?

    /// The connection is hibernated under this token, by which the host can send to it or wake it. Called on
    /// the event loop, before it can wake.
    func didHibernate(as token: ParkingToken)
}

/// A connection that was woken.
public struct WokenConnection: Sendable {
    /// The result of ``HibernatableHandler/stateForHibernation()``.
    public let state: [UInt8]
    /// The reasons. Empty: the host has requested it.
    public let reasons: ParkingReasons
    /// Its token while it was hibernated.
    public let token: ParkingToken
}

/// Hibernates idle channels of SwiftNIO: pipeline, buffers and session are released, the socket is parked,
/// and a message restores the connection.
///
/// ```swift
/// let hibernator = try Hibernator(.init(idleTime: .seconds(30))) { channel, woken in
///     let session = Session(woken.state)  // a HibernatableHandler
///     try channel.pipeline.syncOperations.addHandler(session)
///     return session
/// }
/// ServerBootstrap(group: group).childChannelInitializer { channel in
///     channel.eventLoop.makeCompletedFuture {
///         let session = Session()
///         try channel.pipeline.syncOperations.addHandler(session)
///         try hibernator.watch(channel, saving: session)
///     }
/// }
/// ```
///
/// No data is lost or reordered: a channel is hibernated only while it has no unwritten data, while its input
/// ends with a whole message (see ``StreamFraming``), and while both halves of the connection are open. Data
/// that arrives at that moment stays in the kernel, wakes the connection, and is read first by the new
/// channel. A connection returns to its former event loop.
///
/// The hibernated channel is closed, except for its connection: `closeFuture` succeeds, and handlers are
/// removed. The woken one is a new channel, without a parent, with the options that `rebuild` sets.
public final class Hibernator: Sendable {
    public struct Configuration: Sendable {
        /// The time without reads and writes before a channel is hibernated.
        public var idleTime: TimeAmount
        /// Handles the pings of hibernated connections; nil: they wake.
        public var profile: ParkingProfile?
        public var framing = StreamFraming.unknown
        /// `ChannelOptions.allowRemoteHalfClosure` of woken channels.
        public var allowsRemoteHalfClosure = false
        /// Called on its event loop for a connection that could not be restored and is closed: no channel
        /// could be made, or `rebuild` has thrown. No handler may exist to report this, so release the host's
        /// state of it here. If an error occurs after `rebuild` has returned, the channel is closed, and its
        /// handlers are notified (`handlerRemoved`).
        public var whenLost: (@Sendable (WokenConnection, any EventLoop) -> Void)?
        /// A hibernated connection is woken within this time at the latest; nil: never.
        public var keepAlive: Duration?
        /// Whether freed memory of pipelines is returned to the kernel (`malloc_trim`; a second after many of
        /// them were released, five seconds after a few), and large blocks at once (`M_MMAP_THRESHOLD`, 128
        /// KiB). Both affect the whole process.
        public var givesMemoryBack = true
        public var supervisor = EmbeddedSupervisor.Configuration()

        public init(idleTime: TimeAmount) {
            self.idleTime = idleTime
        }
    }

    /// Event counts.
    public struct Counters: Sendable, Equatable {
        public var hibernated = 0
        public var woken = 0
        /// Attempts to hibernate an idle channel that failed: work was under way, or no descriptor was free.
        public var postponed = 0
        /// Connections that could not be restored, and are closed; see ``Configuration/whenLost``.
        public var lost = 0
    }

    public typealias Rebuild = @Sendable (any Channel, WokenConnection) throws -> any HibernatableHandler

    let configuration: Configuration
    private let rebuild: Rebuild
    private let supervisor: EmbeddedSupervisor
    private let inner: Inner

    /// State for the supervisor's thread, which must not keep the hibernator alive.
    private final class Inner: Sendable {
        /// The event loops of hibernated connections: a saved state begins with the index of its loop.
        let loops = Mutex<[Home]>([])
        let counters = Mutex(Counters())
        let owner = Mutex(WeakOwner())
        let leftovers = Mutex(Leftovers())
    }

    private struct Home: Sendable {
        let loop: any EventLoop
        let watch: NIOLoopBound<IdleWatch>
    }

    /// Connections hibernated since memory was last returned.
    private struct Leftovers: Sendable {
        /// From this number on, memory is returned sooner.
        static let many = 64

        var count = 0
        var task: Scheduled<Void>?
    }

    private struct WeakOwner: Sendable {
        weak let hibernator: Hibernator?

        init(_ hibernator: Hibernator? = nil) {
            self.hibernator = hibernator
        }
    }

    /// - Parameter rebuild: makes the pipeline of a woken connection, on its event loop, before any read, and
    ///   returns the handler that will save it the next time. If it throws, the connection is closed; see
    ///   ``Configuration/whenLost``.
    /// - Throws: ``EmbeddedError`` with the code `resources`, or `configuration` for errors in `supervisor`.
    public init(_ configuration: Configuration, rebuild: @escaping Rebuild) throws(EmbeddedError) {
        self.configuration = configuration
        self.rebuild = rebuild
        let inner = Inner()
        self.inner = inner
        var own = configuration.supervisor
        own.service = .ownThread
        supervisor = try EmbeddedSupervisor(own) { events in
            guard let hibernator = inner.owner.withLock({ $0.hibernator }) else { return }
            for event in events { hibernator.wake(event.token, event.reasons) }
        }
        inner.owner.withLock { $0 = WeakOwner(self) }
        if configuration.givesMemoryBack { clinux_release_large_blocks_at_once() }
    }

    public var counters: Counters { inner.counters.withLock { $0 } }
    /// Counters of the supervisor that holds the sockets.
    public var supervision: EmbeddedCounters { supervisor.counters }

    /// Hibernates a channel whenever it is idle. Call it on the channel's event loop when the pipeline is
    /// complete, for example after an upgrade to WebSocket.
    ///
    /// - Parameter decoder: the handler of the pipeline that reads bytes from now on, if some may be on their
    ///   way to it that arrived together with earlier data, such as the upgrade request. Otherwise it is
    ///   unknown whether they end with a whole message.
    ///
    /// An encrypted channel is not hibernated, and its handlers receive a ``HibernationError`` with the code
    /// `tls`. Handlers of SwiftNIO SSL are recognized, even if no data was sent since their handshake. Other
    /// TLS that has begun before is noticed at its next record, which may be too late: do not watch its
    /// channels.
    ///
    /// TLS may begin later (STARTTLS), in front of this handler or behind it. The channel is not hibernated
    /// from the first ClientHello on; between the agreement to begin and that, `stateForHibernation` has to
    /// return nil.
    ///
    /// - Throws: ``HibernationError`` with the code `notASocket`, and errors of adding a handler.
    public func watch(
        _ channel: any Channel, saving handler: any HibernatableHandler,
        readingFrom decoder: (any ChannelHandler)? = nil
    ) throws {
        let isStream = try channel.pipeline.syncOperations.withUnsafeTransportIfAvailable(
            of: NIOBSDSocket.Handle.self
        ) { Self.isStream($0) }
        guard isStream == true else { throw HibernationError.notASocket }
        let watcher = try watch(channel, saving: handler, isNew: true, unsent: [])
        guard let decoder else { return }
        try channel.pipeline.syncOperations.addHandler(EarlyBytes(watcher), position: .before(decoder))
    }

    private static func isStream(_ socket: CInt) -> Bool {
        var type: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        return getsockopt(socket, SOL_SOCKET, SO_TYPE, &type, &length) == 0
            && type == CInt(SOCK_STREAM.rawValue)
    }

    @discardableResult
    private func watch(
        _ channel: any Channel, saving saver: any HibernatableHandler, isNew: Bool, unsent: [UInt8]
    ) throws -> HibernationHandler {
        let watch = home(of: channel.eventLoop).watch.value
        let handler = HibernationHandler(
            self, channel.eventLoop, watch, saver, isNew: isNew, unsent: unsent)
        try channel.pipeline.syncOperations.addHandler(handler, position: .first)
        return handler
    }

    /// Wakes a connection at the host's request. False: it is already waking, or gone.
    @discardableResult
    public func wake(_ token: ParkingToken) -> Bool { wake(token, []) }

    /// Writes whole messages to a hibernated connection without waking it. A connection that does not take
    /// all of them at once is woken, and the rest is written before all other data.
    ///
    /// - Returns: false if it is not hibernated any more, and nothing was written: it is waking, or gone.
    ///   Keep the messages for the handler that `rebuild` will make.
    public func send(_ bytes: [UInt8], to token: ParkingToken) -> Bool {
        do {
            if let rest = try supervisor.sendOrClaim(bytes, to: token) {
                bringBack(rest.socket, [], unsent: rest.bytes)
            }
            return true
        } catch {
            return false
        }
    }

    /// Closes all hibernated connections.
    public func close() {
        supervisor.close()
    }

    // MARK: Hibernating

    func count(_ change: (inout Counters) -> Void) {
        inner.counters.withLock { change(&$0) }
    }

    /// Parks a duplicate of a channel's socket; nil if data has arrived. It would wake the connection at
    /// once, and on a busy event loop this could repeat endlessly without a read.
    func park(
        _ socket: CInt, state: [UInt8], on loop: any EventLoop
    ) throws(HibernationError) -> ParkingToken? {
        var unread = pollfd(fd: socket, events: CShort(POLLIN), revents: 0)
        guard poll(&unread, 1, 0) == 0 else { return nil }
        let number = number(of: loop)
        let bytes = [UInt8(truncatingIfNeeded: number), UInt8(truncatingIfNeeded: number >> 8)] + state
        let duplicate = fcntl(socket, F_DUPFD_CLOEXEC, 0)
        guard duplicate >= 0 else { throw HibernationError(.notParked, "no descriptor: errno \(errno)") }
        do {
            return try supervisor.park(
                duplicate, profile: configuration.profile, keepAlive: configuration.keepAlive, state: bytes)
        } catch {
            Glibc.close(duplicate)
            throw HibernationError(.notParked, "\(error)")
        }
    }

    /// Without this the heap would keep its peak size, with holes in it.
    func didHibernate(on loop: any EventLoop) {
        count { $0.hibernated += 1 }
        guard configuration.givesMemoryBack else { return }
        inner.leftovers.withLock { leftovers in
            leftovers.count += 1
            guard leftovers.count == 1 || leftovers.count == Leftovers.many else { return }
            leftovers.task?.cancel()
            leftovers.task = loop.scheduleTask(in: .seconds(leftovers.count == 1 ? 5 : 1)) { [inner] in
                inner.leftovers.withLock { $0 = Leftovers() }
                clinux_release_free_memory()
            }
        }
    }

    private func number(of loop: any EventLoop) -> Int {
        inner.loops.withLock { $0.firstIndex { $0.loop === loop } ?? 0 }
    }

    /// Called on the event loop.
    private func home(of loop: any EventLoop) -> Home {
        let idleTime = configuration.idleTime
        return inner.loops.withLock { homes in
            if let home = homes.first(where: { $0.loop === loop }) { return home }
            let home = Home(
                loop: loop, watch: NIOLoopBound(IdleWatch(loop, idleTime: idleTime), eventLoop: loop))
            homes.append(home)
            return home
        }
    }

    // MARK: Waking

    @discardableResult
    private func wake(_ token: ParkingToken, _ reasons: ParkingReasons) -> Bool {
        // The first claim gets the connection.
        guard let claimed = try? supervisor.claim(token) else { return false }
        bringBack(claimed, reasons, unsent: [])
        return true
    }

    private func bringBack(_ claimed: ClaimedSocket, _ reasons: ParkingReasons, unsent: [UInt8]) {
        let number = Int(claimed.state[0]) | Int(claimed.state[1]) << 8
        let loop = inner.loops.withLock { $0[number].loop }
        let woken = WokenConnection(
            state: Array(claimed.state.dropFirst(2)), reasons: reasons, token: claimed.token)
        count { $0.woken += 1 }
        // Not synchronously, even on its own loop: the handler that hibernates it may not have finished.
        loop.execute { self.bringBack(claimed.descriptor, woken, unsent, on: loop) }
    }

    private func bringBack(
        _ socket: CInt, _ woken: WokenConnection, _ unsent: [UInt8], on loop: any EventLoop
    ) {
        let isRebuilt = NIOLoopBoundBox(false, eventLoop: loop)
        ClientBootstrap(group: loop)
            .channelOption(.allowRemoteHalfClosure, value: configuration.allowsRemoteHalfClosure)
            .channelInitializer { channel in
                channel.eventLoop.makeCompletedFuture {
                    let saver = try self.rebuild(channel, woken)
                    isRebuilt.value = true
                    try self.watch(channel, saving: saver, isNew: false, unsent: unsent)
                }
            }
            .withConnectedSocket(socket)
            .whenFailure { _ in
                self.count { $0.lost += 1 }
                if !isRebuilt.value { self.configuration.whenLost?(woken, loop) }
            }
    }
}
