/// The core of a supervisor that is part of its host: sockets of one process that are parked one by one, each told
/// about once. Nobody is suspended or launched; what pings and windows mean is what it means for clients.
///
/// It is deterministic and copyable, like `Supervision`: what happens comes in with the time, what is to be done goes
/// into `actions`, and descriptors are none of its business.
public struct Parking: Sendable, Equatable {
    /// What the edge is asked to do, in this order.
    public enum Action: Sendable, Equatable {
        /// Tell the host.
        case tell(SocketToken, ParkingReasons)
        /// Watch the socket again, whose one report said nothing.
        case watch(SocketToken)
        /// Watch the socket no more. Those without a profile are not, once they were reported.
        case ignore(SocketToken)
        /// Send a ping, or the last one once more. Only failure is told.
        case ping(SocketToken, again: Bool)
        /// The answer to a ping is due: look whether it is there, tell of it, and then that it was looked for.
        case lookForAnswer(SocketToken)
    }

    private struct Place: Sendable, Equatable {
        enum Stage: Sendable {
            case watched
            /// The host knows of what has happened, and has not claimed the socket yet.
            case told
            /// The peer has the beginning of a message of the host's, and the host has not claimed the socket yet.
            case held
        }

        var hasProfile: Bool
        var stage = Stage.watched

        var isWatched: Bool { stage == .watched }
    }

    public private(set) var counters = ParkingCounters()
    private let settings: Settings
    private var places = SlotMap<Place>()
    private var pings: PingBook
    private var schedule: KeepAliveSchedule
    private var hasToldInTurn = false

    /// Pings of one turn: while they are sent, nobody is told of anything.
    private static let pingsPerTurn = 32

    /// Of the settings, those of keep-alives and of pings count.
    public init(settings: Settings) {
        self.settings = settings
        pings = PingBook(settings)
        schedule = KeepAliveSchedule(lead: settings.keepAlive.lead)
    }

    /// When `endTurn` must be called at the latest.
    public var nextDeadline: Instant? { earlier(schedule.nextDeadline, pings.nextDeadline) }

    public var count: Int { places.count }

    /// What was done for all sockets with a profile, also for those that are gone.
    public var pingCounters: OffloadCounters { pings.counters }

    public func contains(_ token: SocketToken) -> Bool { places.contains(token.id) }

    /// The socket in a place of the edge's tables.
    public func token(inSlot slot: UInt32) -> SocketToken? { places.id(inSlot: slot).map { SocketToken($0) } }

    /// All sockets, by slot.
    public var tokens: [SocketToken] { places.ids.map { SocketToken($0) } }

    // MARK: Coming and going

    /// - Parameters:
    ///   - pinging: on what terms pings are sent, of a socket with a profile.
    ///   - keepAlive: how long the host wants to wait at most before it is told `keepAliveDue`.
    public mutating func park(
        hasProfile: Bool, pinging: PingTerms?, keepAlive: Duration?, at now: Instant
    ) -> SocketToken {
        let token = SocketToken(places.insert(Place(hasProfile: hasProfile)))
        if hasProfile {
            pings.add(token.slot, at: now)
            pings.activate(token.slot)
            pings.begin(token.slot, pinging, isAwaitingAnswer: false, at: now)
        }
        if let keepAlive {
            let own = Client.KeepAlive(timeout: keepAlive, base: now)
            schedule.set(token.slot, to: own.window(backgroundSince: now, settings.keepAlive))
        }
        counters.parked += 1
        return token
    }

    /// Why a socket is parked no more.
    public enum Departure: Sendable, Hashable, CaseIterable {
        /// The host has taken it back.
        case claimed
        /// It was closed.
        case released
        /// It could not be watched.
        case withdrawn
    }

    /// - Returns: whether it was there.
    public mutating func remove(_ token: SocketToken, _ departure: Departure) -> Bool {
        guard let place = places.remove(token.id) else { return false }
        if place.hasProfile { pings.remove(token.slot) }
        schedule.set(token.slot, to: nil)
        switch departure {
        case .claimed: counters.claimed += 1
        case .released: counters.released += 1
        case .withdrawn: counters.parked -= 1
        }
        return true
    }

    // MARK: What happens

