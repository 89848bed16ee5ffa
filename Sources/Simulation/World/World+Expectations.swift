import NightbellCore

/// The expected consequences of an event, from the rules and not from the core.
extension World {
    /// Before an event is fed: notes the budgets that are over, the pending wakes and the pending answers.
    mutating func foresee(_ event: Event) {
        coverage.events += 1
        isTraffic = event.isTraffic
        switch event {
        case .registration(let registration, let key):
            unanswered.append((key, nil))
            asked = Asked(isNew: true)
            registrations[key] = registration
            declared = registration
        case .message(let message, let id, let key):
            guard let client = client(id) else { return }
            ask(message, client)
            if key.isRepeated { coverage.repetitions += 1 }
            if isAnswerDue(key) { unanswered.append((key, id)) }
            sent[key] = message
            client.isTouched = true
            noteTime(client)
            guard client.hasSpoken else { return }
            // A client that sends a message has received its welcome.
            noteWelcome(id)
            if case .release = message { releasing = client }
            if case .handOver(let offers) = message { offered = offers }
            if case .saveState(let byteCount) = message { saved = byteCount }
            // It is thawed, which is no wake.
            if case .enterForeground = message, client.isUnmodified, isAnswerDue(key), client.freezing != nil,
                !client.isKilled
            {
                client.isFailing = true
            }
        case .command(let command, let id, let key):
            unanswered.append((key, nil))
            asked = Asked(command: command, client: client(id))
            guard let client = client(id) else { return }
            client.isTouched = true
            noteTime(client)
            // Administrators may cut lingering short.
            if command == .suspend {
                client.lingerUntil = Instant(nanoseconds: .min)
                client.isSetUp = true
            }
            let isWoken = command == .wake && !(client.state == .launching && client.isLeftAlone)
            if isWoken || (command == .launch && client.execution == .absent) {
                foreseeWish(client, .request)
            }
            foreseeSimulated(command, client)
            if command == .quit {
                client.ending = .quitByUser
                if client.execution == .absent { client.fate = .forgotten }
            }
        case .fired(let token, let conditions), .thawedEarly(let token, let conditions):
            guard let socket = socket(token) else { return }
            socket.isQueued = false
            // The edge no longer watches it, even if the conditions are out of date by now.
            socket.isWatched = false
            let client = socket.owner
            client.isTouched = true
            if client.execution == .absent || client.launchUntil != nil, !client.isKilled {
                noteTime(client)
                let isWaitedFor = client.execution == .absent || client.isBeingLaunched(at: now)
                guard !conditions.isEmpty, isWaitedFor else { return }
                foreseeWish(client, .socket)
                return client.owed.append(token)
            }
            let wasPreparing = client.preparing != nil
            noteTime(client)
            // If its time to prepare is over at this moment, it is stopped first.
            let isForced = wasPreparing && client.preparing == nil
            let sleeps = (client.execution != .running && !client.isFailing) || isForced
            if sleeps || hasBeenWoken(client), !conditions.isEmpty, !client.isKilled {
                mustBeTold.append((client, token))
            }
        case .simulate(_, _, _, let key):
            unanswered.append((key, nil))
        case .frozen(let id, let epoch):
            guard let client = client(id), let freezing = client.freezing, freezing.number == epoch,
                client.asleepSince == nil, !client.isKilled
            else { return }
            client.isTouched = true
            client.asleepSince = elapsed
            client.owesSuspended = client.isUnmodified
            client.isAttempted = false
            client.clock = nil
            expect(client) { $0[.suspensions] += 1 }
        case .freezeFailed(let id, let epoch):
            guard let client = client(id), client.freezing?.number == epoch, client.asleepSince == nil,
                !client.isKilled
            else { return }
            fail(client)
        case .foundRunning(let id):
            guard let client = client(id), client.asleepSince != nil, !client.isKilled else { return }
            client.isTouched = true
            // Its suspension counts as cancelled, and its next thaw is no wake.
            client.isAttempted = true
            client.isFailing = true
        case .inspected(let token, let inspection):
            foresee(inspection, token)
        case .offloadBegan(let token, let terms, _):
            guard core.isOffloading(token), let socket = socket(token) else { return }
            socket.hasTerms = terms != nil
            socket.restedAt = elapsed
            if socket.isAwaiting, let within = terms?.answerWithin { socket.answerUntil = elapsed + within }
        case .pingFailed(let token):
            foreseePingFailed(token)
        case .pingOmitted(let token):
            foreseePingOmitted(token)
        case .delegatedStateLost(let token):
            foreseeDelegatedStateLost(token)
        case .answerLookedFor(let token):
            foreseeAnswerLookedFor(token)
        case .notFrozenYet(let id, _):
            client(id)?.isTouched = true
        case .gone(let id):
            client(id)?.isTouched = true
            client(id)?.fate = .forgotten
        case .ended(let id, let ending):
            if let client = client(id) { foreseeEnd(client, ending) }
        case .rejoined(let id, let registration, let key):
            unanswered.append((key, nil))
            asked = Asked(client: client(id))
            registrations[key] = registration
            declared = registration
            if let client = client(id) { noteTime(client) }
        case .launch(let registration, let key):
            if let key { unanswered.append((key, nil)) }
            declared = registration
            declaredReasons = key == nil ? .launched : .request
            declaredNotBefore = Instant(nanoseconds: .min)
            asked = Asked(refusal: refusalOfLaunch(registration))
            let namesake = clients.first {
                $0.registration.identifier == registration.identifier && $0.user == registration.user
            }
            if let namesake, namesake.execution == .absent { foreseeWish(namesake, declaredReasons) }
        case .declare(let registration, let notBefore, let reasons):
            foreseeDeclaration(registration, notBefore, reasons)
        case .quitAbsent:
            break  // no client is from before the first supervisor
        case .disown(let identifier, let key):
            unanswered.append((key, nil))
            asked = Asked(refusal: refusalToDisown(identifier))
            let client = clients.first { $0.registration.identifier == identifier }
            if let client {
                guard client.execution == .absent else { return }
                client.isTouched = true
                client.fate = .forgotten
            }
            if let owner = owners.removeValue(forKey: identifier) {
                disowned[identifier] = owner
                coverage.disowned += 1
            }
        case .memoryPressure(let sizes):
            foreseePressure(sizes)
        case .timer:
            foreseePartial()
            for client in clients { noteTime(client) }
        case .fact(let fact):
            foresee(fact)
        case .pathsInspected(let id, let broken):
            if let client = client(id) { foreseeInspection(of: client, broken) }
        case .machineSlept(let total):
            foreseeResumption(total)
        case .stop:
            for client in clients { client.isTouched = true }
        }
    }

