import NightbellCore

/// The messages to clients, and their reactions.
extension World {
    mutating func told(_ client: SimulatedClient, _ notice: Notice) {
        switch notice {
        case .didEnterBackground(let budget):
            let until = end(of: client.entering, after: settings.budgets.enteringBackground, client)
            if !isTakingOver || client.entering == nil {
                client.backgroundSince = until + slept - settings.budgets.enteringBackground
            }
            // A repeated notice is about the same stay in the background.
            if !isTakingOver { client.clock = nil }
            client.stay = .background
            client.entering = .init(number: 0, until: until)
            requireBudget(budget, max(.zero, until.since(now)), client)
            client.setWindow(parameters)
            plan(client, .say(.backgroundEntered), budget)
        case .prepareToSuspend(let epoch, let budget):
            prepare(client, epoch, budget)
        case .suspendCancelled(let epoch):
            // The client may not have been told of the attempt.
            if isTakingOver { client.lastEpoch = max(client.lastEpoch, epoch) }
            require(.budgets, epoch == client.lastEpoch, "epoch \(epoch) of \(client.name) is cancelled")
            client.preparing = nil
            cancelAttempt(client)
        case .suspended(let epoch):
            if isTakingOver { client.lastEpoch = max(client.lastEpoch, epoch) }
            let isRight = client.isUnmodified && client.execution == .stopped && epoch == client.lastEpoch
            require(.answers, isRight, "\(client.name) is told that it is suspended")
            client.owesSuspended = false
        case .wake(let wake):
            woken(client, wake)
        case .backgroundTimeExpiring(let remaining):
            warned(client, remaining)
            for task in client.tasks { plan(client, .say(.endBackgroundTask(task)), .seconds(5)) }
        case .willTerminate(let budget, let reason):
            let isRight =
                reason == .quitByUser || (reason == .exitsOnSuspend && client.registration.exitsOnSuspend)
            require(.budgets, isRight, "\(client.name) is to end because of \(reason)")
            if client.ending == nil { client.ending = reason }
            // The next supervisor may decide it itself, when a suspension has failed.
            let isNew = client.terminating == nil && budget == settings.budgets.termination
            let until =
                isNew
                ? now + budget : end(of: client.terminating, after: settings.budgets.termination, client)
            requireBudget(budget, max(.zero, until.since(now)), client)
            client.terminating = .init(number: 0, until: until)
            plan(client, .exit, budget)
        }
        // A process may have ended without a report yet: a message to it is lost.
        let hasNoRecipient = isRestoring && client.execution == .absent
        require(
            .frozen, client.isHeard || hasNoRecipient,
            "\(client.name) gets a message before it is thawed")
    }

    /// The end of a budget that begins now, or that continues under another supervisor.
    private func end(
        of obligation: SimulatedClient.Obligation?, after budget: Duration, _ client: SimulatedClient
    ) -> Instant {
        guard isTakingOver else { return now + budget }
        return obligation?.until ?? (client.untoldSince ?? now) + budget
    }

    private mutating func requireBudget(_ told: Duration, _ budget: Duration, _ client: SimulatedClient) {
        require(
            .budgets, told == budget,
            "\(client.name) is told that it has \(TraceFormat.words(told)), and has \(TraceFormat.words(budget))"
        )
    }

    private mutating func prepare(_ client: SimulatedClient, _ epoch: UInt64, _ budget: Duration) {
        require(
            .tokens, epoch == client.lastEpoch + 1,
            "epoch \(epoch) of \(client.name) after \(client.lastEpoch)")
        require(.assertions, !client.holds(at: now), "\(client.name) is suspended in spite of its assertions")
        require(
            .budgets, client.entering == nil && client.openWake == nil,
            "\(client.name) is suspended within a budget"
        )
        require(
            .reach, client.isSetUp || client.hibernates || client.canBeWoken || now >= client.setUpUntil,
            "\(client.name) is suspended before anything could wake it")
        require(.budgets, now >= client.lingerUntil, "\(client.name) is suspended before it has lingered")
        require(.stop, !core.isStopping, "\(client.name) is suspended by a supervisor that stops")
        client.lastEpoch = epoch
        client.isAttempted = true
        requireBudget(budget, settings.budgets.prepareToSuspend, client)
        client.preparing = .init(number: epoch, until: now + settings.budgets.prepareToSuspend)
        let isHonest = client.behaviour != .malicious
        let notIdle = client.sockets.filter { $0.unread > 0 && isHonest && random.once(in: 2) }.map(\.token)
        plan(client, .say(.readyToSuspend(epoch: epoch, notIdle: notIdle)), budget)
    }

