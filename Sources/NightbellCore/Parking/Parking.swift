/// The core of a supervisor inside its host process: it parks single sockets of the process and reports each
/// one once. It suspends and launches nothing; pings and windows work as they do for clients.
///
/// It is deterministic and copyable, like `Supervision`: events come in with the time, actions are appended
/// to `actions`, and descriptors stay outside.
package struct Parking: Sendable, Equatable {
    /// An action for the edge, to be carried out in order.
    package enum Action: Sendable, Equatable {
        /// Notify the host.
        case notify(SocketToken, ParkingReasons)
        /// Watch the socket again: its one report was empty.
        case watch(SocketToken)
        /// Stop watching the socket. A socket without a profile is not watched after its report anyway.
        case ignore(SocketToken)
        /// Send a ping, or repeat the last one. Only failure is reported.
        case ping(SocketToken, again: Bool)
        /// The answer to a ping is due: look for it, report it if it is there, and then report
        /// `answerLookedFor`.
        case lookForAnswer(SocketToken)
    }

    private struct Place: Sendable, Equatable {
        enum Stage: Sendable {
            case watched
            /// The host was notified and has not claimed the socket yet.
            case told
            /// The host has sent part of a message and has not claimed the socket yet.
            case held
        }

        var hasProfile: Bool
        var stage = Stage.watched

        var isWatched: Bool { stage == .watched }
    }

    package private(set) var counters = ParkingCounters()
    private let settings: Settings
    private var places = SlotMap<Place>()
    private var pings: PingScheduler
    private var schedule: KeepAliveSchedule
    private var hasToldInTurn = false
    /// When pings inside their window are sent that are not due yet: soon after the last notification. With
    /// the notification, its host would wait for them.
    private var joinsPingsAt: Instant?

    /// The maximum of pings in one turn: while they are sent, no notification is delivered.
    private static let pingsPerTurn = 32
    private static let joiningPause: Duration = .milliseconds(2)

    /// Only the settings of keep-alives and pings are used.
    package init(settings: Settings) {
        self.settings = settings
        pings = PingScheduler(settings)
        schedule = KeepAliveSchedule(lead: settings.keepAlive.lead)
    }

    /// When `endTurn` must be called at the latest.
    package var nextDeadline: Instant? {
        earlier(earlier(schedule.nextDeadline, pings.nextDeadline), joinsPingsAt)
    }

    package var count: Int { places.count }

    /// Totals of all sockets with a profile, removed ones included.
    package var pingCounters: OffloadCounters { pings.totals.sum }

    package func contains(_ token: SocketToken) -> Bool { places.contains(token.id) }

    /// The socket in a slot of the edge's tables.
    package func token(inSlot slot: UInt32) -> SocketToken? {
        places.id(inSlot: slot).map { SocketToken($0) }
    }

    /// All sockets, by slot.
    package var tokens: [SocketToken] { places.ids.map { SocketToken($0) } }

    // MARK: Coming and going

    /// - Parameters:
    ///   - pinging: the terms of the pings of a socket with a profile.
    ///   - keepAlive: how long the host wants to wait at most before it is told `keepAliveDue`.
    package mutating func park(
        hasProfile: Bool, pinging: PingTerms?, keepAlive: Duration?, at now: Instant
    ) -> SocketToken {
        let token = SocketToken(places.insert(Place(hasProfile: hasProfile)))
        if hasProfile {
            pings.add(token.slot, 0, at: now)
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

    /// Why a socket is no longer parked.
    package enum Departure: Sendable, Hashable, CaseIterable {
        /// The host has taken it back.
        case claimed
        /// It was closed.
        case released
        /// It could not be watched.
        case withdrawn
    }

    /// - Returns: whether it was there.
    package mutating func remove(_ token: SocketToken, _ departure: Departure) -> Bool {
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

    /// The kernel has reported a socket without a profile. It reports it once only.
    package mutating func fired(_ token: SocketToken, _ conditions: Conditions, into actions: inout [Action])
    {
        guard contains(token), places[token.id].isWatched else { return }
        // Another process that shares the socket has read the data.
        guard !conditions.isEmpty else { return actions.append(.watch(token)) }
        notify(token, ParkingReasons(conditions), into: &actions)
    }

    /// Whether incoming data of a socket is to be inspected with its profile.
    package func isInspecting(_ token: SocketToken) -> Bool {
        contains(token) && places[token.id].hasProfile && places[token.id].isWatched
    }

    /// How many pieces of noise may be absorbed now.
    package func noiseAllowance(_ token: SocketToken, at now: Instant) -> Int {
        isInspecting(token) ? pings.allowance(token.slot, at: now) : 0
    }

    /// The incoming data of a socket was inspected with its profile.
    package mutating func inspected(
        _ token: SocketToken, _ inspection: InspectionResult, at now: Instant, into actions: inout [Action]
    ) {
        guard isInspecting(token) else { return }
        if let found = pings.apply(inspection, token.slot, at: now) {
            return notify(token, ParkingReasons(found), into: &actions)
        }
        pings.reschedule(token.slot, at: now)
    }

    /// The host has sent part of a message, and has to claim the socket to send the rest: until then it gets
    /// no further notification, and nothing is done for the socket.
    package mutating func hold(_ token: SocketToken, into actions: inout [Action]) {
        guard contains(token) else { return }
        if places[token.id].isWatched {
            actions.append(.ignore(token))
            if places[token.id].hasProfile { pings.end(token.slot) }
        }
        places[token.id].stage = .held
        schedule.set(token.slot, to: nil)
    }

    /// Whether the host has sent only part of a message.
    package func isHeld(_ token: SocketToken) -> Bool {
        contains(token) && places[token.id].stage == .held
    }

    /// A ping could not be sent: the peer accepts no data.
    package mutating func pingFailed(_ token: SocketToken, at now: Instant, into actions: inout [Action]) {
        guard isInspecting(token) else { return }
        pings.pingFailed(token.slot, at: now)
        notify(token, .unanswerable, into: &actions)
    }

    /// No ping was available to be sent.
    package mutating func pingOmitted(_ token: SocketToken, at now: Instant) {
        if isInspecting(token) { pings.pingFailed(token.slot, at: now) }
    }

    /// The edge has looked for an answer that is due; if there was one, it was reported before.
    package mutating func answerLookedFor(
        _ token: SocketToken, at now: Instant, into actions: inout [Action]
    ) {
        guard isInspecting(token), pings.isUnanswered(token.slot, at: now) else { return }
        notify(token, .pongMissing, into: &actions)
    }

    /// Ends a turn: handles what is due, and reports every keep-alive inside its window if any notification
    /// is delivered. Pings inside their window follow a moment later.
    package mutating func endTurn(at now: Instant, into actions: inout [Action]) {
        for _ in 0..<pings.deadlineCount {
            guard let slot = pings.popDeadline(at: now) else { break }
            guard let token = token(inSlot: slot), isInspecting(token) else { continue }
            switch pings.reachDeadline(slot, at: now) {
            case .beginning: notify(token, .readable, into: &actions)
            case .answer: actions.append(.lookForAnswer(token))
            case .repetition: actions.append(.ping(token, again: true))
            case nil: break
            }
        }
        if hasToldInTurn {
            let pause = now + Self.joiningPause
            joinsPingsAt = pings.hasBegun(by: pause) ? pause : nil
        }
        let sendsPings = pings.isDue(at: now) || joinsPingsAt.map { $0 <= now } ?? false
        let isDue = hasToldInTurn || sendsPings || schedule.isDue(at: now)
        hasToldInTurn = false
        guard isDue else { return }
        while let slot = schedule.popBegun(at: now) {
            guard let token = token(inSlot: slot) else { continue }
            counters.keepAlivesDue += 1
            actions.append(.notify(token, .keepAliveDue))
        }
        guard sendsPings else { return }
        joinsPingsAt = nil
        for _ in 0..<Self.pingsPerTurn {
            guard let slot = pings.popPing(at: now) else { return }
            if let token = token(inSlot: slot) { actions.append(.ping(token, again: false)) }
        }
    }

    /// Notifies the host once: nothing more is done for this socket until the host claims it.
    private mutating func notify(
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
        actions.append(.notify(token, reasons))
    }
}
