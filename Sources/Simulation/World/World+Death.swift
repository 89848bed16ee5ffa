import NightbellCore

/// The simulator's own notes across the lives of supervisors.
struct Held {
    /// Requests that had been carried out, and not answered, when the supervisor died.
    var carriedOut: Set<UInt64> = []
    /// Requests that the next supervisor reads for the first time, and then again.
    var unread: Set<UInt64> = []
    /// The message of a client that may be frozen, while it is being read.
    var beingRead: (key: RequestKey, sender: ClientID)?
    /// The counters at the end of the last complete turn.
    var counted = Counters()
}

/// Death of the supervisor at any moment, and its replacement.
extension World {
    /// Whether it dies at this moment. Nothing is done from then on.
    mutating func isLastMoment() -> Bool {
        guard let left = momentsLeft else { return false }
        if left > 0 { momentsLeft = left - 1 }
        return left == 0
    }

    /// The supervisor may thaw a client that is certain to be woken, and die before it has decided anything.
    mutating func diesAfterThaw(_ event: Event) -> Bool {
        guard momentsLeft != nil, case .thawedEarly(let token, _) = event, let client = socket(token)?.owner,
            client.execution != .running, random.once(in: 2)
        else { return false }
        client.execution = .running
        note("\(client.name) is thawed")
        return true
    }

    // MARK: Persistence

    /// Keeps the records that go with an action.
    mutating func keep(_ action: Action) {
        switch action {
        case .registered(let id, _):
            if let client = client(id) { log.admit(id, record(of: client), of: core) }
        case .close(let token, _):
            log.remove(token)
        case .forget(let id, let identifier, _):
            log.forget(id, identifier, of: core)
        case .makeDormant, .launch, .rejoined, .declared, .storeState, .dropState:
            keepLaunch(action)
        case .refuseRegistration, .answer, .handedOver, .commandAnswer, .notify, .arm, .armPastEnd,
            .inspectPaths, .freeze,
            .checkFreeze,
            .thaw, .kill, .trace, .beginOffload, .endOffload, .ping, .lookForAnswer:
            break
        }
    }

    func record(of client: SimulatedClient) -> SimulatedRecoveryLog.ClientRecord {
        .init(
            registration: client.registration, registeredAt: now,
            ownership: core.owner(of: client.registration.identifier)?.number ?? 0)
    }

    mutating func keep(_ token: SocketToken, _ key: RequestKey, _ index: Int) {
        guard let socket = core.snapshot(of: token, request: key.request, index: UInt16(index)) else {
            return violate(.tokens, "\(TraceFormat.name(token)) is adopted and unknown")
        }
        log.adopt(token, socket)
    }

    // MARK: Death

    /// Drops the state that only the supervisor had; `index` is the first event that it had not handled.
    mutating func die(before index: Int) {
        coverage.deaths += 1
        momentsLeft = nil
        note("the supervisor dies")
        for token in log.die() { lose(token) }
        noteUnanswered(before: index)
        // The watches are gone; a process that has ended stays ended.
        for client in clients {
            for socket in client.sockets {
                socket.isPathTold = false
                socket.isWatched = false
                socket.isQueued = false
            }
        }
        isGathering = false
        undisturbed = nil
        isAboutMedia = false
        for (token, offload) in log.offloads {
            guard let socket = socket(token) else { continue }
            let wasActive = offload.wasActive
            if !wasActive { socket.stopDealing() }
            // The ping may have been sent and not recorded, or the reverse.
            socket.isAwaiting = wasActive && offload.wasAwaitingAnswer
            socket.pingedAt = offload.lastPing
            socket.isOffloaded = wasActive
            socket.partialSince = nil
        }
        queue.removeAll { event, _ in
            switch event {
            case .gone, .ended: false
            default: true
            }
        }
        for case .gone(let id) in events where client(id) != nil { queue.append((.gone(id), now)) }
        noteUnheard(before: index)
        for client in lateThaws { client.execution = .running }
        lateThaws.removeAll()
        releasing = nil
        isTraffic = false
        mustBeEnded.removeAll()
        waiting.removeAll()

        let outage = random.duration(upTo: random.once(in: 4) ? .milliseconds(200) : .milliseconds(5))
        for client in clients { client.untoldSince = now }
        now = now + outage
        isStalled = true
        for client in clients {
            for socket in client.sockets { socket.waitingSince = socket.waitingSince.map { $0 + outage } }
        }
        let sender = held.beingRead.take().flatMap { client($0.sender) }
        takeOver()
        guard let sender, !sender.isKilled, !sender.isGone, sender.execution != .absent else { return }
        require(.restart, sender.execution == .running, "\(sender.name) sleeps on, and its message is lost")
    }

