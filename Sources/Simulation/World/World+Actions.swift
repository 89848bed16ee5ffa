import NightbellCore

/// Execution of the core's actions by a simulated edge and kernel.
extension World {
    mutating func carryOut(_ action: Action) {
        coverage.actions += 1
        switch action {
        case .registered(let id, let key):
            mix(1, id.rawValue)
            answered(key, id, isRegistration: true)
            register(id, key)
        case .refuseRegistration(let refusal, let key):
            mix(2, key.request)
            answered(key, nil, isRegistration: true)
            coverage.refusals += 1
            refuseRegistration(refusal, key)
        case .answer(let answer, let id, let key):
            mix(3, id.rawValue)
            answered(key, id)
            take(answer, id, key)
        case .handedOver(let range, let id, let key):
            mix(4, id.rawValue)
            adopt(range, id, key)
            if isLastMoment() { return }
            log.flush()
            // It is stored by then, but no answer was sent.
            if !isLastMoment() { answered(key, id) }
        case .commandAnswer(let refusal, let key):
            mix(5, key.request)
            answered(key, nil)
            take(refusal)
        case .notify(let id, let notice):
            mix(6, id.rawValue)
            guard let client = client(id) else { return violate(.answers, "notice to an unknown client") }
            client.isTouched = true
            noteWelcome(id)
            if fault == .wakeLost, case .wake = notice, random.once(in: 16) { return }
            told(client, notice)
            if case .wake(let wake) = notice, !isLastMoment() { log.storeToldWake(wake.wakeID, of: id) }
        case .arm(let token):
            mix(7, token.rawValue)
            arm(token)
        case .inspectPaths(let id):
            mix(21, id.rawValue)
            inspectPaths(id)
        case .armPastEnd(let token):
            mix(19, token.rawValue)
            armPastEnd(token)
        case .beginOffload(let token):
            mix(15, token.rawValue)
            beginOffload(token)
        case .endOffload(let token):
            mix(16, token.rawValue)
            endOffload(token)
        case .ping(let token, let again):
            mix(17, token.rawValue)
            ping(token, again: again)
        case .lookForAnswer(let token):
            mix(18, token.rawValue)
            lookForAnswer(token)
        case .close(let token, _):
            mix(8, token.rawValue)
            close(token)
        case .freeze(let id, let epoch):
            mix(9, epoch)
            freeze(id, epoch)
        case .checkFreeze(let id, let epoch):
            mix(10, epoch)
            guard let client = client(id) else { return violate(.frozen, "check an unknown client") }
            require(.frozen, client.execution == .stopping, "\(TraceFormat.name(id)) is not being frozen")
            stop(client, epoch)
        case .thaw(let id):
            mix(11, id.rawValue)
            thaw(id)
        case .kill(let id, let reason):
            mix(12, id.rawValue)
            kill(id, reason)
        case .forget(let id, _, _):
            mix(13, id.rawValue)
            forget(id)
        case .makeDormant(let id):
            mix(15, id.rawValue)
            makeDormant(id)
        case .launch(let id):
            mix(16, id.rawValue)
            launch(id)
        case .rejoined(let id, let key):
            mix(17, id.rawValue)
            answered(key, nil, isRegistration: true)
            registrations[key] = nil
            rejoined(id)
        case .declared(let id):
            mix(18, id.rawValue)
            declare(id)
        case .storeState(let id):
            mix(19, id.rawValue)
            storeState(id)
        case .dropState(let id):
            mix(20, id.rawValue)
            dropState(id)
        case .trace(let id, let trace):
            mix(14, id.rawValue)
            client(id)?.isTouched = true
            if case .tooManyWakes = trace { note("too many wakes of \(TraceFormat.name(id))") }
        }
    }

    private mutating func mix(_ kind: UInt64, _ value: UInt64) {
        digest.mix(UInt64(bitPattern: now.nanoseconds))
        digest.mix(kind << 56 ^ value)
    }

    /// Every request is answered once, and only its sender gets the answer.
    private mutating func answered(_ key: RequestKey, _ id: ClientID?, isRegistration: Bool = false) {
        guard let index = unanswered.firstIndex(where: { $0.key == key }) else {
            return violate(.answers, "an answer to the unknown request \(key.request)")
        }
        let request = unanswered.remove(at: index)
        if !isRegistration {
            require(.answers, request.sender == id, "request \(key.request) is answered to another client")
        }
    }

    // MARK: Sockets