    /// It was thawed in this turn, and is told of its wake in this turn: a socket that fires now belongs to
    /// that wake or to another one.
    func hasBeenWoken(_ client: SimulatedClient) -> Bool {
        [client.wokenAtStep, client.toldAtStep].contains(steps) && core.state(of: client.id) == .background
    }

    private mutating func fail(_ client: SimulatedClient) {
        client.isTouched = true
        client.isFailing = true
        expect(client) { $0[.suspensionsFailed] += 1 }
    }

    /// Applies the passing of time to a client, before any other event.
    mutating func noteTime(_ client: SimulatedClient) {
        // The clock of its tasks starts when media lapses, even if the tasks end in this same turn.
        startClock(client)
        let isOver = client.clock.map { $0.isWarned && now >= $0.until } ?? false
        client.tasksAreOver = !client.tasks.isEmpty && isOver

        guard !core.isStopping else { return }
        if let entering = client.entering, now >= entering.until {
            expect(client) { $0[.overrunsEnteringBackground] += 1 }
            client.entering = nil
        }
        if let wake = client.openWake, now >= wake.until {
            if !client.holds(at: now) { expect(client) { $0[.overrunsWake] += 1 } }
            client.openWake = nil
            linger(client)
        }
        if let preparing = client.preparing, now >= preparing.until {
            expect(client) {
                $0[.overrunsPrepare] += 1
                $0[.suspensionsForced] += 1
            }
            client.preparing = nil
        } else if let freezing = client.freezing, client.asleepSince == nil, !client.isFailing,
            now >= freezing.until
        {
            fail(client)
        }
        if let until = client.launchUntil, now >= until, !client.isKilled {
            expect(client) { $0[.overrunsLaunch] += 1 }
            if client.neverSpoke {
                client.launchUntil = .distantFuture
            }
        }
        if let terminating = client.terminating, now >= terminating.until, !client.isKilled {
            expect(client) { $0[.overrunsTermination] += 1 }
        }
    }