    /// The supervisor has adopted this socket, and has neither recorded nor answered that.
    private mutating func lose(_ token: SocketToken) {
        guard let socket = socket(token) else { return }
        socketsBySlot[Int(token.slot)] = nil
        socket.owner.sockets.removeAll { $0 === socket }
        socketCount -= 1
        isUsageTouched = true
    }

    private mutating func noteUnanswered(before index: Int) {
        for action in actions.actions[interpreted...] {
            if case .answer(.done, _, let key) = action { held.carriedOut.insert(key.request) }
        }
        for client in clients {
            for index in client.toRepeat.indices { client.toRepeat[index].isUnread = false }
        }
        var unread: [(ClientMessage, ClientID, RequestKey)] = []
        for event in events[index...] {
            if case .message(let message, let id, let key) = event { unread.append((message, id, key)) }
            if case .registration(_, let key) = event { registrations[key] = nil }
        }
        for (key, sender) in unanswered {
            guard let sender, let message = sent[key] else { continue }
            noteRepetition(message, sender, key, isUnread: false)
        }
        for (message, sender, key) in unread {
            let isUnread = !key.isRepeated && key != held.beingRead?.key
            noteRepetition(message, sender, key, isUnread: isUnread && random.once(in: 2))
        }
        held.unread.removeAll()
        for client in clients { client.toRepeat.sort { $0.request < $1.request } }
    }

    private mutating func noteRepetition(
        _ message: ClientMessage, _ sender: ClientID, _ key: RequestKey, isUnread: Bool
    ) {
        // A client without a process repeats nothing, and neither does its next process.
        guard let client = client(sender), client.execution != .absent else { return }
        switch message {
        case .readyToSuspend, .mediaActivity, .restartNoted: return
        default: break
        }
        client.toRepeat.removeAll { $0.request == key.request }
        client.toRepeat.append(.init(message: message, request: key.request, isUnread: isUnread))
    }

    /// Once a client runs and is told of the restart, it repeats its unanswered requests before it sends
    /// anything new.
    mutating func repeatRequests(_ client: SimulatedClient) {
        guard client.isHeard, !client.isKilled, !client.toRepeat.isEmpty || client.isToRejoin
        else { return }
        var said: [Event] = []
        if client.isToRejoin { said.append(.rejoined(client.id, client.registration, nextKey())) }
        client.hasSaidHelloAgain = client.isToRejoin
        client.isToRejoin = false
        for repetition in client.toRepeat where repetition.isUnread {
            held.unread.insert(repetition.request)
            said.append(.message(repetition.message, from: client.id, key(repetition.request, false)))
        }
        for repetition in client.toRepeat {
            said.append(.message(repetition.message, from: client.id, key(repetition.request, true)))
        }
        said.append(.message(.restartNoted, from: client.id, nextKey()))
        events.insert(contentsOf: said, at: 0)
        client.toRepeat.removeAll()
    }

    private func key(_ request: UInt64, _ isRepeated: Bool) -> RequestKey {
        RequestKey(connection: request & 7, request: request, isRepeated: isRepeated)
    }

    /// A repetition of a request that this same supervisor has answered gets no second answer.
    func isAnswerDue(_ key: RequestKey) -> Bool { !key.isRepeated || !held.unread.contains(key.request) }
}
