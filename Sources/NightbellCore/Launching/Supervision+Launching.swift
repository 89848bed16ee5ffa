/// Launches clients, and tracks their launches.
extension Supervision {
    /// Queues the launch of a client without a process.
    mutating func requestLaunch(
        _ client: ClientID, _ reasons: WakeReasons, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard case .dormant(let dormant) = clients[client.id].lifecycle.stage else { return }
        clients[client.id].launches.reasons.formUnion(reasons)
        switch dormant {
        case .resting:
            enqueue(client, isUrgent: reasons.isUrgent)
        case .waiting:
            // A request does not wait for the pause. Traffic does: it may be the cause of the failure.
            if reasons.contains(.request) { enqueue(client, isUrgent: true) }
        case .queued:
            // Its old entry in the queue does not delay those behind it.
            let isUrgent = clients[client.id].launches.kind.isUrgent
            // Its user was there when it was queued, even if that is unknown now.
            if reasons.isUrgent, !isUrgent { enqueue(client, isUrgent: true, inSpiteOfLock: true) }
        }
    }

    mutating func enqueue(_ client: ClientID, isUrgent: Bool, inSpiteOfLock: Bool = false) {
        clients[client.id].launches.isLeft = false
        // It keeps its reasons, and is queued when its user is unlocked.
        guard inSpiteOfLock || !isLocked(client) else {
            return clients[client.id].lifecycle.becomeDormant(.resting)
        }
        clients[client.id].lifecycle.becomeDormant(.queued)
        let kind = setKind(client, isUrgent: isUrgent)
        launchQueue.append(client, of: clients[client.id].user, kind)
    }

    /// Sets the kind of a launch. The same reasons give the same kind, whatever else happens until its
    /// process exists.
    mutating func setKind(_ client: ClientID, isUrgent: Bool) -> LaunchQueue.Kind {
        let isDeclared = !isUrgent && clients[client.id].launches.reasons.areDeclared
        let isPrivileged = isDeclared || settings.isAdministrator(clients[client.id].user)
        let kind = LaunchQueue.Kind(isUrgent: isUrgent, isPrivileged: isPrivileged)
        clients[client.id].launches.kind = kind
        return kind
    }

    /// The pause after a failure is over.
    mutating func endPause(_ client: ClientID, at now: Instant) {
        let reasons = clients[client.id].launches.reasons
        if reasons.isEmpty {
            clients[client.id].lifecycle.becomeDormant(.resting)
            scheduleFetch(client, at: now)
        } else {
            enqueue(client, isUrgent: reasons.isUrgent)
        }
    }

    /// Ends a turn: launches as many clients as the limits permit.
    mutating func startLaunches(at now: Instant, into actions: inout ActionBuffer) {
        if !isMemoryShort(at: now) { pressedUntil = Self.unpressed }
        while let (client, kind) = launchQueue.next(
            settings, isPressed: isMemoryShort(at: now), sharing: !mutated(.launchesBeyondShares))
        {
            guard clients.contains(client.id), clients[client.id].launches.kind == kind,
                case .dormant(.queued) = clients[client.id].lifecycle.stage
            else { continue }
            let until = now + settings.launches.budget
            let user = clients[client.id].user
            if !mutated(.launchesAll) { launchQueue.begin(user, kind) }
            launchQueue.passTurn(of: user, kind)
            clients[client.id].launches.hasSettled = false
            count(.launches, of: client)
            advance(client, at: now, into: &actions) { $0.launch(until: until) }
            actions.append(.trace(client, .launching(clients[client.id].launches.reasons)))
            endOffloads(client, into: &actions)
            actions.append(.launch(client))
            suspendIfIdle(client, at: now, into: &actions)
        }
    }

    /// Its program was started, and has not said Hello in time. A client that has done so before is killed
    /// and launched again. Otherwise the program may be one that never will: it keeps running, and frees its
    /// launch slot.
    mutating func endLaunchTime(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard clients[client.id].launches.neverSpoke, !mutated(.endsSilentPrograms) else {
            return kill(client, .launchOverran, at: now, into: &actions)
        }
        advance(client, at: now, into: &actions) { $0.leaveSilent() }
        actions.append(.trace(client, .doesNotSpeak))
    }

