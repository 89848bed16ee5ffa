import CLinux
import Glibc
public import NIOCore
import NIOPosix
public import NightbellCore
public import NightbellSupervisor
import Synchronization

/// The handler of a pipeline that knows what of its connection has to be remembered.
public protocol HibernatableHandler: ChannelHandler {
    /// Called on the channel's event loop when the channel has been idle for the configured time. The pipeline is gone
    /// when this has returned and the socket could be parked; no handler hears of `channelInactive` then.
    ///
    /// - Returns: what `rebuild` needs to go on, or nil: not now, because something is under way. It is asked again after
    ///   the same time.
    func stateForHibernation() -> [UInt8]?

    /// The connection is hibernated under this token: for whoever wants to send to it, or to wake it. Called on the event
    /// loop, before it can wake.
    func didHibernate(as token: ParkingToken)
}

/// A connection that is back.
public struct WokenConnection: Sendable {
    /// What ``HibernatableHandler/stateForHibernation()`` has returned.
    public let state: [UInt8]
    /// Why. Empty: the host itself has asked for it.
    public let reasons: ParkingReasons
    /// The name that it had while it was hibernated.
    public let token: ParkingToken
}

/// Hibernates idle channels of SwiftNIO: pipeline, buffers and session go, the socket stays, and a message brings
/// everything back.
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
/// Nothing is lost or overtaken: a channel is hibernated only while nothing it was given to write is left, while what it
/// has read ends with a whole message (see ``StreamFraming``), and while both halves of the connection are open. What
/// arrives at that moment stays in the kernel, wakes the connection, and is the first that the new channel reads. A
/// connection comes back on the event loop on which it was.
///
/// The channel that is hibernated is closed, but for its connection: `closeFuture` succeeds, and handlers are removed. The
/// one that comes back is another one, without a parent, with the options that `rebuild` sets.
public final class Hibernator: Sendable {
    public struct Configuration: Sendable {
        /// How long nothing may be read or written, before a channel is hibernated.
        public var idleTime: TimeAmount
        /// Deals with the pings of hibernated connections; nil: they wake.
        public var profile: ParkingProfile?
        public var framing = StreamFraming.unknown
        /// `ChannelOptions.allowRemoteHalfClosure` of channels that are back.
        public var allowsRemoteHalfClosure = false
        /// Called on its event loop for a connection that could not be brought back and is closed: no channel could be
        /// made, or `rebuild` has thrown. There may be no handler that could tell, so what the host has of it is to be let
        /// go here. If something fails when `rebuild` has returned, the channel is closed, and its handlers hear of that
        /// (`handlerRemoved`).
        public var whenLost: (@Sendable (WokenConnection, any EventLoop) -> Void)?
        /// A hibernated connection is woken within this time at the latest; nil: never.
        public var keepAlive: Duration?
        /// Whether memory that pipelines have left is given back to the kernel (`malloc_trim`; a second after many of them
        /// have gone, five seconds after a few), and large blocks at once (`M_MMAP_THRESHOLD`, 128 KiB). Both are about
        /// the whole process.
        public var givesMemoryBack = true
        public var supervisor = EmbeddedSupervisor.Configuration()

        public init(idleTime: TimeAmount) {
            self.idleTime = idleTime
        }
    }

    /// How often what has happened.
    public struct Counters: Sendable, Equatable {
        public var hibernated = 0
        public var woken = 0
        /// An idle channel could not be hibernated: something was under way, or there was no descriptor.
        public var postponed = 0
        /// Connections that could not be brought back, and are closed; see ``Configuration/whenLost``.
        public var lost = 0
    }

    public typealias Rebuild = @Sendable (any Channel, WokenConnection) throws -> any HibernatableHandler

    let configuration: Configuration
    private let rebuild: Rebuild
    private let supervisor: EmbeddedSupervisor
    private let inner: Inner

    /// What the supervisor's thread needs, and must not keep alive.
    private final class Inner: Sendable {
        /// The event loops that connections came from: a state begins with the number of its own.
        let loops = Mutex<[Home]>([])
        let counters = Mutex(Counters())
        let owner = Mutex(WeakOwner())
        let leftovers = Mutex(Leftovers())
    }

    private struct Home: Sendable {
        let loop: any EventLoop
        let watch: NIOLoopBound<IdleWatch>
    }

    /// What has been hibernated since memory was given back.
    private struct Leftovers: Sendable {
        /// So many are a crowd: they do not wait for long.
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

    /// - Parameter rebuild: makes the pipeline of a connection that is back, on its event loop, before anything is read,
    ///   and returns the handler that will save it the next time. If it throws, the connection is closed; see
    ///   ``Configuration/whenLost``.
    /// - Throws: ``EmbeddedError`` with the code `resources`, or `configuration` for what `supervisor` has in it.
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
    /// Of the supervisor that holds the sockets.
    public var supervision: EmbeddedCounters { supervisor.counters }

    /// Has a channel hibernated when it is idle. Call it on the channel's event loop when the pipeline is complete, after
    /// an upgrade to WebSocket for instance.
    ///
    /// - Parameter decoder: the handler of the pipeline that reads bytes from now on, if some may be on their way to it that
    ///   came together with what was before, such as the request to upgrade. Otherwise it is not known whether they end
    ///   with a whole message.
    ///
    /// An encrypted channel stays one, and its handlers hear of a ``HibernationError`` with the code `tls`. Handlers of
    /// SwiftNIO SSL are known, also if nobody has said anything since their handshake. TLS of another kind that has begun
    /// before is noticed when its next record comes by, which may be too late: do not watch its channels.
    ///
    /// TLS may begin later (STARTTLS), in front of what is here or behind it. The channel stays one from the first
    /// ClientHello on; between the agreement to begin and that, `stateForHibernation` has to return nil.
    ///
    /// - Throws: ``HibernationError`` with the code `notASocket`, and what adding a handler throws.
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

    /// Brings a connection back because the host wants it. False: it is on its way already, or gone.
    @discardableResult
    public func wake(_ token: ParkingToken) -> Bool { wake(token, []) }

    /// Writes whole messages to a hibernated connection without waking it. A connection that does not take all of them
    /// at once is woken, and the rest is the first that is written when it is back.
    ///
    /// - Returns: false if it is hibernated no more, and nothing was written: it is on its way back, or gone. Keep the
    ///   messages for the handler that `rebuild` will make.
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

    /// Ends: all hibernated connections are closed.
    public func close() {
        supervisor.close()
    }

    // MARK: Falling asleep

    func count(_ change: (inout Counters) -> Void) {
        inner.counters.withLock { change(&$0) }
    }

    /// Parks a duplicate of a channel's socket; nil: not now, because something has arrived. It would wake the connection
    /// at once, and on a busy event loop that might go on for ever, without anything being read.
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

    /// Without this the heap would stay as large as it was when most were awake, with holes in it.
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
        // Who has come first has it.
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
        // Not at once, even on its own loop: whoever is hibernating it may not be done yet.
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