    /// Applies the message of a client, before the actions that it causes.
    mutating func hear(_ event: Event) {
        switch event {
        case .command(.wake, let id, _):
            if let client = client(id) { client.wokenAtStep = steps }
        case .stop:
            for client in clients { client.wokenAtStep = steps }
        case .registration, .message, .command, .fired, .thawedEarly, .inspected, .offloadBegan, .pingFailed,
            .pingOmitted, .delegatedStateLost, .answerLookedFor, .frozen, .notFrozenYet, .freezeFailed,
            .foundRunning, .simulate,
            .gone,
            .timer, .machineSlept, .fact, .pathsInspected, .ended, .rejoined,
            .launch, .declare, .quitAbsent, .disown, .memoryPressure:
            break
        }
        guard case .message(let message, let id, let key) = event, let client = client(id), isAnswerDue(key),
            client.hasSpoken
        else { return }
        switch message {
        case .wakeDone(let number):
            if let open = client.openWake, open.number <= number, client.wokenAtStep != steps {
                client.openWake = nil
                linger(client)
            }
        case .backgroundEntered:
            client.entering = nil
        case .readyToSuspend(let epoch, let notIdle):
            guard client.preparing?.number == epoch else { break }
            client.preparing = nil
            client.readyAtStep = steps
            if notIdle.isEmpty { client.vouchedEpoch = epoch }
        case .setKeepAliveTimeout(let timeout)
        where key.isRepeated && held.carriedOut.contains(key.request)
            && client.timeout?.nanoseconds == timeout.nanoseconds:
            break  // it counts from its first execution
        case .setKeepAliveTimeout(let timeout)
        where timeout >= settings.keepAlive.minimumTimeout && timeout <= Settings.KeepAlive.maximumTimeout
            && client.registration.modes.contains(.voip):
            client.timeout = timeout
            client.lastRun = elapsed
            client.setWindow(parameters)
        case .hibernate:
            if client.registration.isLaunchable { client.hibernates = true }
        case .clearKeepAliveTimeout:
            client.timeout = nil
            client.setWindow(parameters)
        case .setKeepAliveTimeout, .mediaActivity, .handOver, .release, .enterBackground, .enterForeground,
            .beginBackgroundTask, .endBackgroundTask, .backgroundTimeRemaining, .setMinimumFetchInterval,
            .fetchDone, .pushDone, .observe, .stopObserving, .schedule, .cancelNotifications, .setBadge,
            .saveState, .restartNoted:
            break
        }
    }

    mutating func take(_ answer: Answer, _ id: ClientID, _ key: RequestKey) {
        guard let client = client(id) else { return violate(.answers, "an answer to an unknown client") }
        client.isTouched = true
        guard let message = sent[key] else { return violate(.answers, "an answer without a message") }
        require(
            .answers, isRight(answer, to: message, of: client, key),
            "\(client.name) says \(TraceFormat.words(message)) and is answered \(answer)")
        switch answer {
        case .backgroundTask(let task?) where key.isRepeated && client.tasks.contains(task):
            break  // begun for a request that was not answered
        case .backgroundTask(let task?):
            require(.tokens, !client.tasks.contains(task), "task \(task) is granted twice")
            client.tasks.append(task)
            require(
                .counters, client.tasks.count <= settings.quotas.backgroundTasksPerClient,
                "more tasks than the quota allows")
        case .refused(let refusal):
            coverage.refusals += 1
            let wasCarriedOut = key.isRepeated && held.carriedOut.contains(key.request)
            // A client that is being ended enters no other state, whatever its state was when it first asked.
            let isBeingEnded = refusal == .illegalState(.terminating)
            require(
                .answers, !wasCarriedOut || isBeingEnded, "an executed request is refused: \(refusal)")
        case .done:
            // It will be repeated, to this supervisor or to the next one.
            if held.unread.contains(key.request) { held.carriedOut.insert(key.request) }
            take(message, client)
        case .backgroundTask(nil), .backgroundTimeLeft, .scheduled:
            break
        }
    }

