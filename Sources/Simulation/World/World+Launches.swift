import NightbellCore

/// The rules for clients without a process, and for their launches.
extension World {
    // MARK: Before an event

    /// The process of a client has ended, or could not be started.
    mutating func foreseeEnd(_ client: SimulatedClient, _ ending: Ending) {
        client.isTouched = true
        guard client.execution != .absent else { return }
        client.fate = fate(of: client, ending)
        client.execution = .absent
        client.isKilled = false
    }

    private mutating func fate(of client: SimulatedClient, _ ending: Ending) -> SimulatedClient.Fate {
        guard !core.isStopping else { return .forgotten }
        switch client.ending {
        case .quitByUser: return .forgotten
        case .launchOverran, .backgroundTasksOverran, .fetchOverran, .pushOverran: return fateOfCrash(client)
        case .tooManyWakes:
            guard client.registration.isLaunchable, client.mustBeReachable || client.hasSurvivors else {
                return .forgotten
            }
            if client.mustBeReachable { client.launchReasons.insert(.relaunched) }
            let linger = client.traffic.linger(settings.wakes)
            client.launchNotBefore = now + max(settings.launches.retry, linger)
            return .parked
        case .memoryPressure:
            guard client.registration.isLaunchable else { return .forgotten }
            let losesSomething = client.timeout != nil || !client.sockets.allSatisfy(\.survives)
            if losesSomething || client.mustBeReachable && client.sockets.isEmpty {
                client.launchReasons.insert(.relaunched)
            }
            return .parked
        case .hibernation, .exitsOnSuspend:
            client.restsByWish = true
            return client.registration.isLaunchable ? .parked : .forgotten
        case nil:
            switch ending {
            case .succeeded: return .forgotten
            case .failed: return fateOfCrash(client)
            case .notStarted: return fateOfObstacle(client, Supervision.pauseInShortage)
            case .programMissing:
                let pause = min(.seconds(10 << client.misses), Supervision.longestPauseWithoutProgram)
                client.misses = min(client.misses + 1, 5)
                return fateOfObstacle(client, pause)
            }
        }
    }

    private mutating func fateOfObstacle(
        _ client: SimulatedClient, _ pause: Duration
    ) -> SimulatedClient.Fate {
        guard client.registration.isLaunchable, client.mustBeReachable || client.hasSurvivors else {
            return .forgotten
        }
        client.launchNotBefore = now + max(settings.launches.retry, pause)
        if client.mustBeReachable { client.launchReasons.insert(.relaunched) }
        return .parked
    }

    /// Its program has not identified itself in time, and may be one that never does.
    private func isLeftAlone(_ client: SimulatedClient) -> Bool {
        client.launchUntil != nil && client.neverSpoke
            && core.view(of: client.id, at: now)?.launches.until == nil
    }

    private mutating func fateOfCrash(_ client: SimulatedClient) -> SimulatedClient.Fate {
        expect(client) { $0[.crashes] += 1 }
        client.misses = 0
        let hasRunLongEnough =
            isLeftAlone(client)
            ? elapsed >= client.launchedAt + settings.launches.settled
            : client.launchUntil == nil && now >= client.runsSince + settings.launches.settled
        if client.hasSettled || hasRunLongEnough {
            client.inRow = 0
            client.failuresAtStart = 0
        } else {
            client.failuresAtStart += 1
        }
        client.mustDropState = client.failuresAtStart >= 2 && client.stateBytes > 0
        guard client.registration.isLaunchable, client.mustBeReachable || client.hasSurvivors else {
            return .forgotten
        }
        guard client.inRow < settings.launches.relaunches else {
            expect(client) { $0[.gaveUp] += 1 }
            return .forgotten
        }
        var pause = settings.launches.retry
        for _ in 0..<client.inRow {
            pause = min(pause * 2, max(settings.launches.retry, settings.launches.retryMaximum))
        }
        client.inRow += 1
        client.launchNotBefore = now + pause
        if client.mustBeReachable { client.launchReasons.insert(.relaunched) }
        return .parked
    }

