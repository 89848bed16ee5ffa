/// The pings of many sockets: when each is sent, how long its answer may take, and how much noise is
/// absorbed.
///
/// A socket is only a slot here. Its user knows the owners, their states and how to wake them: `Supervision`
/// for sockets of other processes, `Parking` for sockets of its own process.
struct PingScheduler: Sendable, Equatable {
    private var offloads = SideTable<Offload>()
    private var pending = SideTable<Offload.Pending>()
    private var schedule: KeepAliveSchedule
    private var deadlines = DeadlineQueue()
    private var terms = TermsTable()
    private var partialTimeout: Duration
    private var rate: NoiseRate
    /// The totals of removed sockets.
    var gone = OffloadTotals()

    init(_ settings: Settings) {
        partialTimeout = settings.offload.partialTimeout
        rate = NoiseRate(settings.offload)
        schedule = KeepAliveSchedule(lead: settings.keepAlive.lead)
    }

    /// Applies new settings.
    mutating func change(_ settings: Settings) {
        partialTimeout = settings.offload.partialTimeout
        rate = NoiseRate(settings.offload)
        schedule.lead = settings.keepAlive.lead
    }

    func contains(_ slot: UInt32) -> Bool { offloads.contains(slot) }

    /// Accesses the state of a slot in place; `contains(slot)` must be true.
    subscript(slot: UInt32) -> Offload {
        _read { yield offloads[slot] }
        _modify { yield &offloads[slot] }
    }

    /// The number of different terms in the table.
    var differentTerms: Int { terms.count }

    /// The totals of all sockets, including removed ones.
    var totals: OffloadTotals {
        offloads.slots.reduce(into: gone) { $0[offloads[$1].profile] += offloads[$1].counters }
    }

    var nextDeadline: Instant? { earlier(schedule.nextDeadline, deadlines.first?.instant) }

    /// Whether any ping is due.
    func isDue(at now: Instant) -> Bool { schedule.isDue(at: now) }

    /// Whether any ping may be sent by then.
    func hasBegun(by end: Instant) -> Bool { schedule.hasBegun(by: end) }

    // MARK: Sockets come and go

    /// - Parameter profile: its number in `OffloadTotals`.
    mutating func add(_ slot: UInt32, _ profile: UInt8, at now: Instant) {
        offloads.insert(Offload(profile, at: now, rate), at: slot)
    }

    mutating func remove(_ slot: UInt32) {
        schedule.set(slot, to: nil)
        deadlines.set(slot, to: nil)
        setPending(slot, nil)
        if contains(slot) { setTerms(slot, nil) }
        if let removed = offloads.remove(slot) { gone[removed.profile] += removed.counters }
    }

    /// Call when the owner falls asleep. Nothing is sent before `begin`.
    mutating func activate(_ slot: UInt32) {
        offloads[slot].isActive = true
        setTerms(slot, nil)
    }

    /// Starts pings on these terms; nil: none are sent. The time limit of an answer already awaited starts
    /// now.
    mutating func begin(_ slot: UInt32, _ terms: PingTerms?, isAwaitingAnswer: Bool, at now: Instant) {
        setTerms(slot, terms)
        if isAwaitingAnswer || self.isAwaitingAnswer(slot), let within = terms?.answerWithin {
            // The owner delegated the session with a ping under way, or recovery found one. Its send time was
            // not recorded, so the answer gets the full time again.
            setAwaited(slot, .init(until: now + within, repeatAt: nil, pause: .zero, left: 0))
        }
        arrange(slot, at: now)
    }

    /// Call before the owner runs.
    mutating func end(_ slot: UInt32) {
        offloads[slot].isActive = false
        setTerms(slot, nil)
        if pending.contains(slot), pending[slot].partialUntil != nil {
            offloads[slot].hasLeftBeginning = true
        }
        setPending(slot, nil)
        schedule.set(slot, to: nil)
        deadlines.set(slot, to: nil)
    }

