/// Wakes clients, and tracks their wakes.
extension Supervision {
    /// Decides a wake. The client is thawed at once and notified at the end of the turn, so that the kernel
    /// schedules it while the message is being made.
    mutating func wake(
        _ client: ClientID, _ reasons: WakeReasons, at now: Instant, into actions: inout ActionBuffer
    ) {
        let isNew = clients[client.id].pendingWake == nil
        let wakeID = nextWakeID(of: client)
        let open = Lifecycle.Background.OpenWake(wakeID: wakeID, until: now + wakeBudget)
        var asleepFor = Duration.zero
        switch clients[client.id].lifecycle.stage {
        case .notRunning, .terminating:
            return  // no process to wake
        case .dormant:
            if reasons.contains(.fetch) { noteLaunchForFetch(client, at: now) }
            // All traffic until it runs counts as one wake.
            if clients[client.id].launches.reasons.isDisjoint(with: .ofTraffic) {
                noteTraffic(client, reasons, at: now, into: &actions)
            }
            return requestLaunch(client, reasons, at: now, into: &actions)
        case .launching:
            // Delivered with the other reasons when it identifies itself.
            return clients[client.id].launches.reasons.formUnion(reasons)
        case .inactive, .active:
            break  // it runs and is not going to be suspended: it is notified, without a budget
        case .background:
            clients[client.id].lifecycle.wake(open)
        case .suspending:
            if clients[client.id].lifecycle.mayBeFrozen { thaw(client, reasons, at: now, into: &actions) }
            guard !isTerminating(client) else { return }
            count(.suspensionsCancelled, of: client)
            actions.append(.trace(client, .suspensionCancelled))
            beginWake(client, open, at: now, into: &actions)
        case .suspended:
            asleepFor = noteEndOfSleep(client, at: now)
            thaw(client, reasons, at: now, into: &actions)
            guard !isTerminating(client) else { return }
            beginWake(client, open, at: now, into: &actions)
        }
        clients[client.id].lastWakeID = wakeID
        if reasons.contains(.fetch) { beginFetch(client, at: now) }
        // Kept after delivery: the next supervisor process may have to repeat it.
        guard isNew else { return clients[client.id].lastWakeReasons.formUnion(reasons) }
        clients[client.id].lastWakeReasons = reasons
        clients[client.id].lastAsleepFor = asleepFor
        clients[client.id].pendingWake = .new
        pendingWakes.append(client)
    }

    private mutating func beginWake(
        _ client: ClientID, _ open: Lifecycle.Background.OpenWake, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let isUnmodified = clients[client.id].isUnmodified && !mutated(.budgetsUnmodified)
        advance(client, at: now, into: &actions) { isUnmodified ? $0.enterForeground() : $0.wake(open) }
    }

    /// The time that a woken client may take.
    var wakeBudget: Duration { settings.budgets.wake * (mutated(.lengthensWakes) ? 3 : 1) }

    /// The number of the wake that a reason to wake now belongs to.
    func nextWakeID(of client: ClientID) -> UInt64 {
        clients[client.id].lastWakeID + (clients[client.id].pendingWake == nil ? 1 : 0)
    }

    private func isTerminating(_ client: ClientID) -> Bool {
        clients[client.id].lifecycle.state == .terminating
    }

    /// Thaws a client, unless it is over its wake limit and asked to be terminated then.
    private mutating func thaw(
        _ client: ClientID, _ reasons: WakeReasons, at now: Instant, into actions: inout ActionBuffer
    ) {
        runsKeepAlivesAlong = true
        endOffloads(client, into: &actions)
        let isOverLimit = noteTraffic(client, reasons, at: now, into: &actions)
        // No client is terminated for the wakes of others of the same uid.
        switch (isOverLimit, clients[client.id].wakeLimitPolicy) {
        case (true, .terminate):
            kill(client, .tooManyWakes, at: now, into: &actions)
        case (false, .terminate), (true, .linger), (false, .linger):
            if client != recovering { actions.append(.thaw(client)) }
        }
    }

    /// Counts a wake that others cause, at any pace; returns whether this client is over its limit. Reports
    /// of the location are not counted: the client has chosen their distance, and they launch it seldom.
    @discardableResult
    private mutating func noteTraffic(
        _ client: ClientID, _ reasons: WakeReasons, at now: Instant, into actions: inout ActionBuffer
    ) -> Bool {
        // An unmodified program is told of no limit and cannot keep one: it is bounded by the looks at it.
        guard !reasons.isDisjoint(with: .ofTraffic), !clients[client.id].isUnmodified else { return false }
        let isUserOverLimit =
            users[clients[client.id].user, default: UserUsage()].countWake(
                limit: settings.wakes.limitPerUser, period: settings.wakes.period, at: now)
        let isOverLimit =
            clients[client.id].limiter.countWake(at: now, isUserOverLimit: isUserOverLimit, settings.wakes)
            && !mutated(.permitsAnyWakes)
        if isOverLimit || isUserOverLimit {
            count(.wakeLimitExceeded, of: client)
            actions.append(.trace(client, .tooManyWakes))
        }
        return isOverLimit
    }

