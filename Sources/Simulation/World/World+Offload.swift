import NightbellCore

/// Sockets with a profile: peers that ping and do or do not answer, and an edge that handles their pings.
extension World {
    // MARK: The edge

    mutating func beginOffload(_ token: SocketToken) {
        guard let socket = socket(token) else { return violate(.offload, "a closed socket is offloaded") }
        let client = socket.owner
        client.isTouched = true
        require(
            .offload, isTakingOver || client.isUnmodified || client.vouchedEpoch == client.lastEpoch,
            "\(client.name) has not vouched for \(TraceFormat.name(token))")
        require(
            .offload, isTakingOver || !socket.isOffloaded, "\(TraceFormat.name(token)) is offloaded twice")
        socket.isOffloaded = true
        socket.partialSince = nil
        if !isTakingOver, let within = socket.terms?.answerWithin, random.once(in: 16) {
            // Its owner was waiting for an answer, and has delegated the state that identifies it.
            socket.isAwaiting = true
            socket.pongDue = random.once(in: 4) ? nil : now + random.duration(upTo: within)
        }
        followUp(.offloadBegan(token, socket.terms, isAwaitingAnswer: socket.isAwaiting))
    }

    mutating func endOffload(_ token: SocketToken) {
        guard let socket = socket(token) else { return violate(.offload, "a closed socket is offloaded") }
        socket.owner.isTouched = true
        require(
            .offload, isTakingOver || socket.owner.execution != .running,
            "\(socket.owner.name) runs while \(TraceFormat.name(token)) is offloaded")
        if socket.partialSince != nil { socket.hasLeftBeginning = true }
        socket.stopDealing()
    }

    mutating func ping(_ token: SocketToken, again: Bool) {
        guard let socket = socket(token), socket.isOffloaded, let terms = socket.terms else {
            return violate(.offload, "a ping on \(TraceFormat.name(token)), which is not offloaded")
        }
        socket.owner.isTouched = true
        require(
            .offload,
            socket.owner.execution != .running || socket.owner.freezing != nil || socket.owner.isKilled,
            "\(socket.owner.name) runs while a ping is sent for it")
        // The core may not have been told that the last one failed.
        func isFailure(_ event: Event) -> Bool {
            switch event {
            case .pingFailed(token), .pingOmitted(token): true
            default: false
            }
        }
        let isFailing = queue.contains { isFailure($0.event) } || events[taken...].contains(where: isFailure)
        require(
            .offload, socket.isAwaiting == again || (again && isFailing),
            "a ping is sent while an answer is pending, or a repetition while none is")
        guard !again else { return }
        require(
            .offload, elapsed >= socket.pingedAt + terms.earliest,
            "\(TraceFormat.name(token)) is pinged too early")
        socket.pingedAt = elapsed
        socket.expectedOffload.sent += 1
        socket.expectedOffload.wakesAvoided += 1
        coverage.pings += 1
        guard random.once(in: 16) == false else { return queue.append((.pingFailed(token), now)) }
        guard random.once(in: 16) == false else { return queue.append((.pingOmitted(token), now)) }
        guard let within = terms.answerWithin else { return }
        socket.isAwaiting = true
        socket.answerUntil = elapsed + within
        socket.pongDue = random.once(in: 4) ? nil : now + random.duration(upTo: within)
    }

    mutating func lookForAnswer(_ token: SocketToken) {
        guard let socket = socket(token) else { return }
        if socket.isOffloaded { followUp(.inspected(token, inspect(socket))) }
        followUp(.answerLookedFor(token))
    }

    /// Feeds the result of an action, in the same turn if that is not over.
    private mutating func followUp(_ event: Event) {
        if isGathering { events.append(event) } else { queue.append((event, now)) }
    }

    /// The socket of an event that the edge inspects because the socket has a profile.
    func lookedAt(_ event: Event) -> SimulatedSocket? {
        guard case .fired(let token, _) = event, let socket = socket(token), socket.isOffloaded,
            core.isOffloading(token), socket.owner.execution != .running || socket.owner.isKilled
        else { return nil }
        return socket
    }

    /// Absorbs noise, as much of it as is allowed.
    mutating func inspect(_ socket: SimulatedSocket) -> InspectionResult {
        var inspection = InspectionResult()
        var allowance = core.inspectionTerms(socket.token, at: now)?.allowance ?? 0
        if socket.isReset || socket.hasError {
            let isLost = socket.isStream && random.once(in: 2)
            inspection.rest = .significant(socket.conditions.union(isLost ? .pathLost : []))
            inspection.isAwaitingAnswer = socket.isAwaiting
            return inspection
        }
        loop: while let piece = socket.inbox.first {
            switch piece {
            case .partial:
                inspection.rest = .partial
                break loop
            case .news:
                inspection.rest = .significant(.readable)
                break loop
            case .pong where !socket.isAwaiting:
                inspection.rest = .significant(.readable)
                break loop
            case .ping, .filler, .pong:
                guard allowance > 0 else {
                    inspection.rest = .noise
                    break loop
                }
            }
            if piece == .ping, random.once(in: 32) {
                inspection.rest = .unanswerable
                break
            }
            allowance -= 1
            socket.inbox.removeFirst()
            inspection.note(piece)
            coverage.noise += 1
            if piece == .pong { socket.isAwaiting = false }
        }
        if socket.isPeerClosed, inspection.rest == .nothing || inspection.rest == .partial {
            inspection.rest = .significant(socket.conditions)
        }
        inspection.isAwaitingAnswer = socket.isAwaiting
        return inspection
    }

