import Descriptors
import NightbellCore

/// A supervisor inside its host: it holds the host's idle sockets, deals with their pings, and says when one of them
/// has something for the host.
///
/// A server with ten thousand connections of which fifty talk keeps, for each of the others, a channel, buffers and a
/// session. Instead it can save what it must remember of a connection in a few bytes, throw the rest away, and `park`
/// the socket together with these bytes. When the peer says something, the host is told, claims both, and builds up
/// again what it had. A parked socket costs fewer than 300 bytes, its state of 32 bytes and a profile included.
///
/// ```swift
/// let supervisor = try EmbeddedSupervisor { events in
///     for event in events { goOn(event.token) }  // on the supervisor's own thread
/// }
/// let token = try supervisor.park(socket, profile: .webSocket(isServer: true), state: session.bytes)
///
/// func goOn(_ token: ParkingToken) {
///     guard let claimed = try? supervisor.claim(token) else { return }  // it has been claimed elsewhere
///     serve(claimed.descriptor, Session(claimed.state))
/// }
/// ```
///
/// **Who owns the socket.** From `park` to `claim` it is the supervisor's: nobody else may read, write or close it.
/// With a duplicate of it elsewhere all of this works, but traffic may then be gone before the host looks.
///
/// **Each parked socket is told about once**, together with everything that had happened by then. Nothing more is done
/// for it after that, and nothing is said again, until the host claims or releases it: who is slow is not spun at. Only
/// ``ParkingReasons/keepAliveDue`` changes nothing: the socket is watched on, and may be told about later.
///
/// **At the moment of parking** there may be bytes in the socket already, or its end: that is told at once, maybe before
/// `park` returns. What a host needs to go on with a connection belongs into its state, not into a table by token.
///
/// All methods can be called from any thread, also while events are delivered. None waits for the network.
public final class EmbeddedSupervisor: Sendable {
    /// How an embedded supervisor works. The defaults are those of `nightbelld`.
    public struct Configuration: Sendable {
        /// Who runs the supervisor's loop.
        public enum Service: Sendable, Hashable {
            /// A thread of the supervisor's own, on which events are delivered.
            case ownThread
            /// The host, in whatever loop it has: libevent's, or any other. It watches
            /// ``EmbeddedSupervisor/descriptor`` for reading (level-triggered) and calls
            /// ``EmbeddedSupervisor/serve()``, which delivers events.
            case host
        }

        public var service = Service.ownThread
        /// The longest state, in bytes: from 0.
        public var stateLimit = 65_536
        /// From 1.
        public var socketLimit = 1_000_000
        /// The width of a keep-alive's window, as a share of its time, from 0 to 1: `keepAliveDue` comes within the last
        /// tenth, with those of others, and never after the end.
        public var keepAliveTolerance = 0.1
        /// The timer aims this long before the end of a window, so that scheduling does not make it late. Not negative.
        public var lead: Duration = .milliseconds(250)
        /// So many pings of a peer in a row, from 1 to 65,535, are dealt with …
        public var noiseBurst = 32
        /// … and more only if there is at least this time between them, which is not zero; else the host is told.
        public var noiseInterval: Duration = .seconds(1)
        /// How long the rest of what begins like a ping may take, before the host is told. Not zero.
        public var partialTimeout: Duration = .seconds(5)

        public init() {}