    /// Schedules deadlines again that passed without being handled.
    mutating func rearm(_ slot: UInt32) {
        deadlines.set(slot, to: nextDeadline(of: slot))
    }

    // MARK: What arrives

    /// The number of pieces of noise that may be handled now.
    func allowance(_ slot: UInt32, at now: Instant) -> Int {
        offloads[slot].allowance(at: now, rate)
    }

    /// Records and counts the result of inspecting a sleeping client's socket.
    ///
    /// - Returns: the conditions to wake the owner for; nil: call `reschedule`.
    mutating func apply(_ inspection: InspectionResult, _ slot: UInt32, at now: Instant) -> Conditions? {
        count(inspection, slot, at: now)
        switch inspection.rest {
        case .nothing:
            if pending.contains(slot) { setPartial(slot, until: nil) }
            if inspection.noise > 0 { offloads[slot].counters.wakesAvoided += 1 }
        case .partial:
            // A new incomplete message gets its own time limit.
            if inspection.noise > 0 || partialUntil(slot) == nil {
                setPartial(slot, until: now + partialTimeout)
            }
            if inspection.noise > 0 { offloads[slot].counters.wakesAvoided += 1 }
        case .significant(let conditions):
            return conditions
        case .noise:
            return [.readable, .flooded]
        case .unanswerable:
            return [.readable, .unanswerable]
        }
        return nil
    }

    /// Whether a socket waits for an answer or for the rest of a message.
    func isPending(_ slot: UInt32) -> Bool { pending.contains(slot) }

    /// Call after `apply` if the owner is not woken, and if the socket waits for something or did before.
    mutating func reschedule(_ slot: UInt32, at now: Instant) {
        if !isAwaitingAnswer(slot), schedule.contains(slot) {
            deadlines.set(slot, to: nextDeadline(of: slot))
        } else {
            arrange(slot, at: now)
        }
    }

    private mutating func count(_ inspection: InspectionResult, _ slot: UInt32, at now: Instant) {
        offloads[slot].use(inspection.noise, at: now, rate)
        var counters = offloads[slot].counters
        counters.answered += UInt64(inspection.answered)
        counters.confirmed += UInt64(inspection.confirmed)
        counters.absorbed += UInt64(inspection.confirmed + inspection.otherNoise)
        offloads[slot].counters = counters
        if !inspection.isAwaitingAnswer, isAwaitingAnswer(slot) { setAwaited(slot, nil) }
    }

    // MARK: Pings

    /// Takes out a socket with a ping that is due. Its answer is awaited from now on.
    mutating func popPing(at now: Instant, expectsAnswer: Bool = true) -> UInt32? {
        while let slot = schedule.popBegun(at: now) {
            guard contains(slot), offloads[slot].isActive, let terms = terms(of: slot) else { continue }
            offloads[slot].lastPing = now
            offloads[slot].counters.sent += 1
            offloads[slot].counters.wakesAvoided += 1
            if let within = terms.answerWithin, expectsAnswer {
                setAwaited(
                    slot,
                    .init(
                        until: now + within, repeatAt: terms.repetitions > 0 ? now + terms.repeatAfter : nil,
                        pause: terms.repeatAfter, left: terms.repetitions))
            }
            arrange(slot, at: now)
            return slot
        }
        return nil
    }

    /// Call if the ping could not be sent, or if there was none to send.
    mutating func pingFailed(_ slot: UInt32, at now: Instant) {
        var counters = offloads[slot].counters
        counters.sent -= min(1, counters.sent)
        counters.wakesAvoided -= min(1, counters.wakesAvoided)
        offloads[slot].counters = counters
        setAwaited(slot, nil)
        arrange(slot, at: now)
    }

    /// The step that is due for a socket at its deadline.
    enum Due: Sendable, Equatable {
        /// The rest of a message is overdue; the owner must handle it.
        case beginning
        /// The answer is overdue, but may be in the socket and not read yet.
        case answer
        case repetition
    }