    /// Adds the sleep that ends now to the counters.
    @discardableResult
    mutating func noteEndOfSleep(_ client: ClientID, at now: Instant) -> Duration {
        guard case .suspended(let since) = clients[client.id].lifecycle.stage else { return .zero }
        let asleepFor = max(.zero, elapsed(at: now).since(since))
        countSleep(of: client, UInt64(asleepFor.nanoseconds))
        return asleepFor
    }

    /// Delivers the wake that this turn decided.
    mutating func deliverWake(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard let pending = clients[client.id].pendingWake.take() else { return }
        guard !isTerminating(client) else {
            // The wake is never delivered: should the client come back, its wakes are numbered without a gap.
            return clients[client.id].lastWakeID -= 1
        }
        let start = actions.firedSockets.count
        // A path that works again meanwhile is told as lost all the same.
        if clients[client.id].hasLostPaths {
            for fired in clients[client.id].fired
            where fired.conditions.contains(.pathLost) && sockets.contains(fired.token.id) {
                sockets[fired.token.id].isPathLost = true
            }
        }
        let (observed, ofObserved) = takeOccurrences(
            of: client, isRepeated: pending == .repeated, at: now, into: &actions)
        if ofObserved.contains(.push) { setDeadline(client, at: now) }
        var reasons = withoutMendedPaths(clients[client.id].lastWakeReasons, of: client)
        // It may have ended an observation since, and a repeated wake also tells what earlier ones did.
        if !ofObserved.isEmpty || !reasons.isSubset(of: .ofObservations) {
            reasons.subtract(.ofObservations)
            reasons.formUnion(ofObserved)
        }
        let notified = takeNotificationEvents(of: client, isRepeated: pending == .repeated, into: &actions)
        if !notified.isEmpty {
            reasons.insert(.notification)
        } else if reasons != .notification {
            reasons.remove(.notification)
        }
        actions.firedSockets.append(contentsOf: clients[client.id].fired)
        clients[client.id].fired.removeAll(keepingCapacity: true)
        countWake(reasons, of: client)
        let wake = Wake(
            wakeID: clients[client.id].lastWakeID, reasons: reasons,
            sockets: start..<actions.firedSockets.count, observed: observed, notified: notified,
            budget: wakeBudget,
            asleepFor: clients[client.id].lastAsleepFor, isRepeated: pending == .repeated,
            fetchBudget: reasons.contains(.fetch) ? settings.budgets.fetch : nil,
            pushBudget: ofObserved.contains(.push) ? settings.budgets.push : nil)
        actions.append(.notify(client, .wake(wake)))
        actions.append(.trace(client, .woken(reasons)))
    }

    /// A background client has finished something: it lingers, so that the peer's answer to its last message
    /// finds it awake. This applies whenever it may just have sent something: after a wake, within its budget
    /// or not, and after its last background task.
    mutating func linger(_ client: ClientID, at now: Instant) {
        guard !mutated(.forgetsToLinger) else { return }
        let linger = clients[client.id].limiter.linger(settings.wakes)
        clients[client.id].lifecycle.linger(until: now + linger)
    }

    /// The client says that it has finished a wake.
    mutating func finishWake(_ client: ClientID, wakeID: UInt64, at now: Instant) {
        // A client cannot have finished a wake that is not delivered yet, whatever number it sends; and a
        // repeated wake may carry more than the one that a previous supervisor process delivered.
        guard clients[client.id].pendingWake == nil || mutated(.believesUntoldWakeDone),
            clients[client.id].lifecycle.finishWake(wakeID)
        else { return }
        linger(client, at: now)
    }

    // MARK: Keep-alive

    /// The window of the next run of a client's keep-alive handler, in elapsed time, if it has one and is in
    /// the background.
    func keepAliveWindow(_ client: ClientID) -> Window? {
        switch clients[client.id].lifecycle.stage {
        case .notRunning, .inactive, .active, .terminating, .dormant, .launching:
            nil
        case .background, .suspending, .suspended:
            clients[client.id].keepAlive?.window(
                backgroundSince: clients[client.id].backgroundSince, settings.keepAlive)
        }
    }

    mutating func scheduleKeepAlive(_ client: ClientID) {
        schedule.set(client.slot, to: keepAliveWindow(client))
    }

    /// Runs the handlers of all clients that are inside their window.
    mutating func runKeepAlives(at now: Instant, into actions: inout ActionBuffer) {
        while let slot = schedule.popBegun(at: elapsed(at: now)) {
            runKeepAlive(inSlot: slot, at: now, into: &actions)
        }
    }

    /// Runs the handler of a client that was taken out of the schedule, and schedules the next run.
    mutating func runKeepAlive(inSlot slot: UInt32, at now: Instant, into actions: inout ActionBuffer) {
        guard let id = clients.id(inSlot: slot) else { return }
        let client = ClientID(id)
        let elapsed = elapsed(at: now)
        catchUp(client, at: now, into: &actions)
        // An expired deadline may have terminated it.
        guard let window = keepAliveWindow(client) else {
            return suspendIfIdle(client, at: now, into: &actions)
        }
        if elapsed > window.latest {
            count(.keepAliveLate, of: client)
            actions.append(.trace(client, .keepAliveLate(by: elapsed.since(window.latest))))
        }
        count(.keepAliveRuns, of: client)
        clients[id].keepAlive?.base = elapsed
        wake(client, .keepAlive, at: now, into: &actions)
        scheduleKeepAlive(client)
        suspendIfIdle(client, at: now, into: &actions)
    }
}
