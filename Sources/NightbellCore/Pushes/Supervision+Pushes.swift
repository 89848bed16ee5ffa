/// Pushes: the push service keeps the messages, and says that some wait. The core chooses the moment at which
/// their client is told, which then takes them from the service.
extension Supervision {
    // MARK: What waits

    /// The push service reports what waits for a client whenever that changes, and all of it to the next
    /// supervisor.
    mutating func learnPushes(_ waiting: WaitingPushes, at now: Instant, into actions: inout ActionBuffer) {
        guard let owner = owners[waiting.client], owner.user == waiting.user, let client = owner.client,
            !isStopping
        else { return }
        if waiting.urgency != nil { observeUnasked(.pushes, client, at: now) }
        guard observations.table.contains(client.slot) else { return }
        for index in observations.table[client.slot].indices
        where observations.table[client.slot][index].subject == .pushes {
            learnPushes(waiting, index, of: client, at: now, into: &actions)
        }
    }

    private mutating func learnPushes(
        _ waiting: WaitingPushes, _ index: Int, of client: ClientID, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let observation = observations.table[client.slot][index]
        let isNews = waiting.number != observation.push.number
        observations.table[client.slot][index].push.number = waiting.number
        observations.table[client.slot][index].push.waiting = waiting.urgency
        guard let urgency = waiting.urgency else { return dropPending(index, of: client) }
        if isNews, observation.push.number != nil {
            // Several programs may share this client: a failure of one is no reason for the others to wait.
            observations.table[client.slot][index].push.retryAt = nil
        }
        if isNews || mutated(.repeatsPushes) {
            note(.pushed(urgency), index, of: client, isSimulated: false, at: now, into: &actions)
        } else if observation.telling.isDue, observation.latest?.isSimulated == false {
            // The most urgent one may have gone.
            observations.table[client.slot][index].latest?.occurrence = .pushed(urgency)
            recordObservations(of: client)
            observations.look(atClientIn: client.slot, at: elapsed(at: now))
        }
    }

    /// Nothing waits, or nothing is known of it: a wake would be in vain.
    private mutating func dropPending(_ index: Int, of client: ClientID) {
        let observation = observations.table[client.slot][index]
        if observation.telling.isDue, observation.latest?.isSimulated == true { return }
        withdrawLaunchForPushes(client)
        guard observation.telling.isDue else { return }
        observations.table[client.slot][index].telling = .told(0)
        recordObservations(of: client)
    }

    mutating func withdrawLaunchForPushes(_ client: ClientID) {
        guard clients[client.id].launches.reasons.contains(.push) else { return }
        touch(client)
        clients[client.id].launches.reasons.remove(.push)
        if clients[client.id].launches.reasons.isEmpty,
            case .dormant(.queued) = clients[client.id].lifecycle.stage
        {
            clients[client.id].lifecycle.becomeDormant(.resting)
        }
    }

    /// The push service has gone, or another one reports from here on.
    mutating func forgetPushService() {
        for slot in observations.table.slots {
            guard let id = clients.id(inSlot: slot) else { continue }
            for index in observations.table[slot].indices
            where observations.table[slot][index].subject == .pushes {
                let observation = observations.table[slot][index]
                // Of most there is nothing to forget: a service that comes and goes costs little.
                guard
                    observation.push.isOfService || observation.telling.isDue
                        || clients[id].launches.reasons.contains(.push)
                else { continue }
                observations.table[slot][index].push.forgetService()
                // The service may be the reason why the client has failed.
                observations.table[slot][index].push.retryAt = nil
                recordObservations(of: ClientID(id))
                dropPending(index, of: ClientID(id))
            }
        }
    }

    // MARK: One memory for each client