    /// A request or an event requires that a client is launched.
    mutating func foreseeWish(_ client: SimulatedClient, _ reasons: WakeReasons) {
        guard client.execution == .absent || client.isBeingLaunched(at: now) else { return }
        client.isTouched = true
        if client.execution == .absent {
            if reasons.contains(.socket), !client.launchReasons.contains(.socket) {
                let isUserOverLimit = traffic[client.user, default: UserTraffic()].note(
                    at: now, settings.wakes)
                let isOverLimit = client.traffic.note(
                    at: now, isUserOverLimit: isUserOverLimit, settings.wakes)
                if isOverLimit || isUserOverLimit { expect(client) { $0[.wakeLimitExceeded] += 1 } }
            }
            if reasons.contains(.request) { client.launchNotBefore = now }
        }
        client.launchReasons.formUnion(reasons)
    }

    /// A client that was declared in advance is to be launched, not before an instant.
    mutating func foreseeDeclaration(
        _ registration: Registration, _ notBefore: Instant?, _ reasons: WakeReasons
    ) {
        declared = registration
        declaredReasons = reasons
        declaredNotBefore = notBefore ?? Instant(nanoseconds: .min)
        let namesake = clients.first {
            $0.registration.identifier == registration.identifier && $0.user == registration.user
        }
        guard let namesake, namesake.execution == .absent, registration.isLaunchable else { return }
        namesake.isTouched = true
        let launches = core.view(of: namesake.id, at: now)?.launches
        let isQueued =
            !namesake.launchReasons.isEmpty && launches?.notBefore == nil
            && launches?.isWaitingForUnlock != true
        namesake.launchReasons.formUnion(reasons)
        // One that waits for its turn keeps that.
        if !isQueued { namesake.launchNotBefore = max(namesake.launchNotBefore, declaredNotBefore) }
    }

    mutating func foreseePressure(_ sizes: [ClientSize]) {
        guard !core.isStopping else { return }
        let pause = settings.memoryPressure.pause
        if now >= pressedUntil + pause { pressedUntil = now + pause }
        let asleep = sizes.compactMap { size -> (client: SimulatedClient, bytes: Int)? in
            guard let client = client(size.client), client.asleepSince != nil, !client.isKilled,
                client.registration.isLaunchable, !client.isUnmodified,
                core.state(of: client.id) == .suspended
            else { return nil }
            return (client, size.bytes)
        }
        let sorted = asleep.sorted {
            ($0.client.losesReach ? 1 : 0, -$0.bytes, $0.client.id.slot)
                < ($1.client.losesReach ? 1 : 0, -$1.bytes, $1.client.id.slot)
        }
        mustBeEnded = sorted.prefix(settings.memoryPressure.endsAtOnce).map(\.client)
    }

    /// A turn is over: the launches that waited for memory have had their turn.
    mutating func endPressure() {
        if now >= pressedUntil { pressedUntil = Self.unpressed }
    }

    // MARK: Actions

    mutating func makeDormant(_ id: ClientID) {
        guard let client = client(id) else { return violate(.launches, "park an unknown client") }
        client.isTouched = true
        require(.launches, client.fate == .parked, "\(client.name) is parked although it should not be")
        require(
            .launches, client.sockets.allSatisfy { $0.survives },
            "\(client.name) keeps sockets of its process")
        coverage.parked += 1
        if client.mayHearAgain { client.mayReuseNumber = true }
        client.mayHearAgain = false
        endSleep(client, isEnd: true)
        client.fate = nil
        client.ending = nil
        client.isAttempted = false
        client.dropPlans()
        client.entering = nil
        client.openWake = nil
        client.preparing = nil
        client.terminating = nil
        client.launchUntil = nil
        client.hibernates = false
        client.tasks = []
        client.clock = nil
        client.mediaUntil = Instant(nanoseconds: .min)
        client.timeout = nil
        client.setWindow(parameters)
        client.owed = []
        client.isUnlocked = false
        mustBeTold.removeAll { $0.client === client }
        mustHear.removeAll { $0.client === client }
        // Its next process is told of sockets that cannot work.
        let hasLost = client.sockets.contains { $0.isPathTold || $0.found.contains(.pathLost) }
        for socket in client.sockets { socket.isPathTold = false }
        if hasLost { client.inspection = max(client.inspection, .routes) }
        client.toRepeat.removeAll()
        client.isToRejoin = false
        client.hasSaidHelloAgain = false
        for socket in client.sockets { socket.isEnded = false }
        parkOffload(client)
    }