        func check() throws(EmbeddedError) {
            func require(_ isInRange: Bool, _ rule: String) throws(EmbeddedError) {
                guard isInRange else { throw EmbeddedError(.configuration, rule) }
            }
            try require((0...Int(UInt32.max)).contains(stateLimit), "stateLimit: 0 to 4,294,967,295")
            try require(socketLimit > 0, "socketLimit: from 1")
            // What is not a number is in no range.
            try require((0...1).contains(keepAliveTolerance), "keepAliveTolerance: 0 to 1")
            try require(lead >= .zero, "lead: not negative")
            try require((1...Int(UInt16.max)).contains(noiseBurst), "noiseBurst: 1 to 65,535")
            try require(noiseInterval > .zero, "noiseInterval: longer than nothing")
            try require(partialTimeout > .zero, "partialTimeout: longer than nothing")
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

    /// What happens, one after the other, for one consumer, if no `onEvents` was given. It ends with `close`.
    ///
    /// Events wait here until they are read, those of sockets that have been claimed since, too: at most two for each time
    /// that a socket was parked. A host that claims without an event and parks again must read all the same.
    public let events: AsyncStream<ParkedEvent>
    private let loop: ParkingLoop

    /// - Parameter onEvents: called with everything that one turn of the loop has found, on the supervisor's thread, or
    ///   by `serve()`. What takes long there delays the events of others. nil: read ``events``.
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

    /// Closes.
    deinit { loop.close() }

    // MARK: Parking

    /// Parks a socket, or anything else that can be watched.
    ///
    /// It does not have to be non-blocking, and none of its options is changed, but for those that the profile `tcp` is
    /// about.
    ///
    /// - Parameters:
    ///   - socket: an open descriptor. It is the supervisor's once this returns; if it throws, it is still the caller's.
    ///   - profile: what need not be told, and what is sent meanwhile. Without one, any traffic is told.
    ///   - keepAlive: `keepAliveDue` is told within this time, once: for a session that is to be refreshed by the host
    ///     itself. nil: never.
    ///   - state: what comes back with `claim`.
    /// - Throws: ``EmbeddedError``: `notWatchable`, `alreadyParked`, `profile`, `stateTooLarge`, `tooManySockets`,
    ///   `closed`.
    public func park(
        _ socket: Int32, profile: ParkingProfile? = nil, keepAlive: Duration? = nil, state: [UInt8] = []
    ) throws(EmbeddedError) -> ParkingToken {
        ParkingToken(try loop.park(socket, profile, keepAlive, state))
    }

    /// Takes a socket back, whether there was an event or not. Nothing has been taken from it but whole pings; any
    /// event about it that is still on its way means nothing any more.
    ///
    /// - Throws: ``EmbeddedError``: `unknownToken`, if it has been claimed or released, or the supervisor was closed; `broken`, if
    ///   somebody else has closed the socket.
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
    /// - Returns: how many of the bytes were taken. If only some were, claim the socket, and write the rest before
    ///   anything else: the peer has the beginning. Until then nothing more is done for the socket, the host is told of
    ///   nothing, and whatever else is sent to it is not begun: 0. Where another thread may claim it first, use
    ///   ``sendOrClaim(_:to:)``.
    /// - Throws: ``EmbeddedError``: `unknownToken`.
    public func send(_ bytes: [UInt8], to token: ParkingToken) throws(EmbeddedError) -> Int {
        try loop.send(bytes, to: token.socket)
    }

    /// Writes to a parked socket, and claims it in the same step if the kernel does not take everything at once: of two
    /// threads, none gets in between the beginning of a message and its rest.
    ///
    /// - Parameter bytes: whole messages.
    /// - Returns: nil if all was taken, and the socket is still parked. Otherwise the socket, which is the host's again,
    ///   and what is to be written before anything else. If ``send(_:to:)`` has left the rest of a message, nothing is
    ///   written into the middle of that: all bytes come back, and the socket is ``ClaimedSocket/isInsideMessage``. Hosts
    ///   that use nothing but `sendOrClaim` never see that.
    /// - Throws: ``EmbeddedError``: `unknownToken`, `broken`. Nothing was written then.
    public func sendOrClaim(
        _ bytes: [UInt8], to token: ParkingToken
    ) throws(EmbeddedError) -> UnsentRest? {
        try loop.sendOrClaim(bytes, to: token.socket)
    }

    public var counters: EmbeddedCounters { loop.counters }

    // MARK: In the host's loop

    /// Readable while there is something to do. For hosts that run the supervisor in a loop of their own; theirs to
    /// watch, not to read or close.
    public var descriptor: Int32 { loop.descriptor }

    /// Does what there is to do, and delivers events; returns at once. On one thread at a time.
    public func serve() {
        _ = loop.serve(waits: false)
    }

    // MARK: The end

    /// Hands back every parked socket at once, for a host that wants to go on without a supervisor. It can park again.
    /// Those that somebody else has closed are left out.
    public func claimAll() -> [ClaimedSocket] { loop.claimAll() }

    /// Ends the supervisor: closes all sockets that are still parked, and ends ``events``. An event that is being
    /// delivered on another thread may still be under way when this returns. Everything that is called later throws.
    public func close() { loop.close() }
}