    private mutating func woken(_ client: SimulatedClient, _ wake: Wake) {
        let until = now + settings.budgets.wake
        requireBudget(wake.budget, settings.budgets.wake, client)
        if wake.isRepeated {
            coverage.wakesToldAgain += 1
            require(
                .restart, isRestoring || client.mayHearAgain,
                "wake \(wake.wakeID) of \(client.name) is repeated without reason")
            if wake.wakeID <= client.lastWakeID, !client.mayHearAgain {
                // It has been told. Its time begins anew, if the wake is not finished.
                client.openWake?.until = until
                for fired in actions.firedSockets[wake.sockets] where fired.conditions.contains(.pathLost) {
                    socket(fired.token)?.isPathTold = true
                }
                return
            }
        }
        let isNext = wake.wakeID == client.lastWakeID + 1
        let isSame = wake.wakeID == client.lastWakeID && wake.isRepeated && client.mayHearAgain
        let isOfNextProcess = wake.wakeID == client.lastWakeID && client.mayReuseNumber
        client.mayHearAgain = false
        client.mayReuseNumber = false
        require(
            .budgets, isNext || isSame || isOfNextProcess,
            "wake \(wake.wakeID) of \(client.name) is out of order")
        require(.budgets, !wake.reasons.isEmpty, "\(client.name) is woken without a reason")
        // A path that works again meanwhile need not be a reason any more, unless there is no other.
        let isPathNamed = actions.firedSockets[wake.sockets].contains { $0.conditions.contains(.pathLost) }
        let reasons =
            isPathNamed || client.inspection != .none ? wake.reasons : wake.reasons.union(.pathLost)
        let mayBeMended = wake.reasons == .pathLost && (isRestoring || client.mustHear == .pathLost)
        require(
            .launches, client.mustHear.isSubset(of: reasons),
            "\(client.name) is not told the reason of its launch")
        client.mustHear = []
        mustHear.removeAll { $0.client === client && $0.reasons.isSubset(of: reasons) }
        client.lastWakeID = wake.wakeID
        client.preparing = nil
        client.wokenAtStep = 0
        if isEndingPortion { client.toldAtStep = steps }
        expect(client) { counters in
            counters[.wakes] += 1
            if wake.reasons.contains(.socket) { counters[.wakesSocket] += 1 }
            if wake.reasons.contains(.keepAlive) { counters[.wakesKeepAlive] += 1 }
            if wake.reasons.contains(.request) { counters[.wakesRequest] += 1 }
            if wake.reasons.contains(.clientMessage) { counters[.wakesClientMessage] += 1 }
            if !wake.reasons.isDisjoint(with: [.unanswered, .pathLost]) { counters[.wakesPathLost] += 1 }
        }
        if core.state(of: client.id) == .background {
            client.openWake = .init(number: wake.wakeID, until: until)
        }
        for fired in actions.firedSockets[wake.sockets] { tellSocket(fired, client) }
        checkReasons(wake, client, mayBeMended: mayBeMended)
        let isRunToldAgain = isSame && client.lastRunWakeID == wake.wakeID && !client.mustRunEarly
        if wake.reasons.contains(.keepAlive), !isRunToldAgain { runKeepAlive(client, wake) }
        // A client that is woken for another reason may leave its sockets unread.
        let looks = !wake.sockets.isEmpty || random.once(in: 2)
        if client.behaviour != .hung, looks { plan(client, .read, .seconds(1)) }
        plan(client, .say(.wakeDone(wakeID: wake.wakeID)), wake.budget)
    }

