/// The pings of many sockets: when each is sent, how long its answer may take, and how much noise is put up with.
///
/// Sockets are slots here. Whose they are, who sleeps, and what it means to be woken is for those to know who keep such
/// a book: `Supervision` for the sockets of other processes, `Parking` for those of its own.
struct PingBook: Sendable, Equatable {
    private var offloads = SideTable<Offload>()
    /// By slot; only ever looked up, so that its order does not show.
    private var pending: [UInt32: Offload.Pending] = [:]
    private var schedule: KeepAliveSchedule
    private var deadlines = DeadlineQueue()
    private var terms = TermsTable()
    private var settings: Settings
    /// What was counted for sockets that are gone.
    private var goneCounters = OffloadCounters()

    init(_ settings: Settings) {
        self.settings = settings
        schedule = KeepAliveSchedule(lead: settings.keepAlive.lead)
    }

    /// As for the whole core.
    mutating func change(_ settings: Settings) {
        self.settings = settings
        schedule.lead = settings.keepAlive.lead
    }

    func contains(_ slot: UInt32) -> Bool { offloads.contains(slot) }

    /// What is known of a slot that `contains` knows, in place.
    subscript(slot: UInt32) -> Offload {
        _read { yield offloads[slot] }
        _modify { yield &offloads[slot] }
    }

    /// How many different terms have a number of the table's.
    var differentTerms: Int { terms.count }

    /// What was done for all sockets, also for those that are gone.
    var counters: OffloadCounters {
        offloads.slots.reduce(into: goneCounters) { $0 += offloads[$1].counters }
    }

    var nextDeadline: Instant? { earlier(schedule.nextDeadline, deadlines.first?.instant) }

    /// Whether it is time for somebody's ping.
    func isDue(at now: Instant) -> Bool { schedule.isDue(at: now) }

    // MARK: Sockets come and go

    mutating func add(_ slot: UInt32, at now: Instant) {
        offloads.insert(Offload(at: now, settings.offload), at: slot)
    }

    mutating func remove(_ slot: UInt32) {
        schedule.set(slot, to: nil)
        deadlines.set(slot, to: nil)
        setPending(slot, nil)
        if contains(slot) { setTerms(slot, nil) }
        if let removed = offloads.remove(slot) { goneCounters += removed.counters }
    }

    /// Its owner sleeps. Nothing is sent before `begin`.
    mutating func activate(_ slot: UInt32) {
        offloads[slot].isActive = true
        setTerms(slot, nil)
    }

    /// From now on pings are sent on these terms; none: none are. An answer that is awaited already has its time from now
    /// on.
    mutating func begin(_ slot: UInt32, _ terms: PingTerms?, isAwaitingAnswer: Bool, at now: Instant) {
        setTerms(slot, terms)
        if isAwaitingAnswer || self.isAwaitingAnswer(slot), let within = terms?.answerWithin {
            // Either the owner lent it so, or it was taken over with a ping under way, whose time nobody has written
            // down: it has as much again.
            setAwaited(slot, .init(until: now + within, repeatAt: nil, pause: .zero, left: 0))
        }
        arrange(slot, at: now)
    }

    /// Its owner is about to run.
    mutating func end(_ slot: UInt32) {
        offloads[slot].isActive = false
        setTerms(slot, nil)
        if pending[slot]?.partialUntil != nil { offloads[slot].hasLeftBeginning = true }
        setPending(slot, nil)
        schedule.set(slot, to: nil)
        deadlines.set(slot, to: nil)
    }

    /// What came due while nobody looked comes due now.
    mutating func goOn(_ slot: UInt32) {
        deadlines.set(slot, to: nextDeadline(of: slot))
    }

    // MARK: What arrives

    /// How many pieces of noise may be dealt with at this moment.
    func allowance(_ slot: UInt32, at now: Instant) -> Int {
        offloads[slot].allowance(at: now, settings.offload)
    }

    /// Takes in what was found in the socket of a sleeper, and counts it.
    ///
    /// - Returns: what its owner has to be woken for; nothing: call `settle`.
    mutating func take(_ judgement: Judgement, _ slot: UInt32, at now: Instant) -> Conditions? {
        count(judgement, slot, at: now)
        switch judgement.rest {
        case .nothing:
            setPartial(slot, until: nil)
            if judgement.noise > 0 { offloads[slot].counters.wakesAvoided += 1 }
        case .partial:
            // A new beginning has its own time.
            if judgement.noise > 0 || pending[slot]?.partialUntil == nil {
                setPartial(slot, until: now + settings.offload.partialTimeout)
            }
            if judgement.noise > 0 { offloads[slot].counters.wakesAvoided += 1 }
        case .significant(let conditions):
            return conditions
        case .noise:
            return [.readable, .flooded]
        case .unanswerable:
            return [.readable, .unanswerable]
        }
        return nil
    }

    /// After `take`, if nobody is woken.
    mutating func settle(_ slot: UInt32, at now: Instant) {
        if pending[slot]?.awaited == nil, schedule.contains(slot) {
            deadlines.set(slot, to: nextDeadline(of: slot))
        } else {
            arrange(slot, at: now)
        }
    }