    // MARK: Expectations

    mutating func foresee(_ inspection: InspectionResult, _ token: SocketToken) {
        guard let socket = socket(token) else { return }
        let client = socket.owner
        // A socket that was only inspected for an answer may not be watched.
        let isWatched = socket.isWatched || socket.isQueued
        socket.isQueued = false
        client.isTouched = true
        noteTime(client)
        guard core.isOffloading(token), !client.isFailing else {
            return foreseeLeft(inspection, socket, isWatched)
        }
        socket.expectedOffload.answered += UInt64(inspection.answered)
        socket.expectedOffload.confirmed += UInt64(inspection.confirmed)
        socket.expectedOffload.absorbed += UInt64(inspection.confirmed + inspection.otherNoise)
        if !inspection.isAwaitingAnswer {
            socket.answerUntil = nil
            socket.restedAt = max(socket.restedAt, elapsed)
        }
        switch inspection.rest {
        case .nothing, .partial:
            if inspection.noise > 0 { socket.expectedOffload.wakesAvoided += 1 }
            let isNew = inspection.noise > 0 || socket.partialSince == nil
            if inspection.rest == .nothing {
                socket.partialSince = nil
            } else if isNew {
                socket.partialSince = elapsed
            }
            socket.isWatched = isWatched
            undisturbed = client.asleepSince == nil ? nil : client
        case .significant(let conditions):
            socket.isWatched = false
            isTraffic = !conditions.contains(.pathLost)
            mustTell(socket, conditions.intersection(.pathLost))
        case .noise:
            socket.isWatched = false
            coverage.floods += 1
            mustTell(socket, .flooded)
        case .unanswerable:
            socket.isWatched = false
            mustTell(socket, .unanswerable)
        }
    }

    /// Its owner is woken, or launched if it has no process, and told of the socket and of conditions unknown
    /// to the kernel.
    private mutating func mustTell(_ socket: SimulatedSocket, _ found: Conditions) {
        let client = socket.owner
        guard !client.isKilled else { return }
        socket.found.formUnion(found)
        if found.contains(.pathLost) { socket.isPathTold = true }
        guard client.execution == .absent else { return mustBeTold.append((client, socket.token)) }
        coverage.foundForAbsent += 1
        foreseeWish(client, found.reasons)
        client.owed.append(socket.token)
    }

    /// A client that is parked is launched again for findings of which its last process was not told.
    mutating func parkOffload(_ client: SimulatedClient) {
        client.parkedAtStep = steps
        for socket in client.sockets where !socket.found.isEmpty {
            client.launchReasons.formUnion(socket.found.reasons)
            client.owed.append(socket.token)
        }
        coverage.parkedOffloads += client.sockets.contains(where: \.isOffloaded) ? 1 : 0
    }

    /// The socket was inspected before its owner was woken, and the result is fed after that.
    private mutating func foreseeLeft(
        _ inspection: InspectionResult, _ socket: SimulatedSocket, _ isWatched: Bool
    ) {
        switch inspection.rest {
        case .nothing:
            socket.isWatched = isWatched
        case .partial:
            socket.isWatched = isWatched
            socket.hasLeftBeginning = true
        case .significant, .noise, .unanswerable:
            socket.isWatched = false
            if hasBeenWoken(socket.owner) { mayBeTold.insert(socket.token) }
        }
    }

    mutating func foreseePingFailed(_ token: SocketToken) {
        guard let socket = socket(token) else { return }
        noteTime(socket.owner)
        guard core.isOffloading(token) else { return }
        if socket.owner.isFailing { return }
        isTraffic = true
        socket.expectedOffload.sent -= min(1, socket.expectedOffload.sent)
        socket.expectedOffload.wakesAvoided -= min(1, socket.expectedOffload.wakesAvoided)
        mustTell(socket, .unanswerable)
    }

    mutating func foreseeDelegatedStateLost(_ token: SocketToken) {
        guard let socket = socket(token) else { return }
        noteTime(socket.owner)
        guard core.isOffloading(token) else { return }
        if socket.owner.isFailing { return }
        isTraffic = true
        mustTell(socket, .unanswerable)
    }

