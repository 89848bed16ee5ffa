/// Pings sent, answered and checked for clients that sleep.
///
/// The core decides when and whether; what a ping is, and what is noise, the edge finds out with a profile.
extension Supervision {
    /// Pings of one turn: while they are sent, nobody is woken.
    private static let pingsPerTurn = 32

    // MARK: Sockets come and go

    mutating func addOffload(_ token: SocketToken, _ client: ClientID, at now: Instant) {
        sockets[token.id].hasProfile = true
        offloads.insert(Offload(at: now, settings.offload), at: token.slot)
        clients[client.id].hasProfiles = true
        offloaded[client.slot, default: []].append(token)
        touchOffload(token)
    }

    /// The socket is released, or its owner gone.
    mutating func removeOffload(_ token: SocketToken, of client: ClientID) {
        guard sockets[token.id].hasProfile else { return }
        offloadSchedule.set(token.slot, to: nil)
        offloadDeadlines.set(token.slot, to: nil)
        if let removed = offloads.remove(token.slot) { goneOffloadCounters += removed.counters }
        offloaded[client.slot]?.removeAll { $0 == token }
        guard offloaded[client.slot]?.isEmpty ?? true else { return }
        offloaded[client.slot] = nil
        clients[client.id].hasProfiles = false
    }

    // MARK: The owner falls asleep and wakes

    /// It has vouched for its sockets and is about to be stopped. The edge answers with the terms of each.
    mutating func beginOffloads(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where sockets[token.id].condition != .ended {
            offloads[token.slot].isActive = true
            offloads[token.slot].terms = nil
            touchOffload(token)
            actions.append(.beginOffload(token))
        }
    }

    /// Before it runs again.
    mutating func endOffloads(_ client: ClientID, into actions: inout ActionBuffer) {
        guard clients[client.id].hasProfiles, let tokens = offloaded[client.slot] else { return }
        for token in tokens where offloads[token.slot].isActive {
            if mutated(.pingsWhileAwake) { continue }
            endOffload(token, into: &actions)
        }
    }

    private mutating func endOffload(_ token: SocketToken, into actions: inout ActionBuffer) {
        offloads[token.slot].isActive = false
        offloads[token.slot].awaited = nil
        if offloads[token.slot].partialUntil.take() != nil { offloads[token.slot].hasLeftBeginning = true }
        offloadSchedule.set(token.slot, to: nil)
        offloadDeadlines.set(token.slot, to: nil)
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
        for token in tokens where offloads[token.slot].isActive {
            offloadDeadlines.set(token.slot, to: offloads[token.slot].nextDeadline)
        }
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
        for token in tokens where offloads[token.slot].hasLeftBeginning {
            offloads[token.slot].hasLeftBeginning = false
            guard sockets[token.id].condition == .armed, !mutated(.forgetsBeginnings) else { continue }
            sockets[token.id].condition = .held
            clients[client.id].unarmed.append(token)
        }
    }

    /// The edge has begun, and knows now how pings are sent.
    mutating func offloadBegan(_ token: SocketToken, _ terms: PingTerms?, at now: Instant) {
        guard isOffloading(token) else { return }
        offloads[token.slot].terms = terms
        if offloads[token.slot].awaited != nil, let within = terms?.answerWithin {
            // Taken over with a ping under way, whose time nobody has written down: it has as much again.
            offloads[token.slot].awaited?.until = now + within
        }
        scheduleOffload(token, at: now)
    }

    /// Whether the edge may deal with what arrives on this socket.
    public func isOffloading(_ token: SocketToken) -> Bool {
        guard sockets.contains(token.id), sockets[token.id].hasProfile else { return false }
        return offloads[token.slot].isActive
    }

    /// How many pieces of noise may be dealt with at this moment.
    public func noiseAllowance(_ token: SocketToken, at now: Instant) -> Int {
        guard isOffloading(token) else { return 0 }
        return offloads[token.slot].allowance(at: now, settings.offload)
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
        count(judgement, token, at: now)
        switch judgement.rest {
        case .nothing:
            offloads[token.slot].partialUntil = nil
            if judgement.noise > 0 { offloads[token.slot].counters.wakesAvoided += 1 }
        case .partial:
            let until = now + settings.offload.partialTimeout
            // A new beginning has its own time.
            if judgement.noise > 0 || offloads[token.slot].partialUntil == nil {
                offloads[token.slot].partialUntil = until
            }
            if judgement.noise > 0 { offloads[token.slot].counters.wakesAvoided += 1 }
        case .significant(let conditions):
            return socketFired(token, conditions, at: now, into: &actions)
        case .noise:
            if mutated(.permitsAnyNoise) { break }
            return socketFired(token, [.readable, .flooded], at: now, into: &actions)
        case .unanswerable:
            return socketFired(token, [.readable, .unanswerable], at: now, into: &actions)
        }
        if offloads[token.slot].awaited == nil, offloadSchedule.contains(token.slot) {
            offloadDeadlines.set(token.slot, to: offloads[token.slot].nextDeadline)
        } else {
            scheduleOffload(token, at: now)
        }
    }

