package import NightbellCore

/// The recovered state of the next supervisor, from which the rules continue.
extension World {
    mutating func takeOver() {
        actions.removeAll()
        interpreted = 0
        taken = 0
        unanswered.removeAll()
        mustBeTold.removeAll()
        isTakingOver = true
        isRestoring = true
        do throws(RecoverySnapshotError) {
            var snapshot = snapshot
            log.finishForgetting(&snapshot)
            core = try Supervision(
                settings: settings, restoring: snapshot, mutation: mutation, at: now, into: &actions)
        } catch {
            return violate(.restart, "the recovered state is not understood: \(error)")
        }
        traffic.removeAll()
        for client in clients where client.isUnmodified {
            client.owesSuspended = true
            // The supervisor that died may have begun attempts that came to nothing.
            client.lastEpoch = max(client.lastEpoch, log.state(of: client.id)?.row.lastEpoch ?? 0)
        }
        forgetMachine()
        parkAgain()
        for client in clients { believeTasks(client) }
        core.persistChanges(in: &log)
        log.finishReading()
        events.removeAll()
        isGathering = true
        carryOutActions()
        isTakingOver = false
        takeInFollowUps()
        // The supervisor died before it recorded that this was given up.
        for (identifier, owner) in disowned where core.ownership(of: identifier) != nil {
            owners[identifier] = owner
            guard core.client(named: identifier) == nil, owner.givenUp == nil else { continue }
            giveUp(identifier)
        }
        foresee(.timer)
        if let deadline = core.nextDeadline, deadline <= now {
            core.handle(.timer, at: now, into: &actions)
            core.persistChanges(in: &log)
            carryOutActions()
        }
        takeInFollowUps()
        isGathering = false
        keepUp(isTimer: true)
        isTraffic = false
        core.endTurn(at: now, into: &actions)
        core.persistChanges(in: &log)
        carryOutActions()
        log.flush()
        keepUp(isTimer: true)
        endPressure()
        isRestoring = false
        hasThawed = false
        for client in clients { believe(client) }
        checkCounters()
        expected = core.counters
        replay = core
    }

    private mutating func takeInFollowUps() {
        while !events.isEmpty {
            let event = events.removeFirst()
            foresee(event)
            core.handle(event, at: now, into: &actions)
            core.persistChanges(in: &log)
            carryOutActions()
        }
    }

    /// The state that the edge recovers, in a fixed order.
    package var snapshot: RecoverySnapshot {
        var snapshot = log.snapshot
        for index in snapshot.clients.indices {
            switch client(snapshot.clients[index].id)?.execution {
            case .running, .absent, nil: snapshot.clients[index].execution = .running
            case .stopping: snapshot.clients[index].execution = .stopping
            case .stopped: snapshot.clients[index].execution = .stopped
            }
        }
        for index in snapshot.sockets.indices {
            snapshot.sockets[index].conditions = socket(snapshot.sockets[index].token)?.conditions ?? []
        }
        addLostPaths(to: &snapshot)
        snapshot.machineSlept = slept
        return snapshot
    }

    /// From here on the rules continue from the next supervisor's state.
    private mutating func believe(_ client: SimulatedClient) {
        let state = core.state(of: client.id)
        let died = client.untoldSince
        client.isTouched = true
        client.untoldSince = nil
        client.wasBusy = true
        client.busyAt = now
        guard let view = core.view(of: client.id, at: now), let stored = log.state(of: client.id)
        else { return violate(.restart, "\(client.name) is lost") }
        believeLaunches(client, view)
        // Its process has ended, even if the supervisor that died did not say so any more.
        if state == .dormant || state == .launching { client.terminating = nil }
        believeInspection(client, view, stored.row)
        if client.execution == .running {
            client.freezing = nil
            client.asleepSince = nil
            client.isFailing = false
        } else if state == .suspended {
            // The client is asleep, whatever the result of the attempt.
            client.asleepSince = client.asleepSince ?? view.enteredStateAt
            client.isAttempted = false
            client.isFailing = false
        }
        for socket in client.sockets where socket.hasProfile {
            socket.expectedOffload = core.offload(of: socket.token, at: now)?.counters ?? OffloadCounters()
            let mark = SocketToken.mark(of: core.wakeID(of: client.id) + 1)
            let known = core.offloadSnapshot(of: socket.token)
            socket.found = known?.foundInWake == mark ? known?.found ?? [] : []
            let isOwed = state == .dormant || state == .launching
            if isOwed, !socket.found.isEmpty { client.owed.append(socket.token) }
            if isOwed, socket.found.contains(.pathLost) { socket.isPathTold = true }
            guard client.execution != .running, !client.isKilled, state != .terminating else { continue }
            let wasActive = log.offloads[socket.token]?.wasActive ?? false
            require(
                .restart, !socket.isOffloaded || wasActive,
                "no supervisor continues to offload \(TraceFormat.name(socket.token))")
        }
        client.traffic = TrafficLimit(
            stored.statistics, excess: Int(stored.row.excessWakes), settings.wakes)
        believeTime(client, state, since: died)
        client.expected = view.counters
        if let since = client.asleepSince {
            let asleepFor = UInt64(max(0, elapsed.since(since).nanoseconds))
            client.expected.asleepNanoseconds -= min(asleepFor, client.expected.asleepNanoseconds)
        }
        if state != .terminating, state != .launching {
            let wakeID = core.wakeID(of: client.id)
            let isReused = client.mayReuseNumber && client.lastWakeID == wakeID + 1
            require(
                .restart, client.lastWakeID == wakeID || isReused,
                "\(client.name) was not told of wake \(wakeID)")
        }
    }