    mutating func foreseePingOmitted(_ token: SocketToken) {
        guard let socket = socket(token), core.isOffloading(token) else { return }
        socket.expectedOffload.sent -= min(1, socket.expectedOffload.sent)
        socket.expectedOffload.wakesAvoided -= min(1, socket.expectedOffload.wakesAvoided)
        // However late this is reported, the time of the next ping begins at the report.
        socket.restedAt = max(socket.restedAt, elapsed)
    }

    mutating func foreseeAnswerLookedFor(_ token: SocketToken) {
        guard let socket = socket(token) else { return }
        noteTime(socket.owner)
        guard core.isOffloading(token), socket.isAwaiting, let until = socket.answerUntil, elapsed >= until
        else { return }
        if socket.owner.isFailing { return }
        coverage.unanswered += 1
        mustTell(socket, .unanswered)
    }

    /// Messages that began and were not completed in time.
    mutating func foreseePartial() {
        for client in clients {
            for socket in client.sockets where core.isOffloading(socket.token) {
                guard let since = socket.partialSince, elapsed >= since + settings.offload.partialTimeout
                else {
                    continue
                }
                if client.execution == .absent {
                    mustTell(socket, [])
                } else {
                    mayBeTold.insert(socket.token)
                    isTraffic = true
                }
            }
        }
    }

    // MARK: Peers

    /// A piece that a peer sends to a client with a profile.
    mutating func piece(for socket: SimulatedSocket) -> SimulatedSocket.Piece {
        if socket.inbox.last == .partial {
            socket.inbox.removeLast()
            return .filler
        }
        switch random.below(16) {
        case 0: return .news
        case 1: return .partial
        case 2...8: return .ping
        default: return .filler
        }
    }

    /// Wakes a sleeping client for another reason while its peers are in the middle of a message.
    mutating func interruptPeers() {
        guard let client = random.pick(clients.filter { $0.sockets.contains(where: \.isOffloaded) }) else {
            return
        }
        for socket in client.sockets where socket.isOffloaded && socket.inbox.last != .partial {
            if !socket.isReset, !socket.isPeerClosed { receive(.partial, socket) }
        }
        queue.append((.command(.wake, client.id, nextKey()), now + .milliseconds(25)))
    }

    mutating func deliverPongs() {
        for client in clients {
            for socket in client.sockets {
                guard let due = socket.pongDue, due <= now, !socket.isReset, !socket.isPeerClosed else {
                    continue
                }
                socket.pongDue = nil
                // An answer does not come in the middle of another message.
                if socket.inbox.last != .partial { receive(.pong, socket) }
            }
        }
    }

    // MARK: After every step

    mutating func checkOffload(_ socket: SimulatedSocket, of client: SimulatedClient) {
        let token = TraceFormat.name(socket.token)
        if let view = core.offload(of: socket.token, at: now), client.isTouched {
            require(
                .offload, view.counters == socket.expectedOffload,
                "\(token): \(view.counters) recorded, \(socket.expectedOffload) happened")
        }
        guard socket.isOffloaded, !client.isKilled, !core.isStopping else { return }
        require(
            .offload, core.isOffloading(socket.token), "\(token) is offloaded without the core")
        if socket.inbox.first == .partial, !socket.isQueued, client.asleepSince != nil {
            require(
                .offload, socket.partialSince != nil, "no timeout runs for the rest of a message in \(token)")
        }
        // A deadline that passed while its owner was ending is handled in the next step.
        guard client.parkedAtStep != steps else { return }
        if let since = socket.partialSince {
            let end = since + settings.offload.partialTimeout
            require(.offload, elapsed < end, "the rest of a message in \(token) is pending for too long")
        }
        if socket.isAwaiting, let until = socket.answerUntil {
            require(.offload, elapsed < until, "\(token) has no answer, and its owner is not told")
        }
        guard let terms = socket.terms, !socket.isAwaiting, socket.hasTerms else { return }
        let lead = settings.keepAlive.lead + .microseconds(1)
        let latest = max(socket.pingedAt + terms.latest, socket.restedAt + lead)
        require(.offload, elapsed <= latest, "\(token) was not pinged in its window")
        let earliest = max(socket.pingedAt + terms.earliest, socket.restedAt) + .microseconds(1)
        require(
            .offload, !hasThawed || elapsed <= earliest, "\(token) is inside its window and was not pinged")
    }
}

extension Conditions {
    /// The wake reasons for the findings.
    var reasons: WakeReasons {
        contains(.unanswered) ? .unanswered : contains(.pathLost) ? .pathLost : .socket
    }
}

extension InspectionResult {
    fileprivate mutating func note(_ piece: SimulatedSocket.Piece) {
        switch piece {
        case .ping: answered += 1
        case .pong: confirmed += 1
        case .filler, .partial, .news: otherNoise += 1
        }
    }
}