    /// It is its owner's now.
    private mutating func leaveBeginning(_ token: SocketToken) {
        if sockets[token.id].hasProfile { offloads[token.slot].hasLeftBeginning = true }
    }

    private mutating func count(_ judgement: Judgement, _ token: SocketToken, at now: Instant) {
        offloads[token.slot].use(judgement.noise, at: now, settings.offload)
        offloads[token.slot].counters.answered += UInt64(judgement.answered)
        offloads[token.slot].counters.confirmed += UInt64(judgement.confirmed)
        offloads[token.slot].counters.absorbed += UInt64(judgement.confirmed + judgement.absorbed)
        if !judgement.isAwaitingAnswer { offloads[token.slot].awaited = nil }
        touchOffload(token)
    }

    // MARK: Pings

    /// Sends the pings of all sockets that are inside their window, but not too many at a time.
    mutating func runPings(at now: Instant, into actions: inout ActionBuffer) {
        for _ in 0..<Self.pingsPerTurn {
            guard let slot = offloadSchedule.popBegun(at: now) else { return }
            guard let id = sockets.id(inSlot: slot), isOffloading(SocketToken(id)) else { continue }
            let token = SocketToken(id)
            guard let terms = offloads[slot].terms else { continue }
            offloads[slot].lastPing = now
            offloads[slot].counters.sent += 1
            offloads[slot].counters.wakesAvoided += 1
            if let within = terms.answerWithin, !mutated(.forgetsAnswers) {
                offloads[slot].awaited = .init(
                    until: now + within, repeatAt: terms.repetitions > 0 ? now + terms.repeatAfter : nil,
                    pause: terms.repeatAfter, left: terms.repetitions)
            }
            touchOffload(token)
            scheduleOffload(token, at: now)
            actions.append(.ping(token, again: false))
        }
    }

    /// The edge could not send a ping: the peer takes nothing, and may be gone.
    mutating func pingFailed(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token) else { return }
        offloads[token.slot].counters.sent -= min(1, offloads[token.slot].counters.sent)
        offloads[token.slot].counters.wakesAvoided -= min(1, offloads[token.slot].counters.wakesAvoided)
        // For whoever is dying, the next one shows whether it was only this one.
        offloads[token.slot].awaited = nil
        scheduleOffload(token, at: now)
        wake(by: token, .unanswerable, at: now, into: &actions)
    }

    /// Time is up for a ping to be repeated or answered, or for a message to be completed.
    mutating func reachOffloadDeadlines(at now: Instant, into actions: inout ActionBuffer) {
        for _ in 0..<offloadDeadlines.count {
            guard let slot = offloadDeadlines.popDue(at: now) else { return }
            guard let id = sockets.id(inSlot: slot), isOffloading(SocketToken(id)) else { continue }
            reachOffloadDeadline(SocketToken(id), at: now, into: &actions)
        }
    }

    private mutating func reachOffloadDeadline(
        _ token: SocketToken, at now: Instant, into actions: inout ActionBuffer
    ) {
        if let until = offloads[token.slot].partialUntil, now >= until {
            return wake(by: token, .readable, at: now, into: &actions)
        }
        guard var awaited = offloads[token.slot].awaited else { return }
        if now >= awaited.until {
            // The answer may be there, and the loop may not have come to it.
            return actions.append(.lookForAnswer(token))
        }
        if let at = awaited.repeatAt, now >= at {
            awaited.left -= 1
            awaited.pause = awaited.pause * 2
            // If nobody came to it for a while, what was left out is not made up for.
            let next = at + awaited.pause
            awaited.repeatAt = awaited.left > 0 ? (next > now ? next : now + awaited.pause) : nil
            offloads[token.slot].awaited = awaited
            actions.append(.ping(token, again: true))
        }
        offloadDeadlines.set(token.slot, to: offloads[token.slot].nextDeadline)
    }

    /// The edge has looked, and has fed in what it found.
    mutating func answerMissing(_ token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard isOffloading(token), let awaited = offloads[token.slot].awaited, now >= awaited.until else {
            return
        }
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
        if offloads[token.slot].foundInWake != mark { offloads[token.slot].found = [] }
        offloads[token.slot].found.formUnion(conditions.intersection(.foundOut))
        offloads[token.slot].foundInWake = mark
        touchOffload(token)
    }

    private mutating func scheduleOffload(_ token: SocketToken, at now: Instant) {
        offloadSchedule.set(
            token.slot, to: offloads[token.slot].window(at: now, lead: settings.keepAlive.lead))
        offloadDeadlines.set(token.slot, to: offloads[token.slot].nextDeadline)
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