    private mutating func adopt(_ range: Range<Int>, _ id: ClientID, _ key: RequestKey) {
        guard let client = client(id) else { return violate(.answers, "sockets of an unknown client") }
        isUsageTouched = true
        guard range.count == offered.count else { return violate(.answers, "\(range.count) outcomes") }
        let former = adoptedFor[key.request] ?? []
        adoptedFor[key.request] = actions.adoptions[range].map { try? $0.get() }
        for (index, (outcome, offer)) in zip(actions.adoptions[range], offered).enumerated() {
            switch outcome {
            case .success(let token) where former.contains(token):
                require(.answers, key.isRepeated, "\(TraceFormat.name(token)) is given twice")
                require(.tokens, socket(token)?.owner === client, "\(TraceFormat.name(token)) is not its own")
            case .success(let token):
                keep(token, key, index)
                let before = former.isEmpty ? nil : former[index]
                require(
                    .answers, before.map { socket($0) == nil } ?? true, "an adopted socket is adopted again")
                expect(client) { $0[.socketsAdopted] += 1 }
                require(.tokens, isAcceptable(offer, client), "\(TraceFormat.name(token)) should be refused")
                adopt(token, client, offer)
            case .failure(let refusal):
                coverage.refusals += 1
                expect(client) { $0[.socketsRefused] += 1 }
                let hasRoom = refusal != .tooManySockets || isFull(client)
                require(.counters, hasRoom, "a socket is refused within the quota")
                let isRight = isRight(refusal, of: offer, client)
                require(.answers, isRight, "a socket is refused without reason: \(refusal)")
            }
        }
    }

    /// Whether the socket may be adopted, quotas aside.
    private func isAcceptable(_ offer: SocketOffer, _ client: SimulatedClient) -> Bool {
        guard offer.isPollable, !offer.isListening, offer.profileRefusal == nil else { return false }
        guard !offer.survives || client.registration.isLaunchable else { return false }
        guard client.isUnmodified || !client.registration.modes.isDisjoint(with: offer.neededModes) else {
            return false
        }
        guard offer.tag == .voip else { return offer.tag == .device }
        return !offer.hasPendingError && (offer.isConnected || !offer.isStream)
    }

    func isFull(_ client: SimulatedClient) -> Bool {
        let all = clients.filter { $0.user == client.user }.map(\.sockets.count).reduce(0, +)
        return client.sockets.count >= settings.quotas.socketsPerClient
            || all >= settings.quotas.socketsPerUser
    }

    private mutating func adopt(_ token: SocketToken, _ client: SimulatedClient, _ offer: SocketOffer) {
        let slot = Int(token.slot)
        while socketsBySlot.count <= slot {
            socketsBySlot.append(nil)
            generations.append(0)
        }
        let isFresh = socketsBySlot[slot] == nil && token.rawValue > generations[slot]
        require(.tokens, isFresh, "\(TraceFormat.name(token)) is given twice")
        generations[slot] = token.rawValue
        let socket = SimulatedSocket(
            token, of: client, isStream: offer.isStream, survives: offer.survives,
            isDevice: offer.tag == .device, hasProfile: offer.hasProfile)
        socket.address = offer.isRouted ? machine.address : nil
        // It may have been readable before it was handed over.
        if random.once(in: 3) { if offer.hasProfile { socket.inbox = [.news] } else { socket.unread = 1 } }
        if offer.hasProfile { giveTerms(socket) }
        socketsBySlot[slot] = socket
        client.sockets.append(socket)
        socketCount += 1
    }

    private mutating func giveTerms(_ socket: SimulatedSocket) {
        socket.pingedAt = elapsed
        guard !random.once(in: 4) else { return }
        let interval = Duration.milliseconds(2_000 + random.below(20_000))
        let isAnswered = !random.once(in: 4)
        let repeats = isAnswered && random.once(in: 2)
        socket.terms = PingTerms(
            earliest: interval * 4 / 5, latest: interval,
            answerWithin: isAnswered ? random.duration(upTo: interval * 2) + .milliseconds(10) : nil,
            repeatAfter: .milliseconds(50 + random.below(500)), repetitions: repeats ? random.below(4) : 0)
    }