    /// Some conditions are not visible in the kernel: the client must be told of the socket.
    private mutating func checkReasons(_ wake: Wake, _ client: SimulatedClient, mayBeMended: Bool) {
        defer { client.hasReleased = false }
        guard !client.hasReleased else { return }
        let fired = actions.firedSockets[wake.sockets]
        let reasons = [(WakeReasons.unanswered, Conditions.unanswered), (.pathLost, .pathLost)]
        for (reason, condition) in reasons where wake.reasons.contains(reason) {
            // A client that was launched for that may have come before its sockets were inspected again.
            let isToCome = condition == .pathLost && (client.inspection != .none || mayBeMended)
            let isTold = isToCome || fired.contains { $0.conditions.contains(condition) }
            require(.offload, isTold, "\(client.name) is not told which socket it was woken for")
        }
    }

    private mutating func tellSocket(_ fired: FiredSocket, _ client: SimulatedClient) {
        guard let socket = socket(fired.token), socket.owner === client else {
            return violate(
                .tokens, "\(client.name) is told of \(TraceFormat.name(fired.token)), which is not its own")
        }
        if mustBeTold.contains(where: { $0.token == fired.token }) {
            // A socket can have several reasons, and is reported once.
            mustBeTold.removeAll { $0.token == fired.token }
        } else if !isRestoring, !mayBeTold.contains(fired.token) {
            return violate(
                .wakeBound, "\(client.name) is told of \(TraceFormat.name(fired.token)), which did not fire")
        }
        require(
            .wakeBound, !socket.isEnded || socket.hasFiredForBytes,
            "\(client.name) is told of the end of \(TraceFormat.name(fired.token)) twice")
        socket.found = []
        if fired.conditions.contains(.pathLost) { socket.isPathTold = true }
        let isEnd =
            !fired.conditions.isDisjoint(with: [.peerClosed, .hangUp])
            || (socket.isStream && fired.conditions.contains(.error))
        socket.isEnded = isEnd
        socket.hasFiredForBytes = false
    }

    private mutating func runKeepAlive(_ client: SimulatedClient, _ wake: Wake) {
        expect(client) { $0[.keepAliveRuns] += 1 }
        guard let window = client.window else {
            return violate(.keepAlive, "\(client.name) has no keep-alive handler")
        }
        require(
            .keepAlive, window.earliest <= elapsed + .microseconds(1) || client.mayRunEarly,
            "\(client.name) runs before its window"
        )
        if client.mustRunEarly { coverage.runsBeforeSleep += 1 }
        client.ranBeforeSleep = client.mustRunEarly
        client.mustRunEarly = false
        // Recorded as late if the whole machine stood still; `check` decides whether it may be late.
        if elapsed > window.latest { expect(client) { $0[.keepAliveLate] += 1 } }
        require(.keepAlive, elapsed <= window.latest || isStalled, "\(client.name) runs after its window")
        // The supervisor that died had decided a repeated wake.
        client.lastRun = (wake.isRepeated ? client.untoldSince.map { $0 + slept } : nil) ?? elapsed
        client.lastRunWakeID = wake.wakeID
        client.setWindow(parameters)
    }

    mutating func plan(_ client: SimulatedClient, _ deed: SimulatedClient.Deed, _ budget: Duration) {
        let delay: Duration
        switch client.behaviour {
        case .wellBehaved, .chattering:
            delay = random.duration(upTo: min(.milliseconds(50), budget))
        case .slow:
            delay = random.once(in: 4) ? budget : random.duration(upTo: budget * 2)
        case .crashing:
            delay = random.duration(upTo: min(.milliseconds(50), budget))
            if random.once(in: 24) { return client.plan(.exit, at: now + delay) }
        case .malicious:
            // It would rather stay awake: it answers at the last moment, or not at all.
            guard random.once(in: 2) else { return }
            delay = random.duration(upTo: budget)
        case .hung:
            return
        }
        client.plan(deed, at: now + delay)
    }
}