    /// Applies a request that was carried out.
    private func take(_ message: ClientMessage, _ client: SimulatedClient) {
        switch message {
        case .enterForeground:
            client.stay = .active
            client.isSetUp = true
            client.clock = nil
        case .endBackgroundTask(let task):
            guard client.tasks.contains(task) else { break }
            client.tasks.removeAll { $0 == task }
            if client.tasks.isEmpty, core.state(of: client.id) == .background { linger(client) }
        case .mediaActivity:
            foreseeClaim(of: client)
        case .handOver, .release, .enterBackground, .backgroundEntered, .setKeepAliveTimeout,
            .clearKeepAliveTimeout, .beginBackgroundTask, .backgroundTimeRemaining, .readyToSuspend,
            .wakeDone, .setMinimumFetchInterval, .fetchDone, .pushDone, .observe, .stopObserving, .schedule,
            .cancelNotifications, .setBadge, .saveState, .hibernate, .restartNoted:
            break
        }
    }

    /// The client lingers, because its last message may get an answer.
    private func linger(_ client: SimulatedClient) {
        client.lingerUntil = max(client.lingerUntil, now + client.traffic.linger(settings.wakes))
    }

    /// A client that was stopped, or being stopped, runs again or ends; returns whether it must be ended for
    /// too many wakes.
    @discardableResult
    mutating func endSleep(_ client: SimulatedClient, isEnd: Bool) -> Bool {
        defer {
            client.freezing = nil
            client.asleepSince = nil
            client.isFailing = false
        }
        if let since = client.asleepSince {
            let asleepFor = UInt64(max(0, elapsed.since(since).nanoseconds))
            expect(client) { $0.asleepNanoseconds += asleepFor }
        }
        guard !isEnd, !client.isFailing, client.freezing != nil else { return false }
        hasThawed = true
        client.wokenAtStep = steps
        guard isTraffic, !client.isUnmodified else { return false }
        let isUserOverLimit = traffic[client.user, default: UserTraffic()].note(at: now, settings.wakes)
        let isOverLimit = client.traffic.note(
            at: now, isUserOverLimit: isUserOverLimit, settings.wakes)
        if isOverLimit || isUserOverLimit { expect(client) { $0[.wakeLimitExceeded] += 1 } }
        return isOverLimit && client.registration.wakeLimitPolicy == .terminate
    }

    /// After an event: updates the clients that it concerned.
    mutating func keepUp(isTimer: Bool) {
        for client in clients where isTimer || client.isTouched { keepUp(client) }
    }

    private mutating func keepUp(_ client: SimulatedClient) {
        // It may have been warned in the same event, before.
        if client.mediaUntil == .distantFuture { client.clock = nil }
        startClock(client)
        switch core.state(of: client.id) {
        case .background:
            client.preparing = nil
            cancelAttempt(client)
        case .suspending:
            client.entering = nil
            client.openWake = nil
            client.busyAt = now
        case .inactive, .active:
            cancelAttempt(client)
            leaveBackground(client)
        case .suspended:
            client.hasSettled = true
            client.isAttempted = false
            leaveBackground(client)
        case .notRunning, .terminating, .dormant, .launching:
            client.isAttempted = false
            leaveBackground(client)
        }
    }

    /// The clock of its tasks runs from the first one in the background, while no media plays.
    private func startClock(_ client: SimulatedClient) {
        guard client.clock == nil, !client.tasks.isEmpty, now >= client.mediaUntil, client.isInBackground,
            !core.isStopping, !isRestoring
        else { return }
        client.clock = .init(until: now + settings.budgets.backgroundTasks)
    }

    /// An attempt to suspend the client has failed.
    mutating func cancelAttempt(_ client: SimulatedClient) {
        guard client.isAttempted else { return }
        client.isAttempted = false
        expect(client) { $0[.suspensionsCancelled] += 1 }
    }

    private func leaveBackground(_ client: SimulatedClient) {
        client.entering = nil
        client.openWake = nil
        client.preparing = nil
        client.lingerUntil = Instant(nanoseconds: .min)
    }
}
