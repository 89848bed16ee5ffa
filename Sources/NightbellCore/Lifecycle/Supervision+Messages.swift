/// Requests and notices of clients.
extension Supervision {
    mutating func receive(
        _ message: ClientMessage, from client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        switch message {
        case .readyToSuspend(let epoch, let notIdle):
            ready(client, epoch: epoch, isIdle: notIdle.isEmpty, at: now, into: &actions)
            actions.append(.answer(.done, client, key))
        case .wakeDone(let wakeID):
            finishWake(client, wakeID: wakeID, at: now)
            finishEvents(client, wakeID: wakeID)
            actions.append(.answer(.done, client, key))
        case .fetchDone(let wakeID, let result):
            let answer = finishFetch(result, wakeID: wakeID, client, key, at: now, into: &actions)
            actions.append(.answer(answer, client, key))
        case .pushDone(let wakeID, let result):
            let answer = finishPush(result, wakeID: wakeID, client, key, at: now, into: &actions)
            actions.append(.answer(answer, client, key))
        case .backgroundEntered:
            clients[client.id].lifecycle.finishEntering()  // unless it comes too late, or was overtaken
            actions.append(.answer(.done, client, key))
        case .enterBackground
        where clients[client.id].exitsOnSuspend && clients[client.id].lifecycle.isForeground:
            actions.append(.answer(.done, client, key))
            notifyTermination(client, .exitsOnSuspend, at: now, into: &actions)
        case .restartNoted:
            inherited[client] = nil
            actions.append(.answer(.done, client, key))
        case .enterBackground where clients[client.id].isUnmodified:
            actions.append(.answer(suspendUnmodified(client, at: now, into: &actions), client, key))
        case .enterBackground:
            let isForeground = clients[client.id].lifecycle.isForeground
            actions.append(.answer(enterBackground(client, at: now, into: &actions), client, key))
            if isForeground {
                let budget = settings.budgets.enteringBackground
                actions.append(.notify(client, .didEnterBackground(budget: budget)))
            }
        case .enterForeground:
            actions.append(.answer(enterForeground(client, at: now, into: &actions), client, key))
        case .saveState(let byteCount):
            // This is part of preparing for suspension: it is no reason to stay awake.
            actions.append(.answer(saveState(byteCount, client, into: &actions), client, key))
        case .hibernate:
            let isPossible = clients[client.id].isLaunchable
            clients[client.id].hibernates = isPossible
            actions.append(.answer(isPossible ? .done : .refused(.cannotLaunch), client, key))
            // It was being suspended, or was suspended, when it said so: it is ready to be terminated.
            if isPossible, clients[client.id].lifecycle.mayBeFrozen, !mutated(.suspendsHibernators) {
                hibernate(client, at: now, into: &actions)
            }
        case .handOver(let offers):
            callBack(client, at: now, into: &actions)
            handOver(offers, client, key, at: now, into: &actions)
        case .release, .setKeepAliveTimeout, .clearKeepAliveTimeout, .setMinimumFetchInterval, .observe,
            .stopObserving, .schedule, .cancelNotifications, .setBadge, .beginBackgroundTask,
            .endBackgroundTask, .backgroundTimeRemaining, .mediaActivity:
            callBack(client, at: now, into: &actions)
            actions.append(.answer(carryOut(message, client, key, at: now, into: &actions), client, key))
        }
    }

    /// Requests with the same meaning in every state in which a client runs.
    private mutating func carryOut(
        _ message: ClientMessage, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) -> Answer {
        switch message {
        case .release(let token):
            // A previous supervisor process accepted it, so it was carried out.
            if wasInherited(key, of: client), !owns(client, token) { return .done }
            return release(token, client, into: &actions)
        case .setKeepAliveTimeout(let timeout):
            let isSet = clients[client.id].keepAlive?.timeout.nanoseconds == timeout.nanoseconds
            if wasTakenIn(key, of: client), isSet { return .done }
            return setKeepAliveTimeout(timeout, client, at: now)
        case .clearKeepAliveTimeout:
            clients[client.id].keepAlive = nil
            scheduleKeepAlive(client)
            return .done
        case .setMinimumFetchInterval(let interval):
            return setMinimumFetchInterval(interval, client, at: now)
        case .observe(let name, let subject):
            return observe(name, subject, client, at: now)
        case .stopObserving(let name):
            return stopObserving(name, client)
        case .schedule(let notification):
            return schedule(notification, client, key, at: now, into: &actions)
        case .cancelNotifications(let identifiers):
            return cancelNotifications(identifiers, client)
        case .setBadge(let count):
            setBadge(count, at: clients[client.id].owner, of: clients[client.id].user)
            return .done
        case .beginBackgroundTask(let name):
            return beginBackgroundTask(name, client, key, at: now)
        case .endBackgroundTask(let task):
            let isHeld = clients[client.id].assertions.end(task)
            if isHeld { recordTasks(client) }
            if isHeld, !clients[client.id].assertions.hasTasks { linger(client, at: now) }
            let isOver = isHeld || wasTakenIn(key, of: client)
            if mutated(.endsAnyTask) { return .done }
            return isOver ? .done : .refused(.invalidTask)
        case .backgroundTimeRemaining:
            return .backgroundTimeLeft(timeLeft(client, at: now))
        case .mediaActivity:
            guard clients[client.id].modes.contains(.audio) else { return .refused(.modeRequired(.audio)) }
            return claimMedia(client, at: now)
        case .handOver, .enterBackground, .backgroundEntered, .enterForeground, .readyToSuspend, .wakeDone,
            .fetchDone, .pushDone, .saveState, .hibernate, .restartNoted:
            return .done  // each has a path of its own
        }
    }

