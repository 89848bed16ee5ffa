import LinuxSystem
import NightbellCore

/// A supervisor inside its host: it holds the host's idle sockets, deals with their pings, and reports when
/// one of them needs the host.
///
/// A server with ten thousand connections, of which fifty are active, keeps a channel, buffers and a session
/// for each of the others. Instead it can save what it must remember of a connection in a few bytes, discard
/// the rest, and `park` the socket together with these bytes. When the peer sends something, the host is
/// told, claims both, and rebuilds what it had. A parked socket costs fewer than 300 bytes, including its
/// state of 32 bytes and a profile.
///
/// ```swift
/// let supervisor = try EmbeddedSupervisor { events in
///     for event in events { resume(event.token) }  // on the supervisor's own thread
/// }
/// let token = try supervisor.park(socket, profile: .webSocket(isServer: true), state: session.bytes)
///
/// func resume(_ token: ParkingToken) {
///     guard let claimed = try? supervisor.claim(token) else { return }  // it has been claimed elsewhere
///     serve(claimed.descriptor, Session(claimed.state))
/// }
/// ```
///
/// **Ownership.** From `park` to `claim` the socket is the supervisor's: no other code may read, write or
/// close it. A duplicate of it elsewhere does no harm to the supervisor, but traffic may then be gone before
/// the host looks.
///
/// **Each parked socket is reported once**, together with everything that had happened by then. Nothing more
/// is done for it and nothing more is reported until the host claims or releases it, so a slow host is not
/// flooded with events. Only ``ParkingReasons/keepAliveDue`` changes nothing: the socket stays watched, and
/// may be reported later.
///
/// **At the moment of parking** the socket may already have unread bytes, or its end: that is reported at
/// once, possibly before `park` returns. Keep what the host needs to continue a connection in its state, not
/// in a table by token.
///
/// All methods can be called from any thread, even while events are delivered. None waits for the network.
public final class EmbeddedSupervisor: Sendable {
    /// Settings of an embedded supervisor. The defaults are those of `nightbelld`.
    public struct Configuration: Sendable {
        /// The thread that runs the supervisor's loop.
        public enum Service: Sendable, Hashable {
            /// A thread of the supervisor's own, on which events are delivered.
            case ownThread
            /// The host's own loop: libevent's, or any other. It watches ``EmbeddedSupervisor/descriptor``
            /// for reading (level-triggered) and calls ``EmbeddedSupervisor/serve()``, which delivers events.
            case host
        }

        public var service = Service.ownThread
        /// The longest state, in bytes; 0 or more.
        public var stateLimit = 65_536
        /// The most parked sockets; at least 1.
        public var socketLimit = 1_000_000
        /// The width of a keep-alive's window, as a share of its time, from 0 to 1: by default `keepAliveDue`
        /// comes within the last tenth, together with those of other sockets, and never after the end.
        public var keepAliveTolerance = 0.1
        /// The timer is set this long before the end of a window, so that scheduling does not make it late.
        /// Not negative.
        public var lead: Duration = .milliseconds(250)
        /// Size of the per-socket token bucket for absorbed pings, from 1 to 65,535 …
        public var noiseBurst = 32
        /// … and the time in which it regains one; not zero. With the bucket empty the host is told.
        public var noiseInterval: Duration = .seconds(1)
        /// How long the rest of an incomplete ping may take before the host is told. Not zero.
        public var partialTimeout: Duration = .seconds(5)

        public init() {}

        func check() throws(EmbeddedError) {
            func require(_ isInRange: Bool, _ rule: String) throws(EmbeddedError) {
                guard isInRange else { throw EmbeddedError(.configuration, rule) }
            }
            try require((0...Int(UInt32.max)).contains(stateLimit), "stateLimit: 0 to 4,294,967,295")
            try require(socketLimit > 0, "socketLimit: from 1")
            // NaN is in no range.
            try require((0...1).contains(keepAliveTolerance), "keepAliveTolerance: 0 to 1")
            try require(lead >= .zero, "lead: not negative")
            try require((1...Int(UInt16.max)).contains(noiseBurst), "noiseBurst: 1 to 65,535")
            try require(noiseInterval > .zero, "noiseInterval: longer than zero")
            try require(partialTimeout > .zero, "partialTimeout: longer than zero")
        }

        var settings: Settings {
            var settings = Settings()
            settings.keepAlive.tolerance = keepAliveTolerance
            settings.keepAlive.lead = lead
            settings.offload.noiseBurst = noiseBurst
            settings.offload.noiseInterval = noiseInterval
            settings.offload.partialTimeout = partialTimeout
            return settings
        }
    }

    /// All events, in order, for one consumer, if no `onEvents` was given. The stream ends with `close`.
    ///
    /// Events are queued until they are read, including those of sockets that have been claimed since: at
    /// most two for each time that a socket was parked. A host that claims without an event and parks again
    /// must still read them.
    public let events: AsyncStream<ParkedEvent>
    private let loop: ParkingLoop