    var deadlineCount: Int { deadlines.count }

    mutating func popDeadline(at now: Instant) -> UInt32? { deadlines.popDue(at: now) }

    mutating func reachDeadline(_ slot: UInt32, at now: Instant) -> Due? {
        if let until = partialUntil(slot), now >= until { return .beginning }
        guard var awaited = awaited(slot) else { return nil }
        if now >= awaited.until { return .answer }
        var due: Due?
        if let at = awaited.repeatAt, now >= at {
            awaited.left -= 1
            awaited.pause = awaited.pause * 2
            // After a delay, missed repetitions are not made up for.
            let next = at + awaited.pause
            awaited.repeatAt = awaited.left > 0 ? (next > now ? next : now + awaited.pause) : nil
            setAwaited(slot, awaited)
            due = .repetition
        }
        deadlines.set(slot, to: nextDeadline(of: slot))
        return due
    }

    func isAwaitingAnswer(_ slot: UInt32) -> Bool { pending.contains(slot) && pending[slot].awaited != nil }

    /// Whether an answer is overdue.
    func isUnanswered(_ slot: UInt32, at now: Instant) -> Bool {
        guard let awaited = awaited(slot) else { return false }
        return now >= awaited.until
    }

    /// Notes a ping under way with an unknown send time.
    mutating func noteAwaited(_ slot: UInt32) {
        let never = Instant(nanoseconds: .max)
        setAwaited(slot, .init(until: never, repeatAt: nil, pause: .zero, left: 0))
    }

    /// The window of the next ping. A ping that came due while the owner was awake or an answer was awaited
    /// is sent soon.
    func window(_ slot: UInt32, at now: Instant) -> Window? {
        let offload = offloads[slot]
        guard offload.isActive, !isAwaitingAnswer(slot), let terms = terms(of: slot) else { return nil }
        let soonest = now + .nanoseconds(1)
        return Window(
            earliest: max(offload.lastPing + terms.earliest, soonest),
            latest: max(offload.lastPing + terms.latest, soonest + schedule.lead))
    }

    // MARK: Details

    private mutating func arrange(_ slot: UInt32, at now: Instant) {
        schedule.set(slot, to: window(slot, at: now))
        deadlines.set(slot, to: nextDeadline(of: slot))
    }

    /// A socket's next deadline, apart from its next ping.
    private func nextDeadline(of slot: UInt32) -> Instant? {
        offloads[slot].isActive && pending.contains(slot) ? pending[slot].nextDeadline : nil
    }

    private func terms(of slot: UInt32) -> PingTerms? {
        terms.terms(offloads[slot].terms, of: slot)
    }

    /// Releases the socket's earlier terms first.
    private mutating func setTerms(_ slot: UInt32, _ new: PingTerms?) {
        terms.putBack(offloads[slot].terms, of: slot)
        offloads[slot].terms = new.map { terms.assign($0, for: slot) } ?? TermsTable.none
    }

    private func awaited(_ slot: UInt32) -> Offload.Awaited? {
        pending.contains(slot) ? pending[slot].awaited : nil
    }

    private func partialUntil(_ slot: UInt32) -> Instant? {
        pending.contains(slot) ? pending[slot].partialUntil : nil
    }

    private mutating func setAwaited(_ slot: UInt32, _ awaited: Offload.Awaited?) {
        setPending(slot, .init(awaited: awaited, partialUntil: partialUntil(slot)))
    }

    private mutating func setPartial(_ slot: UInt32, until: Instant?) {
        setPending(slot, .init(awaited: awaited(slot), partialUntil: until))
    }

    private mutating func setPending(_ slot: UInt32, _ new: Offload.Pending?) {
        if let new, new.awaited != nil || new.partialUntil != nil {
            pending.insert(new, at: slot)
        } else if pending.contains(slot) {
            pending.remove(slot, keepsPlaces: true)
        }
    }
}