    private mutating func count(_ judgement: Judgement, _ slot: UInt32, at now: Instant) {
        offloads[slot].use(judgement.noise, at: now, settings.offload)
        var counters = offloads[slot].counters
        counters.answered += UInt64(judgement.answered)
        counters.confirmed += UInt64(judgement.confirmed)
        counters.absorbed += UInt64(judgement.confirmed + judgement.absorbed)
        offloads[slot].counters = counters
        if !judgement.isAwaitingAnswer { setAwaited(slot, nil) }
    }

    // MARK: Pings

    /// A socket whose ping is to be sent now. Its answer is awaited from here on.
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

    /// It could not be sent, or there was none.
    mutating func pingFailed(_ slot: UInt32, at now: Instant) {
        var counters = offloads[slot].counters
        counters.sent -= min(1, counters.sent)
        counters.wakesAvoided -= min(1, counters.wakesAvoided)
        offloads[slot].counters = counters
        setAwaited(slot, nil)
        arrange(slot, at: now)
    }

    /// What is to be done about a socket whose time is up.
    enum Due: Sendable, Equatable {
        /// The rest of a message has taken too long: it is for the owner.
        case beginning
        /// The answer may be there, and the loop may not have come to it.
        case answer
        case repetition
    }

    var deadlineCount: Int { deadlines.count }

    mutating func popDeadline(at now: Instant) -> UInt32? { deadlines.popDue(at: now) }

    mutating func reachDeadline(_ slot: UInt32, at now: Instant) -> Due? {
        if let until = pending[slot]?.partialUntil, now >= until { return .beginning }
        guard var awaited = pending[slot]?.awaited else { return nil }
        if now >= awaited.until { return .answer }
        var due: Due?
        if let at = awaited.repeatAt, now >= at {
            awaited.left -= 1
            awaited.pause = awaited.pause * 2
            // If nobody came to it for a while, what was left out is not made up for.
            let next = at + awaited.pause
            awaited.repeatAt = awaited.left > 0 ? (next > now ? next : now + awaited.pause) : nil
            setAwaited(slot, awaited)
            due = .repetition
        }
        deadlines.set(slot, to: nextDeadline(of: slot))
        return due
    }

    func isAwaitingAnswer(_ slot: UInt32) -> Bool { pending[slot]?.awaited != nil }

    /// Whether an answer has not come in time.
    func isUnanswered(_ slot: UInt32, at now: Instant) -> Bool {
        guard let awaited = pending[slot]?.awaited else { return false }
        return now >= awaited.until
    }

    /// A ping is under way, since nobody knows when.
    mutating func noteAwaited(_ slot: UInt32) {
        let never = Instant(nanoseconds: .max)
        setAwaited(slot, .init(until: never, repeatAt: nil, pause: .zero, left: 0))
    }

    /// When the next ping is sent; one whose time came while the owner was awake, or an answer was awaited, soon.
    func window(_ slot: UInt32, at now: Instant) -> Window? {
        let offload = offloads[slot]
        guard offload.isActive, !isAwaitingAnswer(slot), let terms = terms(of: slot) else { return nil }
        let soonest = now + .nanoseconds(1)
        return Window(
            earliest: max(offload.lastPing + terms.earliest, soonest),
            latest: max(offload.lastPing + terms.latest, soonest + settings.keepAlive.lead))
    }

    // MARK: Details

    private mutating func arrange(_ slot: UInt32, at now: Instant) {
        schedule.set(slot, to: window(slot, at: now))
        deadlines.set(slot, to: nextDeadline(of: slot))
    }

    /// When something is to be done about a socket, its next ping aside.
    private func nextDeadline(of slot: UInt32) -> Instant? {
        offloads[slot].isActive ? pending[slot]?.nextDeadline : nil
    }

    private func terms(of slot: UInt32) -> PingTerms? {
        terms.terms(offloads[slot].terms, of: slot)
    }

    /// What is taken is put back first: a socket has terms of its own, or none.
    private mutating func setTerms(_ slot: UInt32, _ new: PingTerms?) {
        terms.putBack(offloads[slot].terms, of: slot)
        offloads[slot].terms = new.map { terms.take($0, for: slot) } ?? TermsTable.none
    }

    private mutating func setAwaited(_ slot: UInt32, _ awaited: Offload.Awaited?) {
        setPending(slot, .init(awaited: awaited, partialUntil: pending[slot]?.partialUntil))
    }

    private mutating func setPartial(_ slot: UInt32, until: Instant?) {
        setPending(slot, .init(awaited: pending[slot]?.awaited, partialUntil: until))
    }

    private mutating func setPending(_ slot: UInt32, _ new: Offload.Pending?) {
        if let new, new.awaited != nil || new.partialUntil != nil {
            pending[slot] = new
        } else if pending.removeValue(forKey: slot) != nil, pending.isEmpty, pending.capacity > 1_024 {
            // It was a crowd whose pings were sent at the same time.
            pending = [:]
        }
    }
}