    /// - Parameter onEvents: called with everything that one turn of the loop has found, on the supervisor's
    ///   thread, or by `serve()`. Slow work in it delays other events. nil: read ``events``.
    /// - Throws: ``EmbeddedError``: `resources`, or `configuration` if that is out of range.
    public init(
        _ configuration: Configuration = Configuration(),
        onEvents: (@Sendable (_ events: [ParkedEvent]) -> Void)? = nil
    ) throws(EmbeddedError) {
        try configuration.check()
        let (events, continuation) = AsyncStream.makeStream(of: ParkedEvent.self)
        self.events = events
        loop = try ParkingLoop(
            configuration,
            deliver: onEvents ?? { events in for event in events { continuation.yield(event) } },
            onClosed: { continuation.finish() })
        if configuration.service == .ownThread { try loop.startThread() }
    }

    deinit { loop.close() }

    // MARK: Parking

    /// Parks a socket, or any other descriptor that can be watched.
    ///
    /// It does not have to be non-blocking, and none of its options is changed, except those that the profile
    /// `tcp` sets.
    ///
    /// - Parameters:
    ///   - socket: an open descriptor. It is the supervisor's once this returns; if it throws, it is still
    ///     the caller's.
    ///   - profile: the traffic that need not be reported, and the pings that are sent meanwhile. Without
    ///     one, any traffic is reported.
    ///   - idleTag: the tag of the command IDLE, to which the server has answered `+`; for the profile
    ///     `imap`, which renews it. ``ClaimedSocket/idle`` is the one that is under way later. nil: IDLE is
    ///     not renewed.
    ///   - keepAlive: `keepAliveDue` is reported within this time, once, for a session that the host itself
    ///     has to refresh. nil: never.
    ///   - state: bytes that `claim` returns.
    /// - Throws: ``EmbeddedError``: `notWatchable`, `alreadyParked`, `profile`, `stateTooLarge`,
    ///   `tooManySockets`, `closed`.
    public func park(
        _ socket: Int32, profile: ParkingProfile? = nil, idleTag: String? = nil, keepAlive: Duration? = nil,
        state: [UInt8] = []
    ) throws(EmbeddedError) -> ParkingToken {
        ParkingToken(try loop.park(socket, profile, idleTag, keepAlive, state))
    }

    /// Takes a socket back, whether there was an event or not. Only whole pings have been read from it; any
    /// event about it that is still on its way is void.
    ///
    /// - Throws: ``EmbeddedError``: `unknownToken`, if it has been claimed or released, or the supervisor was
    ///   closed; `broken`, if other code has closed the socket.
    public func claim(_ token: ParkingToken) throws(EmbeddedError) -> ClaimedSocket {
        try loop.claim(token.socket)
    }

    /// Closes a parked socket and forgets its state.
    ///
    /// - Throws: ``EmbeddedError``: `unknownToken`, `broken`.
    public func release(_ token: ParkingToken) throws(EmbeddedError) {
        try loop.release(token.socket)
    }

    /// Writes to a parked socket without claiming it, as far as the kernel takes it at once.
    ///
    /// - Parameter bytes: whole messages.
    /// - Returns: how many of the bytes were written. If only some were, claim the socket, and write the rest
    ///   before anything else: the peer has the beginning. Until then nothing more is done for the socket, no
    ///   event is reported, and later calls write nothing: 0. Where another thread may claim it first, use
    ///   ``sendOrClaim(_:to:)``.
    /// - Throws: ``EmbeddedError``: `unknownToken`.
    public func send(_ bytes: [UInt8], to token: ParkingToken) throws(EmbeddedError) -> Int {
        try loop.send(bytes, to: token.socket)
    }

    /// Writes to a parked socket, and claims it in the same step if the kernel does not take everything at
    /// once: no other thread can write between the beginning of a message and its rest.
    ///
    /// - Parameter bytes: whole messages.
    /// - Returns: nil if all was written, and the socket is still parked. Otherwise the socket, which is the
    ///   host's again, and the bytes to be written before anything else. If ``send(_:to:)`` has left the rest
    ///   of a message, nothing is written into the middle of that: all bytes come back, and the socket is
    ///   ``ClaimedSocket/isInsideMessage``. Hosts that use only `sendOrClaim` never see that.
    /// - Throws: ``EmbeddedError``: `unknownToken`, `broken`. Nothing was written then.
    public func sendOrClaim(
        _ bytes: [UInt8], to token: ParkingToken
    ) throws(EmbeddedError) -> UnsentRest? {
        try loop.sendOrClaim(bytes, to: token.socket)
    }

    public var counters: EmbeddedCounters { loop.counters }

    // MARK: In the host's loop

    /// Readable while there is work to do. For hosts that run the supervisor in a loop of their own; they may
    /// watch it, but not read or close it.
    public var descriptor: Int32 { loop.descriptor }

    /// Does the pending work, and delivers events; returns at once. Call it on one thread at a time.
    public func serve() {
        _ = loop.serve(waits: false)
    }

    // MARK: The end

    /// Claims every parked socket at once, for a host that continues without parking. It can park again.
    /// Sockets that other code has closed are left out.
    public func claimAll() -> [ClaimedSocket] { loop.claimAll() }

    /// Ends the supervisor: closes all sockets that are still parked, and ends ``events``. An event that is
    /// being delivered on another thread may still be under way when this returns. Later calls throw.
    public func close() { loop.close() }
}