    private mutating func arm(_ token: SocketToken) {
        guard let socket = socket(token) else {
            return violate(.tokens, "\(TraceFormat.name(token)) is watched although it is closed")
        }
        // It may fire in the same turn in which its watch is renewed.
        if socket.hasLeftBeginning { socket.renewedAtStep = steps }
        socket.hasLeftBeginning = false
        require(
            .tokens, !socket.isWatched || socket.isForBytes || socket.renewedAtStep == steps,
            "\(TraceFormat.name(token)) is watched already")
        require(.wakeBound, !socket.isEnded, "\(TraceFormat.name(token)) is watched after its end was told")
        if fault == .armForgotten, random.once(in: 16) { return }
        socket.isWatched = true
        socket.isForBytes = false
        fireIfReady(socket)
    }

    private mutating func armPastEnd(_ token: SocketToken) {
        guard let socket = socket(token) else {
            return violate(.tokens, "\(TraceFormat.name(token)) is watched for bytes although it is closed")
        }
        require(.tokens, !socket.isWatched, "\(TraceFormat.name(token)) is watched already")
        if fault == .armForgotten, random.once(in: 16) { return }
        socket.isWatched = true
        socket.isForBytes = true
        fireIfReady(socket)
    }

    mutating func fireIfReady(_ socket: SimulatedSocket) {
        guard socket.isWatched, socket.isForBytes ? socket.unread > 0 : !socket.conditions.isEmpty else {
            return
        }
        socket.isWatched = false
        socket.isQueued = true
        if fault == .firingLost, random.once(in: 16) { return }
        queue.append((.fired(socket.token, []), now))
    }

    private mutating func close(_ token: SocketToken) {
        guard let socket = socket(token) else {
            return violate(.tokens, "\(TraceFormat.name(token)) is closed twice")
        }
        isUsageTouched = true
        if fault == .closeForgotten, random.once(in: 4) { return }
        if let sender = releasing {
            require(
                .tokens, socket.owner === sender, "\(TraceFormat.name(token)) is closed by another client")
        }
        socketsBySlot[Int(token.slot)] = nil
        socket.owner.hasReleased = true
        socket.owner.sockets.removeAll { $0 === socket }
        socketCount -= 1
        if formerTokens.count == 16 { formerTokens.removeFirst() }
        formerTokens.append(token)
        socket.owner.owed.removeAll { $0 == token }
        mustBeTold.removeAll { $0.token == token }
    }

    // MARK: Processes

    private mutating func freeze(_ id: ClientID, _ epoch: UInt64) {
        guard let client = client(id) else { return violate(.frozen, "freeze an unknown client") }
        client.isTouched = true
        require(.frozen, client.execution == .running, "\(TraceFormat.name(id)) is frozen twice")
        require(.stop, !core.isStopping, "\(TraceFormat.name(id)) is frozen by a supervisor that stops")
        let isToEnd = client.hibernates && client.readyAtStep == steps
        require(.launches, !isToEnd, "\(TraceFormat.name(id)) is frozen although it asked to be ended")
        if client.isUnmodified { beginAttempt(client, epoch) }
        require(.tokens, epoch == client.lastEpoch, "epoch \(epoch) is not the latest")
        client.execution = .stopping
        client.freezing = .init(number: epoch, until: now + settings.suspension.confirmation)
        for socket in client.sockets where socket.mustWake { socket.waitingSince = now }
        stop(client, epoch)
    }

    /// An unmodified client is suspended on request, at once.
    private mutating func beginAttempt(_ client: SimulatedClient, _ epoch: UInt64) {
        require(
            .tokens, epoch == client.lastEpoch + 1,
            "epoch \(epoch) of \(client.name) after \(client.lastEpoch)")
        client.lastEpoch = epoch
        client.isAttempted = true
        client.stay = .background
    }

    /// The kernel stops a process: at once, after some checks, or never; and reports it sooner or later.
    private mutating func stop(_ client: SimulatedClient, _ epoch: UInt64) {
        let isSluggish = parameters.sluggish > 0 && random.below(64) < parameters.sluggish
        let at = isSluggish ? now + random.duration(upTo: .seconds(4)) : now
        let chance = random.below(64)
        if chance < parameters.freezesFailing {
            queue.append((.freezeFailed(client.id, epoch: epoch), at))
        } else if chance < parameters.freezesFailing + parameters.freezesPending {
            queue.append((.notFrozenYet(client.id, epoch: epoch), at))
        } else {
            if fault != .freezeInvented || !random.once(in: 4) { client.execution = .stopped }
            queue.append((.frozen(client.id, epoch: epoch), at))
        }
    }

