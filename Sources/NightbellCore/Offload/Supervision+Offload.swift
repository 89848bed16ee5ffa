/// Pings sent, answered and checked for clients that sleep.
///
/// The core decides whether and when; the edge uses the profile to build pings and to recognize noise. All
/// times of pings are elapsed time, because the peer does not sleep with the machine.
extension Supervision {
    /// The most pings of one turn. The limit keeps wakes from being delayed while pings are sent.
    private static let pingsPerTurn = 32

    // MARK: Sockets come and go

    /// - Parameter profile: its number in `OffloadTotals`.
    mutating func addOffload(
        _ token: SocketToken, _ profile: UInt8, _ client: ClientID, elapsed: Instant
    ) {
        sockets[token.id].hasProfile = true
        pings.add(token.slot, profile, at: elapsed)
        clients[client.id].hasProfiles = true
        offloaded[client.slot, default: []].append(token)
        touchOffload(token)
    }

    /// Call when the socket is released or its owner is gone.
    mutating func removeOffload(_ token: SocketToken, of client: ClientID) {
        guard sockets[token.id].hasProfile else { return }
        pings.remove(token.slot)
        if notesChanges { changes.hasOffloadsOfGone = true }
        foundConditions[token.slot] = nil
        // A client that ends removes thousands, the last one first.
        if let index = offloaded[client.slot]?.lastIndex(of: token) {
            offloaded[client.slot]?.remove(at: index)
        }
        guard offloaded[client.slot]?.isEmpty ?? true else { return }
        offloaded[client.slot] = nil
        clients[client.id].hasProfiles = false
    }

    // MARK: The owner falls asleep and wakes

    /// Call before the client is stopped, after it has confirmed its sockets. The edge answers with the terms
    /// of each.
    mutating func beginOffloads(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where !sockets[token.id].condition.isPastEnd {
            pings.activate(token.slot)
            touchOffload(token)
            actions.append(.beginOffload(token))
        }
    }

    /// Call before the client runs again.
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

    /// Leaves this socket's events to the owner's next process. Pings of its other sockets continue until
    /// that process is launched.
    mutating func leaveToNextProcess(
        _ token: SocketToken, of client: ClientID, into actions: inout ActionBuffer
    ) {
        guard clients[client.id].lifecycle.isDormant, isOffloading(token) else { return }
        endOffload(token, into: &actions)
    }