    /// A client that names its observation anew, or ends it for a moment, must not be told more often for that.
    mutating func makePushObservation(
        _ name: String, of client: ClientID, replacing own: inout [Observation]
    ) -> Observation {
        var observation = Observation(name: name, .pushes)
        if let index = own.firstIndex(where: { $0.subject == .pushes }) {
            let former = own.remove(at: index)
            (observation.latest, observation.telling) = (former.latest, former.telling)
            observation.push = former.push
        } else if let former = observations.formerPushes.remove(client.slot) {
            observation.push = former
        }
        return observation
    }

    /// The next report is news to a new process, which asks for it: the process before it may have left messages
    /// that it was told of. One that has yet to be told is told of all.
    mutating func forgetPushReport(of client: ClientID) {
        guard machine.wishes.pushes > 0, observations.table.contains(client.slot),
            !mutated(.tellsOneProcessOfPushes)
        else { return }
        for index in observations.table[client.slot].indices
        where !observations.table[client.slot][index].telling.isDue {
            observations.table[client.slot][index].push.number = nil
        }
    }

    mutating func keepPushMemory(of client: ClientID, without own: [Observation]) {
        guard let former = observations(of: client).first(where: { $0.subject == .pushes }),
            !own.contains(where: { $0.subject == .pushes })
        else { return }
        var memory = former.push
        memory.run = nil
        memory.forgetService()
        observations.formerPushes.insert(memory, at: client.slot)
    }

    /// Power and network have changed: the moment may have come for pushes that are not urgent, or have passed.
    mutating func lookAtWaitingPushes(at now: Instant) {
        guard machine.wishes.pushes > 0 else { return }
        for slot in observations.table.slots
        where observations.table[slot].contains(where: { $0.subject == .pushes && $0.telling.isDue }) {
            observations.look(atClientIn: slot, at: elapsed(at: now))
        }
    }

    // MARK: The moment

    /// Why a client is not told of its pushes now; nil: it is, or none wait.
    package func pushObstacle(_ observation: Observation, _ client: ClientID, at now: Instant)
        -> PushObstacle?
    {
        guard observation.subject == .pushes, observation.telling.isDue,
            case .pushed(let urgency) = observation.latest?.occurrence
        else { return nil }
        if observation.push.run != nil { return .underWay }
        // A simulated one has to be seen at once.
        if observation.latest?.isSimulated == true { return nil }
        let elapsed = elapsed(at: now)
        if let retryAt = observation.push.retryAt, elapsed < retryAt { return .failed(until: retryAt) }
        // In use, it may be told at any time.
        if clients[client.id].lifecycle.isForeground { return nil }
        let limit = mutated(.ignoresPushLimit) ? Int.max : settings.push.perHour
        if let until = observation.push.permittedAt(limit, at: elapsed) { return .tooMany(until: until) }
        let isTimely = urgency.isTimely(
            isOnBattery: machine.isOnBattery, isBatteryLow: machine.isBatteryLow,
            isMetered: machine.network?.isMetered)
        return isTimely || mutated(.ignoresUrgency) ? nil : .conditions
    }

    /// The same for a client that is told of something else in this moment: that costs no wake of its own.
    func mayTellAlong(_ observation: Observation, at now: Instant) -> Bool {
        guard observation.subject == .pushes else { return true }
        let isPaused =
            observation.latest?.isSimulated != true
            && observation.push.retryAt.map { elapsed(at: now) < $0 } ?? false
        return observation.push.run == nil && !isPaused
    }

    /// The client is being told of its pushes by its last wake.
    mutating func beginPush(_ index: Int, of client: ClientID, at now: Instant) {
        let until = now + settings.budgets.push
        let isInBackground = !clients[client.id].lifecycle.isForeground
        var run = PushMemory.Run(wakeID: clients[client.id].lastWakeID, until: until)
        run.number = observations.table[client.slot][index].push.number
        observations.table[client.slot][index].push.run = run
        if isInBackground {
            observations.table[client.slot][index].push.noteTold(
                settings.push.perHour, at: elapsed(at: now))
        }
        recordObservations(of: client)
    }

    // MARK: Being handled