    mutating func launch(_ id: ClientID) {
        guard let client = client(id) else { return violate(.launches, "launch an unknown client") }
        client.isTouched = true
        let name = client.name
        require(.launches, client.execution == .absent, "\(name) is launched while it runs")
        require(.launches, !core.isStopping, "\(name) is launched by a supervisor that stops")
        require(.launches, !client.launchReasons.isEmpty, "\(name) is launched without a reason")
        require(.launches, now >= client.launchNotBefore, "\(name) is launched before its back-off is over")
        require(
            .launches, client.isUnlocked || isRestoring || !isLocked(client),
            "\(name) is launched before its user is there")
        client.isUnlocked = false
        require(
            .offload, !client.sockets.contains(where: \.isOffloaded),
            "\(name) is launched while its pings are handled")
        expect(client) { $0[.launches] += 1 }
        client.execution = .running
        client.launchUntil = now + settings.launches.budget
        let room = client.wishedRoom(settings)
        client.launchRoom = room
        client.runsSince = now
        client.launchedAt = elapsed
        client.hasSettled = false
        let underWay = underWay(in: room)
        require(
            .launches, underWay.count <= room.size(settings.launches),
            "\(name) is launched while the limit is reached")
        require(
            .launches,
            underWay.count { $0 == client.user } <= room.share(of: client.user, settings),
            "\(name) is launched while the limit of its user is reached")
        require(
            .launches, room.isUrgent || now >= pressedUntil, "\(name) is launched while memory is short")
        checkTurns(client, room)
        // The process identifies itself, soon, late or never; or the program cannot be started.
        if random.once(in: 8) {
            let endings: [Ending] = [.succeeded, .failed, .failed, .notStarted, .programMissing]
            queue.append((.ended(id, endings[random.below(endings.count)]), now))
        } else {
            plan(client, .rejoin, settings.launches.budget)
        }
    }

    /// A process has taken over the sockets and the state of its client.
    mutating func rejoined(_ id: ClientID) {
        guard let client = client(id), let registration = declared else {
            return violate(.launches, "an unknown client takes over")
        }
        client.misses = 0
        client.isTouched = true
        require(
            .launches, client.launchUntil != nil || client.execution == .absent,
            "\(client.name) is taken over while it runs")
        require(
            .offload, !client.sockets.contains(where: \.isOffloaded),
            "\(client.name) is taken over while its pings are handled")
        if client.execution == .absent {
            coverage.takenOver += 1
            client.hasSettled = false
            client.execution = .running
            client.stay = .inactive
        } else {
            coverage.rejoined += 1
            client.stay = registration.isUnmodified ? .inactive : .background
        }
        client.clock = nil
        client.runsSince = now
        client.neverSpoke = false
        client.isUnlocked = false
        // Requests to a previous supervisor have to be repeated; media activity is repeated all the time.
        client.mediaUntil = Instant(nanoseconds: .min)
        client.hibernates = false
        client.launchUntil = nil
        client.launchNotBefore = Instant(nanoseconds: .min)
        client.setUpUntil = now + settings.launches.budget
        client.isSetUp = client.stay != .background
        client.restsByWish = false
        client.registration = registration
        client.backgroundSince = elapsed
        client.timeout = registration.keepAliveTimeout.map { max($0, settings.keepAlive.minimumTimeout) }
        client.lastRun = elapsed
        client.setWindow(parameters)
        if !client.launchReasons.isEmpty { client.wokenAtStep = steps }
        client.mustHear = client.launchReasons
        client.launchReasons = []
        for token in client.owed { mustBeTold.append((client, token)) }
        client.owed = []
    }