    /// When launches that wait only for memory may begin again.
    var launchDeadline: Instant? {
        launchQueue.hasOthers && pressedUntil != Self.unpressed ? pressedUntil : nil
    }

    /// The value of `pressedUntil` without memory pressure.
    static var unpressed: Instant { Instant(nanoseconds: .min) }

    // MARK: Declared clients

    /// Launches a client that was declared in advance.
    mutating func launch(
        _ registration: Registration, _ key: RequestKey?, at now: Instant, into actions: inout ActionBuffer
    ) {
        let refusal = prepareLaunch(registration, isRequested: key != nil, at: now, into: &actions)
        if let key { actions.append(.commandAnswer(refusal, key)) }
    }

    private mutating func prepareLaunch(
        _ registration: Registration, isRequested: Bool, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        let reasons: WakeReasons = isRequested ? .request : .launched
        if let client = owners[registration.identifier]?.client,
            owners[registration.identifier]?.user == registration.user
        {
            requestLaunch(client, reasons, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
            return nil  // it runs, or will
        }
        guard registration.isLaunchable else { return .cannotLaunch }
        if let refusal = refusal(of: registration) { return refusal }
        let client = insertDeclared(registration, .resting, at: now, into: &actions)
        requestLaunch(client, reasons, at: now, into: &actions)
        suspendIfIdle(client, at: now, into: &actions)
        return nil
    }

    private mutating func insertDeclared(
        _ registration: Registration, _ dormant: Lifecycle.Dormant, at now: Instant,
        into actions: inout ActionBuffer
    ) -> ClientID {
        let client = insert(registration, at: now)
        clients[client.id].launches.isRejoined = false
        clients[client.id].launches.neverSpoke = true
        recordBeginning(client)
        actions.append(.declared(client))
        actions.append(.trace(client, .registered))
        advance(client, at: now, into: &actions) { $0.becomeDormant(dormant) }
        return client
    }

    /// Adds a declared client without a process. The rules of what comes for it say whether it is launched, unless there
    /// are reasons.
    mutating func declare(
        _ registration: Registration, notBefore: Instant?, _ reasons: WakeReasons, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        guard registration.isLaunchable, owners[registration.identifier]?.isQuit != true else { return }
        let notBefore = notBefore.flatMap { $0 > now ? $0 : nil }
        if let owner = owners[registration.identifier], owner.user == registration.user,
            let client = owner.client
        {
            return launchLater(client, notBefore: notBefore, reasons, at: now, into: &actions)
        }
        guard refusal(of: registration) == nil else { return }
        let dormant: Lifecycle.Dormant = notBefore.map { .waiting(until: $0) } ?? .resting
        let client = insertDeclared(registration, dormant, at: now, into: &actions)
        if notBefore == nil, !reasons.isEmpty {
            requestLaunch(client, reasons, at: now, into: &actions)
        } else {
            clients[client.id].launches.reasons = reasons
        }
        suspendIfIdle(client, at: now, into: &actions)
    }

    /// A client without a process gets reasons to be launched, and a pause.
    private mutating func launchLater(
        _ client: ClientID, notBefore: Instant?, _ reasons: WakeReasons, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        guard case .dormant(let dormant) = clients[client.id].lifecycle.stage, !reasons.isEmpty else {
            return
        }
        guard let notBefore else {
            requestLaunch(client, reasons, at: now, into: &actions)
            return suspendIfIdle(client, at: now, into: &actions)
        }
        clients[client.id].launches.reasons.formUnion(reasons)
        let until: Instant
        switch dormant {
        case .queued: return
        case .resting: until = notBefore
        case .waiting(let end): until = max(end, notBefore)
        }
        advance(client, at: now, into: &actions) { $0.becomeDormant(.waiting(until: until)) }
        suspendIfIdle(client, at: now, into: &actions)
    }

    // MARK: The new process

    /// A launched process identifies itself. It starts in the background, where it is told why it was
    /// launched; an unmodified program starts as if its user had started it, and runs until it is found idle.
    mutating func rejoin(
        _ client: ClientID, _ registration: Registration, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        guard !isStopping else { return actions.append(.refuseRegistration(.shuttingDown, key)) }
        guard case .launching = clients[client.id].lifecycle.stage,
            clients[client.id].owner == owners.place(of: registration.identifier),
            clients[client.id].user == registration.user
        else { return actions.append(.refuseRegistration(.identifierInUse, key)) }
        takeOver(client, registration, key, at: now, into: &actions) {
            registration.isUnmodified ? $0.register() : $0.rejoin()
        }
    }

    /// A process takes over the state kept from the previous one. It was launched by the supervisor, or
    /// started by its user.
    mutating func takeOver(
        _ client: ClientID, _ registration: Registration, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer, _ input: (inout Lifecycle) -> Void
    ) {
        endOffloads(client, into: &actions)
        endTasks(client)
        countWishes(of: client, -1)
        clients[client.id].takeOver(permitted(registration), at: now, elapsed: elapsed(at: now))
        countWishes(of: client, 1)
        let modes = clients[client.id].modes
        endObservations(of: client) { modes.contains($0.mode) }
        observeIssues(client, at: now)
        forgetPushReport(of: client)
        // Without those of observations that it has no more.
        let reasons = clients[client.id].launches.reasons.subtracting(
            .ofObservations.subtracting(observedReasons(of: client)))
        clients[client.id].launches.reasons = []
        clients[client.id].lastRequest = key.request
        // A process that may have been welcomed may have sent requests since. Only its handed-over sockets
        // were kept.
        let adoptions = inherited.removeValue(forKey: client)?.adoptions ?? [:]
        if clients[client.id].launches.mayHaveBeenTold {
            inherited[client] = InheritedRequests(last: 0, adoptions: adoptions)
        }
        setQuit(false, registration.identifier)
        recordBeginning(client)
        actions.append(.rejoined(client, key))
        actions.append(.trace(client, .rejoined))
        advance(client, at: now, into: &actions, input)
        clients[client.id].launches.isInBackground = clients[client.id].lifecycle.state == .background
        if mutated(.forgetsWhatLaunched) { clients[client.id].fired.removeAll() }
        if !reasons.isEmpty { wake(client, reasons, at: now, into: &actions) }
        if clients[client.id].launches.mayHaveBeenTold, clients[client.id].pendingWake != nil {
            clients[client.id].pendingWake = .repeated
        }
        clients[client.id].launches.mayHaveBeenTold = false
        // The process is told of the ends with this wake.
        for token in clients[client.id].sockets where sockets[token.id].condition.isPastEnd { noteEnd(token) }
        scheduleKeepAlive(client)
        tellNotifications(of: client, at: now)
    }

    // MARK: State

    mutating func saveState(_ byteCount: Int, _ client: ClientID, into actions: inout ActionBuffer) -> Answer
    {
        guard clients[client.id].isLaunchable else { return .refused(.cannotLaunch) }
        let user = clients[client.id].user
        let before = Int(clients[client.id].launches.stateBytes)
        let limit = min(settings.quotas.stateBytesPerClient, roomForState(of: client))
        guard byteCount <= limit else { return .refused(.stateTooLarge(limit: limit)) }
        let left = settings.quotas.stateBytesPerUser - (users[user]?.stateBytes ?? 0) + before
        guard byteCount <= left else { return .refused(.stateTooLarge(limit: max(0, left))) }
        setStateSize(byteCount, client)
        actions.append(byteCount == 0 ? .dropState(client) : .storeState(client))
        return .done
    }

    mutating func dropState(_ client: ClientID, into actions: inout ActionBuffer) {
        guard clients[client.id].launches.stateBytes > 0 else { return }
        setStateSize(0, client)
        actions.append(.trace(client, .stateDropped))
        actions.append(.dropState(client))
    }

    private mutating func setStateSize(_ byteCount: Int, _ client: ClientID) {
        let before = Int(clients[client.id].launches.stateBytes)
        clients[client.id].launches.stateBytes = Int32(clamping: byteCount)
        users[clients[client.id].user]?.stateBytes += Int(Int32(clamping: byteCount)) - before
    }
}

extension WakeReasons {
    /// Whether a peer or a request is waiting for the client.
    var isUrgent: Bool { !isDisjoint(with: [.socket, .request, .unanswered, .pathLost, .notification]) }

    /// Whether an administrator has declared its launch, and it has not failed since.
    var areDeclared: Bool { contains(.launched) && !contains(.relaunched) }
}