    /// When the budget ends that the client has for the pushes that it is handling; nil: it handles none.
    func endOfPush(_ client: ClientID) -> Instant? {
        guard machine.wishes.pushes > 0, observations.table.contains(client.slot) else { return nil }
        return observations.table[client.slot].reduce(nil) { earlier($0, $1.push.run?.until) }
    }

    func isHandlingPush(_ client: ClientID) -> Bool { endOfPush(client) != nil }

    /// The client says that it has handled its pushes.
    mutating func finishPush(
        _ result: FetchResult, wakeID: UInt64, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) -> Answer {
        let isUntold = clients[client.id].pendingWake != nil && wakeID >= clients[client.id].lastWakeID
        let runs = observations(of: client).contains { $0.push.run?.wakeID == wakeID }
        guard runs, !isUntold else {
            // A previous supervisor process accepted it.
            return wasInherited(key, of: client) || mutated(.believesAnyPush) ? .done : .refused(.noPush)
        }
        endPushes(client, isHandled: result != .failed, at: now)
        actions.append(.trace(client, .pushEnded(result)))
        linger(client, at: now)
        return .done
    }

    /// Its time is over. In the foreground it may go on, and while media plays its user needs it; otherwise
    /// it is terminated. In any case it is told again of what still waits: it may never get that far.
    mutating func pushOverran(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard case .background = clients[client.id].lifecycle.stage else {
            actions.append(.trace(client, .pushEnded(nil)))
            return endPushes(client, isHandled: mutated(.forgivesSlowPushesInUse), at: now)
        }
        overran(.push, client, into: &actions)
        endPushes(client, isHandled: false, at: now)
        actions.append(.trace(client, .pushEnded(nil)))
        guard !clients[client.id].assertions.mediaPlays(at: now), !mutated(.permitsEndlessPushes) else {
            return
        }
        kill(client, .pushOverran, at: now, into: &actions)
    }

    /// Pushes that were not handled are told again, after a pause: what has failed once may fail again.
    mutating func endPushes(_ client: ClientID, isHandled: Bool, at now: Instant) {
        guard observations.table.contains(client.slot) else { return }
        for index in observations.table[client.slot].indices
        where observations.table[client.slot][index].push.run != nil {
            let told = observations.table[client.slot][index].push.run?.number
            observations.table[client.slot][index].push.run = nil
            if !isHandled { tellAgain(index, of: client, after: told, at: now) }
            recordObservations(of: client)
            observations.look(atClientIn: client.slot, at: elapsed(at: now))
        }
    }

    /// - Parameter number: that of the report that it was told of; nil: not known any more.
    private mutating func tellAgain(
        _ index: Int, of client: ClientID, after number: UInt64?, at now: Instant
    ) {
        let push = observations.table[client.slot][index].push
        guard let urgency = push.waiting, !mutated(.forgetsUnhandledPushes) else { return }
        let elapsed = elapsed(at: now)
        // Of a message that has come meanwhile it is told at once.
        let hasNews = number != nil && push.number != nil && number != push.number
        observations.table[client.slot][index].push.retryAt = hasNews ? nil : elapsed + settings.push.retry
        observations.table[client.slot][index].latest = .init(.pushed(urgency), at: elapsed)
        observations.table[client.slot][index].telling = .pending
    }

    // MARK: Recovery

    /// The push service reports again what waits. A run goes on if its client runs, and has been told of it for
    /// certain.
    func restoredPush(_ observation: Observation, of client: ClientID, toldWakeID: UInt64) -> Observation {
        guard observation.subject == .pushes else { return observation }
        var observation = observation
        observation.push.forgetService()
        if observation.latest?.isSimulated == false { observation.telling = .told(0) }
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background:
            if let run = observation.push.run, run.wakeID > toldWakeID { observation.push.run = nil }
        case .notRunning, .suspending, .suspended, .terminating, .dormant, .launching:
            observation.push.run = nil
        }
        return observation
    }
}