    /// The supervisor that died may have begun and ended tasks in its last turn without an answer.
    private mutating func believeTasks(_ client: SimulatedClient) {
        // The new supervisor has finished to forget it, which its actions report.
        guard core.state(of: client.id) != .notRunning else { return }
        let tasks = core.tasks(of: client.id)
        var begun: Set<UInt64> = []
        var ended: [UInt64] = []
        for repetition in client.toRepeat {
            switch repetition.message {
            case .beginBackgroundTask: begun.insert(repetition.request)
            case .endBackgroundTask(let task): ended.append(task)
            default: break
            }
        }
        let isOver = client.isBeingEnded || client.execution == .absent
        for task in client.tasks where !isOver && !tasks.contains(where: { $0.id == task }) {
            require(.restart, ended.contains(task), "task \(task) of \(client.name) is lost")
        }
        for task in tasks where !client.tasks.contains(task.id) {
            let isBegun = begun.contains(task.request)
            require(.restart, isBegun, "\(client.name) holds task \(task.id), which it has not begun")
        }
        client.tasks = tasks.map(\.id)
    }

    /// The supervisor that died may have carried out requests in its last turn without an answer.
    private mutating func believeTime(
        _ client: SimulatedClient, _ state: ClientState, since died: Instant?
    ) {
        switch state {
        case .inactive: client.stay = .inactive
        case .active: client.stay = .active
        case .background, .suspending, .suspended: client.stay = .background
        case .notRunning, .terminating, .dormant, .launching: break
        }
        believeMedia(client)
        let clock = core.taskClock(of: client.id).map {
            SimulatedClient.TaskClock(until: $0.until, isWarned: $0.isWarned)
        }
        if let clock, state == .background {
            let begun = (died ?? now) + settings.budgets.backgroundTasks
            let warned = now + settings.budgets.expirationNotice
            let earliest = client.clock?.until ?? begun
            let latest = client.clock.map { max($0.until, warned) } ?? now + settings.budgets.backgroundTasks
            require(
                .restart, clock.until >= earliest && clock.until <= latest,
                "\(client.name) has another time for its tasks")
        }
        client.clock = clock
        client.dueSince = nil
    }

    /// No count of a complete turn is lost.
    private mutating func checkCounters() {
        guard !core.counters.isAtLeast(held.counted) else { return }
        violate(.restart, "lost: " + TraceFormat.difference(core.counters, held.counted, of: "all"))
    }

    /// A thaw that the supervisor that died had decided, or that cancels a suspension that it had begun.
    mutating func takeUpThaw(_ client: SimulatedClient) {
        client.execution = .running
        if client.isUnmodified { client.stay = .active }
        client.freezing = nil
        client.asleepSince = nil
        client.isFailing = false
        client.wokenAtStep = steps
    }

    /// A client that was killed is killed again, in case it was not.
    mutating func takeUpKill(_ client: SimulatedClient, _ reason: TerminationReason) {
        client.terminating = nil
        if client.ending != .quitByUser { client.ending = reason }
        guard !client.isKilled else { return }
        endSleep(client, isEnd: true)
        client.isKilled = true
        coverage.kills += 1
        queue.append((.ended(client.id, .failed), now))
    }
}
