/// Pings sent, answered and checked for clients that sleep.
///
/// The core decides when and whether; what a ping is, and what is noise, the edge finds out with a profile. All times of
/// pings are elapsed time: the peer does not sleep.
extension Supervision {
    /// Pings of one turn: while they are sent, nobody is woken.
    private static let pingsPerTurn = 32

    // MARK: Sockets come and go

    mutating func addOffload(_ token: SocketToken, _ client: ClientID, elapsed: Instant) {
        sockets[token.id].hasProfile = true
        pings.add(token.slot, at: elapsed)
        clients[client.id].hasProfiles = true
        offloaded[client.slot, default: []].append(token)
        touchOffload(token)
    }

    /// The socket is released, or its owner gone.
    mutating func removeOffload(_ token: SocketToken, of client: ClientID) {
        guard sockets[token.id].hasProfile else { return }
        pings.remove(token.slot)
        findings[token.slot] = nil
        offloaded[client.slot]?.removeAll { $0 == token }
        guard offloaded[client.slot]?.isEmpty ?? true else { return }
        offloaded[client.slot] = nil
        clients[client.id].hasProfiles = false
    }

    // MARK: The owner falls asleep and wakes

    /// It has vouched for its sockets and is about to be stopped. The edge answers with the terms of each.
    mutating func beginOffloads(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where !sockets[token.id].condition.isPastEnd {
            pings.activate(token.slot)
            touchOffload(token)
            actions.append(.beginOffload(token))
        }
    }