    // MARK: Foreground and background

    private mutating func enterBackground(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Answer {
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active:
            let until = now + settings.budgets.enteringBackground
            clients[client.id].backgroundSince = elapsed(at: now)
            clients[client.id].assertions.restoreTime()
            // A wake decided in the foreground in this turn is delivered in the background: its budget
            // counts.
            let open = clients[client.id].pendingWake.map { _ in
                Lifecycle.Background.OpenWake(
                    wakeID: clients[client.id].lastWakeID, until: now + wakeBudget)
            }
            advance(client, at: now, into: &actions) { $0.enterBackground(enteringUntil: until, wake: open) }
            scheduleKeepAlive(client)
            return .done
        case .background:
            return .done  // it is there
        case .suspending, .suspended:
            callBack(client, at: now, into: &actions)
            return .done  // it is there
        case .notRunning, .terminating, .dormant, .launching:
            return .refused(.illegalState(clients[client.id].lifecycle.state))
        }
    }

    private mutating func enterForeground(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Answer {
        if mutated(.refusesForeground) { return .refused(.tooManyTasks) }
        switch clients[client.id].lifecycle.stage {
        case .active:
            return .done
        case .suspending where clients[client.id].isUnmodified,
            .suspended where clients[client.id].isUnmodified:
            resumeUnmodified(client, at: now, into: &actions)
            return .done
        case .suspending, .suspended:
            callBack(client, at: now, into: &actions)
            // It may have been terminated instead, if it was over the wake limit.
            guard clients[client.id].lifecycle.state != .terminating else {
                return .refused(.illegalState(.terminating))
            }
            fallthrough
        case .inactive, .background:
            advance(client, at: now, into: &actions) { $0.enterForeground() }
            clients[client.id].launches.isInBackground = false
            clients[client.id].assertions.restoreTime()
            scheduleKeepAlive(client)
            return .done
        case .notRunning, .terminating, .dormant, .launching:
            return .refused(.illegalState(clients[client.id].lifecycle.state))
        }
    }

    // MARK: Keep-alive and assertions

    private mutating func setKeepAliveTimeout(
        _ timeout: Duration, _ client: ClientID, at now: Instant
    ) -> Answer {
        guard clients[client.id].modes.contains(.voip) else { return .refused(.modeRequired(.voip)) }
        let minimum = max(settings.keepAlive.minimumTimeout, .milliseconds(1))
        guard timeout >= minimum else { return .refused(.timeoutTooShort(minimum: minimum)) }
        let maximum = max(Settings.KeepAlive.maximumTimeout, minimum)
        guard timeout <= maximum else { return .refused(.timeoutTooLong(maximum: maximum)) }
        clients[client.id].keepAlive = .init(timeout: timeout, base: elapsed(at: now))
        scheduleKeepAlive(client)
        return .done
    }

    private mutating func beginBackgroundTask(
        _ name: String, _ client: ClientID, _ key: RequestKey, at now: Instant
    ) -> Answer {
        if wasTakenIn(key, of: client),
            let task = clients[client.id].assertions.task(begunBy: key.request)
        {
            return .backgroundTask(task)
        }
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background:
            break
        case .notRunning, .suspending, .suspended, .terminating, .dormant, .launching:
            return .backgroundTask(nil)
        }
        let notice = settings.budgets.expirationNotice
        guard !clients[client.id].assertions.isTimeUp(at: now, notice: notice), !mutated(.grantsNoTasks)
        else {
            return .backgroundTask(nil)
        }
        guard clients[client.id].assertions.tasks.count < settings.quotas.backgroundTasksPerClient else {
            return .refused(.tooManyTasks)
        }
        if mutated(.restartsTaskClock) { clients[client.id].assertions.restoreTime() }
        recordTasks(client)
        return .backgroundTask(clients[client.id].assertions.begin(name, request: key.request))
    }

    private func timeLeft(_ client: ClientID, at now: Instant) -> Duration? {
        if mutated(.promisesEndlessTime) { return nil }
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active:
            return nil
        case .notRunning, .terminating, .dormant, .launching:
            return .zero
        case .background, .suspending, .suspended:
            if mutated(.promisesFullTime) { return settings.budgets.backgroundTasks }
            return clients[client.id].assertions.timeLeft(at: now, budget: settings.budgets.backgroundTasks)
        }
    }
}