    /// The kernel has reported a socket without a profile, and does not again.
    public mutating func fired(_ token: SocketToken, _ conditions: Conditions, into actions: inout [Action]) {
        guard contains(token), places[token.id].isWatched else { return }
        // Somebody else who shares the socket took what there was.
        guard !conditions.isEmpty else { return actions.append(.watch(token)) }
        tell(token, ParkingReasons(conditions), into: &actions)
    }

    /// Whether what arrives on a socket is to be judged with its profile.
    public func isJudging(_ token: SocketToken) -> Bool {
        contains(token) && places[token.id].hasProfile && places[token.id].isWatched
    }

    /// How many pieces of noise may be dealt with at this moment.
    public func noiseAllowance(_ token: SocketToken, at now: Instant) -> Int {
        isJudging(token) ? pings.allowance(token.slot, at: now) : 0
    }

    /// What there was in a socket has been looked at with its profile.
    public mutating func judged(
        _ token: SocketToken, _ judgement: Judgement, at now: Instant, into actions: inout [Action]
    ) {
        guard isJudging(token) else { return }
        if let found = pings.take(judgement, token.slot, at: now) {
            return tell(token, ParkingReasons(found), into: &actions)
        }
        pings.settle(token.slot, at: now)
    }

    /// The host is in the middle of saying something, and has to claim the socket to end it: until then it is told of nothing
    /// more, and nothing is done for the socket.
    public mutating func hold(_ token: SocketToken, into actions: inout [Action]) {
        guard contains(token) else { return }
        if places[token.id].isWatched {
            actions.append(.ignore(token))
            if places[token.id].hasProfile { pings.end(token.slot) }
        }
        places[token.id].stage = .held
        schedule.set(token.slot, to: nil)
    }

    /// Whether the host is in the middle of saying something.
    public func isHeld(_ token: SocketToken) -> Bool {
        contains(token) && places[token.id].stage == .held
    }

    /// A ping could not be sent: the peer takes nothing.
    public mutating func pingFailed(_ token: SocketToken, at now: Instant, into actions: inout [Action]) {
        guard isJudging(token) else { return }
        pings.pingFailed(token.slot, at: now)
        tell(token, .unanswerable, into: &actions)
    }

    /// There was no ping to be sent.
    public mutating func pingOmitted(_ token: SocketToken, at now: Instant) {
        if isJudging(token) { pings.pingFailed(token.slot, at: now) }
    }

    /// The edge has looked for an answer that is due; if there was one, it has told of it before.
    public mutating func answerLookedFor(
        _ token: SocketToken, at now: Instant, into actions: inout [Action]
    ) {
        guard isJudging(token), pings.isUnanswered(token.slot, at: now) else { return }
        tell(token, .pongMissing, into: &actions)
    }

    /// Ends a turn: does what is due, and tells of every keep-alive that is inside its window if anybody is told of
    /// anything.
    public mutating func endTurn(at now: Instant, into actions: inout [Action]) {
        for _ in 0..<pings.deadlineCount {
            guard let slot = pings.popDeadline(at: now) else { break }
            guard let token = token(inSlot: slot), isJudging(token) else { continue }
            switch pings.reachDeadline(slot, at: now) {
            case .beginning: tell(token, .readable, into: &actions)
            case .answer: actions.append(.lookForAnswer(token))
            case .repetition: actions.append(.ping(token, again: true))
            case nil: break
            }
        }
        let isDue = hasToldInTurn || schedule.isDue(at: now) || pings.isDue(at: now)
        hasToldInTurn = false
        guard isDue else { return }
        while let slot = schedule.popBegun(at: now) {
            guard let token = token(inSlot: slot) else { continue }
            counters.keepAlivesDue += 1
            actions.append(.tell(token, .keepAliveDue))
        }
        for _ in 0..<Self.pingsPerTurn {
            guard let slot = pings.popPing(at: now) else { return }
            if let token = token(inSlot: slot) { actions.append(.ping(token, again: false)) }
        }
    }

    /// Tells once: nothing more is done for this socket until the host claims it.
    private mutating func tell(
        _ token: SocketToken, _ reasons: ParkingReasons, into actions: inout [Action]
    ) {
        places[token.id].stage = .told
        if places[token.id].hasProfile {
            pings.end(token.slot)
            actions.append(.ignore(token))
        }
        hasToldInTurn = true
        counters.told += 1
        if reasons.contains(.pongMissing) { counters.pongsMissing += 1 }
        actions.append(.tell(token, reasons))
    }
}