    mutating func declare(_ id: ClientID) {
        guard let registration = declared else { return violate(.launches, "an undeclared client") }
        let client = add(id, registration)
        client.execution = .absent
        client.neverSpoke = true
        client.launchReasons = declaredReasons
        client.launchNotBefore = declaredNotBefore
    }

    mutating func storeState(_ id: ClientID) {
        guard let client = client(id) else { return violate(.counters, "state of an unknown client") }
        let others = clients.filter { $0.user == client.user && $0 !== client }.map(\.stateBytes).reduce(0, +)
        require(
            .counters,
            saved > 0 && saved <= settings.quotas.stateBytesPerClient
                && saved + others <= settings.quotas.stateBytesPerUser,
            "\(client.name) saves more than it may")
        client.stateBytes = saved
        isUsageTouched = true
    }

    mutating func dropState(_ id: ClientID) {
        guard let client = client(id) else { return violate(.counters, "no state of an unknown client") }
        if client.mustDropState {
            coverage.statesDropped += 1
        } else {
            require(.counters, saved == 0, "a saved state is dropped")
        }
        client.mustDropState = false
        client.stateBytes = 0
        isUsageTouched = true
    }

    // MARK: Turns

    /// The users of the launches under way within this limit.
    private func underWay(in room: LaunchRoom) -> [UserID] {
        clients.filter {
            $0.launchUntil != nil && !$0.isLeftAlone && !$0.isKilled
                && $0.execution != .absent && $0.launchRoom == room
        }.map(\.user)
    }

    /// While a user's launch waits, each other user may have one launch before it.
    private mutating func checkTurns(_ client: SimulatedClient, _ room: LaunchRoom) {
        waiting[Waiting(user: client.user, room: room)] = nil
        for turn in Array(waiting.keys) where turn.room == room && isWaiting(turn.user, for: room) {
            let turns = (waiting[turn]?[client.user] ?? 0) + 1
            waiting[turn]?[client.user] = turns
            require(.launches, turns < 2, "\(client.name) is launched when it is another user's turn")
        }
    }

    /// A request in the same turn may have made its launches urgent, which have a limit of their own.
    private func isWaiting(_ user: UserID, for room: LaunchRoom) -> Bool {
        clients.contains {
            $0.user == user && $0.execution == .absent && !$0.launchReasons.isEmpty
                && ($0.isUnlocked || !isLocked($0)) && $0.wishedRoom(settings) == room
        }
    }

    // MARK: After a turn

    mutating func checkLaunches() {
        guard !core.isStopping else { return }
        let before = waiting
        waiting.removeAll()
        for client in clients {
            require(.launches, client.fate == nil, "the end of \(client.name) has had no consequence")
            require(.launches, !client.mustDropState, "\(client.name) keeps the state that makes it crash")
            if let until = client.launchUntil, !client.isKilled {
                require(.launches, now < until, "\(client.name) takes too long to identify itself")
            }
            guard client.execution == .absent, !client.launchReasons.isEmpty, now >= client.launchNotBefore,
                isUnlocked(client)
            else { continue }
            let room = client.wishedRoom(settings)
            let underWay = underWay(in: room)
            let ofUser = underWay.count { $0 == client.user }
            guard ofUser < room.share(of: client.user, settings) else { continue }
            let hasRoom = underWay.count < room.size(settings.launches)
            require(
                .launches, !hasRoom || !room.isUrgent && now < pressedUntil,
                "\(client.name) waits to be launched, with no launch before it")
            let turn = Waiting(user: client.user, room: room)
            waiting[turn] = before[turn] ?? [:]
        }
        endPressure()
        require(.launches, mustBeEnded.isEmpty, "not enough are ended while memory is short")
        mustBeEnded.removeAll()
    }
}