    /// Call when the client's process has ended: deadlines that passed while it was terminating come due now.
    mutating func resumeOffloading(_ client: ClientID) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where pings[token.slot].isActive { pings.rearm(token.slot) }
    }

    /// Notes conditions again that belong to the client's next wake and that the kernel does not report
    /// twice.
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

    /// Arms sockets again in which the owner may have left an incomplete message: the kernel has reported it
    /// once, and reports it again only if the socket is armed anew.
    mutating func watchBeginnings(_ client: ClientID) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where pings[token.slot].hasLeftBeginning {
            pings[token.slot].hasLeftBeginning = false
            guard sockets[token.id].condition == .armed, !mutated(.forgetsBeginnings) else { continue }
            sockets[token.id].condition = .unwatched
            clients[client.id].unarmed.append(token)
        }
    }

    /// The edge has begun, and now knows the terms of the pings.
    mutating func offloadBegan(
        _ token: SocketToken, _ terms: PingTerms?, isAwaitingAnswer: Bool, at now: Instant
    ) {
        guard isOffloading(token) else { return }
        pings.begin(token.slot, terms, isAwaitingAnswer: isAwaitingAnswer, at: elapsed(at: now))
    }

    /// Whether the edge may handle data that arrives on this socket.
    package func isOffloading(_ token: SocketToken) -> Bool {
        guard sockets.contains(token.id), sockets[token.id].hasProfile else { return false }
        return pings[token.slot].isActive
    }

    /// The owner of a socket with new data, and the number of pieces of noise that may be handled now. nil:
    /// the data is for the owner.
    package func inspectionTerms(
        _ token: SocketToken, at now: Instant
    ) -> (owner: ClientID, allowance: Int)? {
        guard isOffloading(token) else { return nil }
        return (sockets[token.id].owner, pings.allowance(token.slot, at: elapsed(at: now)))
    }

    // MARK: What arrives

    /// Handles an `Event.inspected`. The edge calls it with each ping: an event has room for everything else
    /// as well, and is copied.
    package mutating func noteInspection(
        _ token: SocketToken, _ inspection: InspectionResult, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        guard sockets.contains(token.id) else { return }
        let owner = sockets[token.id].owner
        catchUp(owner, at: now, into: &actions)
        guard !absorb(token, inspection, at: now) else { return }
        inspected(token, inspection, at: now, into: &actions)
        suspendIfIdle(owner, at: now, into: &actions)
    }

    /// Handles a result that changes nothing for the owner, the usual one.
    ///
    /// - Returns: whether it is one.
    private mutating func absorb(_ token: SocketToken, _ inspection: InspectionResult, at now: Instant)
        -> Bool
    {
        guard !inspection.wakesOwner, isOffloading(token) else { return false }
        let elapsed = elapsed(at: now)
        let wasPending = pings.isPending(token.slot)
        _ = pings.apply(inspection, token.slot, at: elapsed)
        touchOffload(token)
        // Most pings are the peer's, and change no deadline.
        if wasPending || pings.isPending(token.slot) { pings.reschedule(token.slot, at: elapsed) }
        return true
    }

    private mutating func inspected(
        _ token: SocketToken, _ inspection: InspectionResult, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        guard isOffloading(token) else {
            // The owner was woken in the meantime; the remaining data belongs to it.
            switch inspection.rest {
            case .nothing: return  // it is still watched
            case .partial: return leaveBeginning(token)
            case .significant(let conditions):
                return socketFired(token, conditions, at: now, into: &actions)
            case .noise, .unanswerable:
                return socketFired(token, .readable, at: now, into: &actions)
            }
        }
        let found = pings.apply(inspection, token.slot, at: elapsed(at: now))
        touchOffload(token)
        if let found, !found.contains(.flooded) || !mutated(.permitsAnyNoise) {
            return socketFired(token, found, at: now, into: &actions)
        }
        pings.reschedule(token.slot, at: elapsed(at: now))
    }

    /// Leaves an incomplete message to the owner.
    private mutating func leaveBeginning(_ token: SocketToken) {
        if sockets[token.id].hasProfile { pings[token.slot].hasLeftBeginning = true }
    }

    // MARK: Pings

    /// Sends the pings of sockets inside their window, at most `pingsPerTurn` of them.
    mutating func runPings(at now: Instant, into actions: inout ActionBuffer) {
        for _ in 0..<Self.pingsPerTurn {
            guard let slot = pings.popPing(at: elapsed(at: now), expectsAnswer: !mutated(.forgetsAnswers))
            else { return }
            guard let id = sockets.id(inSlot: slot) else { continue }
            touchOffload(SocketToken(id))
            actions.append(.ping(SocketToken(id), again: false))
        }
    }

    /// The edge could not send a ping: the peer does not read, and may be gone.
    mutating func pingFailed(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token) else { return }
        // A terminating owner is not woken; the next ping shows whether the failure persists.
        pings.pingFailed(token.slot, at: elapsed(at: now))
        wake(by: token, .unanswerable, at: now, into: &actions)
    }

    /// The delegated session state is lost; the owner must handle the socket itself.
    mutating func delegatedStateLost(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer)
    {
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

    /// The edge has inspected the socket and reported the result.
    mutating func answerMissing(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token), pings.isUnanswered(token.slot, at: elapsed(at: now)) else { return }
        wake(by: token, .unanswered, at: now, into: &actions)
    }

    /// Wakes the owner for something that the kernel does not report.
    private mutating func wake(
        by token: SocketToken, _ conditions: Conditions, at now: Instant, into actions: inout ActionBuffer
    ) {
        let owner = sockets[token.id].owner
        // A terminating process cannot be told; its successor inspects the socket again.
        guard clients[owner.id].lifecycle.state != .terminating else { return }
        leaveToNextProcess(token, of: owner, into: &actions)
        noteFired(token, conditions, of: owner)
        wake(owner, conditions.wakeReasons, at: now, into: &actions)
        suspendIfIdle(owner, at: now, into: &actions)
    }

    /// Merges conditions, so that each socket is listed in a wake once.
    mutating func noteFired(_ token: SocketToken, _ conditions: Conditions, of client: ClientID) {
        if sockets[token.id].hasProfile { noteFound(token, conditions, of: client) }
        if conditions.contains(.pathLost) {
            sockets[token.id].isPathLost = true
            clients[client.id].hasLostPaths = true
        }
        if clients[client.id].hasProfiles || clients[client.id].hasLostPaths,
            let index = clients[client.id].fired.firstIndex(where: { $0.token == token })
        {
            return clients[client.id].fired[index].conditions.formUnion(conditions)
        }
        clients[client.id].fired.append(FiredSocket(token: token, conditions: conditions))
    }

    /// Records the finding, so that the next supervisor can report it again.
    private mutating func noteFound(_ token: SocketToken, _ conditions: Conditions, of client: ClientID) {
        let mark = SocketToken.mark(of: nextWakeID(of: client))
        var found = conditions.intersection(.foundOut)
        if let earlier = foundConditions[token.slot], earlier.wake == mark {
            found.formUnion(earlier.conditions)
        }
        foundConditions[token.slot] = found.isEmpty ? nil : FoundConditions(conditions: found, wake: mark)
        touchOffload(token)
    }
}

extension Conditions {
    /// An unanswered ping and a path that the kernel has given up have their own reasons.
    var wakeReasons: WakeReasons {
        if contains(.unanswered) { return .unanswered }
        if contains(.pathLost) { return .pathLost }
        return .socket
    }
}