    /// Before it runs again.
    mutating func endOffloads(_ client: ClientID, into actions: inout ActionBuffer) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where pings[token.slot].isActive {
            if mutated(.pingsWhileAwake) { continue }
            endOffload(token, into: &actions)
        }
    }

    private mutating func endOffload(_ token: SocketToken, into actions: inout ActionBuffer) {
        pings.end(token.slot)
        touchOffload(token)
        actions.append(.endOffload(token))
    }

    // MARK: The owner has no process

    /// What has happened to this socket is for the next process of its owner. The pings of the others go on until that
    /// is launched.
    mutating func leaveToNextProcess(
        _ token: SocketToken, of client: ClientID, into actions: inout ActionBuffer
    ) {
        guard clients[client.id].lifecycle.isDormant, isOffloading(token) else { return }
        endOffload(token, into: &actions)
    }

    /// Its process is over. What came due when that was dying comes due now.
    mutating func goOnOffloading(_ client: ClientID) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where pings[token.slot].isActive { pings.goOn(token.slot) }
    }

    /// What its owner was to be told with the next wake, and the kernel does not tell again.
    mutating func noteFound(again client: ClientID) -> WakeReasons {
        var reasons: WakeReasons = []
        for token in offloadedSockets(of: client) {
            let found = found(token, inWake: nextWakeID(of: client))
            guard !found.isEmpty else { continue }
            noteFired(token, found, of: client)
            reasons.formUnion(found.wakeReasons)
        }
        return reasons
    }

    /// Has the beginnings of messages looked at again that an owner may have left unread: the kernel has told of them,
    /// and does not a second time, unless it is asked to.
    mutating func watchBeginnings(_ client: ClientID) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where pings[token.slot].hasLeftBeginning {
            pings[token.slot].hasLeftBeginning = false
            guard sockets[token.id].condition == .armed, !mutated(.forgetsBeginnings) else { continue }
            sockets[token.id].condition = .held
            clients[client.id].unarmed.append(token)
        }
    }

    /// The edge has begun, and knows now how pings are sent.
    mutating func offloadBegan(
        _ token: SocketToken, _ terms: PingTerms?, isAwaitingAnswer: Bool, at now: Instant
    ) {
        guard isOffloading(token) else { return }
        pings.begin(token.slot, terms, isAwaitingAnswer: isAwaitingAnswer, at: elapsed(at: now))
    }

    /// Whether the edge may deal with what arrives on this socket.
    public func isOffloading(_ token: SocketToken) -> Bool {
        guard sockets.contains(token.id), sockets[token.id].hasProfile else { return false }
        return pings[token.slot].isActive
    }

    /// How many pieces of noise may be dealt with at this moment.
    public func noiseAllowance(_ token: SocketToken, at now: Instant) -> Int {
        guard isOffloading(token) else { return 0 }
        return pings.allowance(token.slot, at: elapsed(at: now))
    }

    // MARK: What arrives

    mutating func judged(
        _ token: SocketToken, _ judgement: Judgement, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard isOffloading(token) else {
            // Somebody has woken the owner in the meantime: what is left is its own.
            switch judgement.rest {
            case .nothing: return  // it is still watched
            case .partial: return leaveBeginning(token)
            case .significant(let conditions):
                return socketFired(token, conditions, at: now, into: &actions)
            case .noise, .unanswerable:
                return socketFired(token, .readable, at: now, into: &actions)
            }
        }
        let found = pings.take(judgement, token.slot, at: elapsed(at: now))
        touchOffload(token)
        if let found, !found.contains(.flooded) || !mutated(.permitsAnyNoise) {
            return socketFired(token, found, at: now, into: &actions)
        }
        pings.settle(token.slot, at: elapsed(at: now))
    }

    /// It is its owner's now.
    private mutating func leaveBeginning(_ token: SocketToken) {
        if sockets[token.id].hasProfile { pings[token.slot].hasLeftBeginning = true }
    }

    // MARK: Pings

    /// Sends the pings of all sockets that are inside their window, but not too many at a time.
    mutating func runPings(at now: Instant, into actions: inout ActionBuffer) {
        for _ in 0..<Self.pingsPerTurn {
            guard let slot = pings.popPing(at: elapsed(at: now), expectsAnswer: !mutated(.forgetsAnswers))
            else { return }
            guard let id = sockets.id(inSlot: slot) else { continue }
            touchOffload(SocketToken(id))
            actions.append(.ping(SocketToken(id), again: false))
        }
    }

    /// The edge could not send a ping: the peer takes nothing, and may be gone.
    mutating func pingFailed(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token) else { return }
        // For whoever is dying, the next one shows whether it was only this one.
        pings.pingFailed(token.slot, at: elapsed(at: now))
        wake(by: token, .unanswerable, at: now, into: &actions)
    }

    /// The owner has to see for itself.
    mutating func loanLost(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token) else { return }
        wake(by: token, .unanswerable, at: now, into: &actions)
    }

    /// The edge had no ping to send.
    mutating func pingOmitted(_ token: SocketToken, at now: Instant) {
        guard isOffloading(token) else { return }
        pings.pingFailed(token.slot, at: elapsed(at: now))
        touchOffload(token)
    }

    /// Time is up for a ping to be repeated or answered, or for a message to be completed.
    mutating func reachOffloadDeadlines(at now: Instant, into actions: inout ActionBuffer) {
        for _ in 0..<pings.deadlineCount {
            guard let slot = pings.popDeadline(at: elapsed(at: now)) else { return }
            guard let id = sockets.id(inSlot: slot), isOffloading(SocketToken(id)) else { continue }
            reachOffloadDeadline(SocketToken(id), at: now, into: &actions)
        }
    }

    private mutating func reachOffloadDeadline(
        _ token: SocketToken, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch pings.reachDeadline(token.slot, at: elapsed(at: now)) {
        case .beginning: wake(by: token, .readable, at: now, into: &actions)
        case .answer: actions.append(.lookForAnswer(token))
        case .repetition: actions.append(.ping(token, again: true))
        case nil: break
        }
    }

    /// The edge has looked, and has fed in what it found.
    mutating func answerMissing(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token), pings.isUnanswered(token.slot, at: elapsed(at: now)) else { return }
        wake(by: token, .unanswered, at: now, into: &actions)
    }

    /// Wakes the owner for something that the kernel does not report.
    private mutating func wake(
        by token: SocketToken, _ conditions: Conditions, at now: Instant, into actions: inout ActionBuffer
    ) {
        let owner = sockets[token.id].owner
        // Who is dying cannot be told, and what comes after it looks again.
        guard clients[owner.id].lifecycle.state != .terminating else { return }
        leaveToNextProcess(token, of: owner, into: &actions)
        noteFired(token, conditions, of: owner)
        wake(owner, conditions.wakeReasons, at: now, into: &actions)
        settle(owner, at: now, into: &actions)
    }

    /// Each socket stands in a wake once.
    mutating func noteFired(_ token: SocketToken, _ conditions: Conditions, of client: ClientID) {
        if sockets[token.id].hasProfile { noteFound(token, conditions, of: client) }
        if clients[client.id].hasProfiles,
            let index = clients[client.id].fired.firstIndex(where: { $0.token == token })
        {
            return clients[client.id].fired[index].conditions.formUnion(conditions)
        }
        clients[client.id].fired.append(FiredSocket(token: token, conditions: conditions))
    }

    /// So that it can be told again, by somebody who did not find it out.
    private mutating func noteFound(_ token: SocketToken, _ conditions: Conditions, of client: ClientID) {
        let mark = SocketToken.mark(of: nextWakeID(of: client))
        var found = conditions.intersection(.foundOut)
        if let earlier = findings[token.slot], earlier.wake == mark { found.formUnion(earlier.conditions) }
        findings[token.slot] = found.isEmpty ? nil : Finding(conditions: found, wake: mark)
        touchOffload(token)
    }

    private mutating func touchOffload(_ token: SocketToken) {
        if notesChanges { touchedOffloads.append(token) }
    }
}

extension Conditions {
    /// A ping that went unanswered, and a path that the kernel has given up, are reasons of their own.
    var wakeReasons: WakeReasons {
        if contains(.unanswered) { return .unanswered }
        if contains(.pathLost) { return .pathLost }
        return .socket
    }
}