    private mutating func thaw(_ id: ClientID) {
        guard let client = client(id) else { return violate(.frozen, "thaw an unknown client") }
        client.isTouched = true
        require(.frozen, client.execution != .running, "\(TraceFormat.name(id)) is thawed while it runs")
        require(
            .offload, !client.sockets.contains(where: \.isOffloaded),
            "\(TraceFormat.name(id)) is thawed while its pings are handled")
        if isTakingOver { return takeUpThaw(client) }
        if let undisturbed, undisturbed === client {
            violate(.offload, "\(client.name) is woken by noise")
        }
        require(
            .media, !isAboutMedia || client.asleepSince == nil, "\(client.name) is woken by its media")
        let isKillDue = endSleep(client, isEnd: false)
        require(.wakeLimit, !isKillDue, "\(TraceFormat.name(id)) was woken too often and lives on")
        if client.isUnmodified { client.stay = .active }
        if fault == .thawForgotten, random.once(in: 16) { return }
        if fault == .thawAfterWake, random.once(in: 16) { return lateThaws.append(client) }
        client.execution = .running
    }

    private mutating func kill(_ id: ClientID, _ reason: TerminationReason) {
        guard let client = client(id) else { return violate(.answers, "kill an unknown client") }
        client.isTouched = true
        if isTakingOver { return takeUpKill(client, reason) }
        require(.budgets, !client.isKilled, "\(TraceFormat.name(id)) is killed twice")
        client.isKilled = true
        coverage.kills += 1
        if client.ending != .quitByUser { client.ending = reason }
        queue.append((.ended(id, .failed), now))
        switch reason {
        case .backgroundTasksOverran:
            expect(client) { $0[.overrunsBackgroundTasks] += 1 }
            require(
                .budgets, client.tasksAreOver, "\(TraceFormat.name(id)) is killed for its tasks too early")
        case .tooManyWakes:
            let isDue = endSleep(client, isEnd: false)
            require(.wakeLimit, isDue, "\(TraceFormat.name(id)) is killed for wakes that it did not have")
        case .memoryPressure:
            expect(client) { $0[.endedUnderPressure] += 1 }
            let isRight = mustBeEnded.first === client
            require(
                .launches, isRight, "\(TraceFormat.name(id)) is ended before larger ones, or without need")
            mustBeEnded.removeAll { $0 === client }
            endSleep(client, isEnd: true)
        case .hibernation:
            expect(client) { $0[.hibernations] += 1 }
            let wasReady = client.isAttempted && client.preparing == nil
            require(
                .launches, client.hibernates && (wasReady || client.asleepSince != nil),
                "\(TraceFormat.name(id)) is ended for hibernation and did not ask for it")
            endSleep(client, isEnd: true)
        case .launchOverran:
            let isOver = client.launchUntil.map { now >= $0 } ?? false
            require(
                .launches, isOver && !client.neverSpoke,
                "\(TraceFormat.name(id)) is ended before its launch time is over, or though it never said Hello"
            )
        case .pushOverran:
            violate(.budgets, "\(TraceFormat.name(id)) is killed for pushes, and observes none")
        case .fetchOverran:
            violate(.budgets, "\(TraceFormat.name(id)) is killed for a fetch, and declares none")
        case .quitByUser, .exitsOnSuspend:
            if client.launchUntil != nil { break }
            let isOver = client.terminating.map { now >= $0.until } ?? (client.execution != .running)
            require(
                .budgets, isOver, "\(TraceFormat.name(id)) is killed before the time of its notice is over")
            endSleep(client, isEnd: true)
        }
        client.terminating = nil
    }

    private mutating func forget(_ id: ClientID) {
        guard let client = client(id), let index = clients.firstIndex(where: { $0 === client }) else {
            return violate(.answers, "forget an unknown client")
        }
        if fault != .closeForgotten {
            require(.tokens, client.sockets.isEmpty, "\(TraceFormat.name(id)) left sockets behind")
        }
        isUsageTouched = true
        require(
            .launches, client.fate != .parked, "\(TraceFormat.name(id)) is forgotten, but should come back")
        endSleep(client, isEnd: true)
        client.isGone = true
        giveUp(client.registration.identifier)
        clients.remove(at: index)
        clientsBySlot[Int(id.slot)] = nil
    }
}

extension SocketOffer {
    /// One of these has to be declared by its client. (No client of these worlds offers a listener.)
    var neededModes: Modes {
        tag == .voip ? .voip : [.bluetoothCentral, .bluetoothPeripheral, .externalAccessory]
    }
}
