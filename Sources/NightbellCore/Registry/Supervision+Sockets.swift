/// Adoption, watching and release of sockets.
extension Supervision {
    mutating func handOver(
        _ offers: [SocketOffer], _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let start = actions.adoptions.count
        let room = roomForSockets(of: client)
        var adopted = 0
        for (index, offer) in offers.enumerated() {
            if let token = adoption(of: index, key, client) {
                actions.adoptions.append(.success(token))
            } else if let refusal = refusal(of: offer, client, isFull: adopted >= room) {
                actions.adoptions.append(.failure(refusal))
                count(.socketsRefused, of: client)
                actions.append(.trace(client, .refusedSocket(refusal)))
            } else {
                let token = adopt(offer, client, at: now)
                recordAdoption(token, at: index, key, client)
                actions.adoptions.append(.success(token))
                count(.socketsAdopted, of: client)
                adopted += 1
            }
        }
        users[clients[client.id].user]?.sockets += adopted
        actions.append(.handedOver(start..<actions.adoptions.count, client, key))
    }

    /// How many more sockets a client may have.
    private func roomForSockets(of client: ClientID) -> Int {
        let ofUser =
            settings.quotas.socketsPerUser - users[clients[client.id].user, default: UserUsage()].sockets
        guard !mutated(.exceedsQuota) else { return ofUser }
        return min(ofUser, settings.quotas.socketsPerClient - clients[client.id].sockets.count)
    }

    private func refusal(of offer: SocketOffer, _ client: ClientID, isFull: Bool) -> Refusal? {
        let modes = clients[client.id].isUnmodified ? [] : offer.tag.modes
        if !modes.isEmpty, clients[client.id].modes.isDisjoint(with: modes), !mutated(.parksUndeclared) {
            return .modeRequired(modes)
        }
        if let refusal = offer.refusal { return refusal }
        if offer.survives, !clients[client.id].isLaunchable { return .cannotLaunch }
        guard !isFull else { return .tooManySockets }
        let stateBytes = Int(clients[client.id].launches.stateBytes)
        if offer.survives, roomForState(of: client, besides: 1) < stateBytes { return .tooManySockets }
        return nil
    }

    /// The size of the state that a client's next process can be given with the surviving sockets.
    func roomForState(of client: ClientID, besides others: Int = 0) -> Int {
        let survivors = clients[client.id].sockets.reduce(others) { $0 + (sockets[$1.id].survives ? 1 : 0) }
        return Settings.Quotas.bytesForNextProcess - survivors * Settings.Quotas.bytesPerSurvivor
    }

    private mutating func adopt(
        _ offer: SocketOffer, _ client: ClientID, at now: Instant
    ) -> SocketToken {
        let index = clients[client.id].sockets.count
        let socket = ParkedSocket(
            owner: client, tag: offer.tag, isStream: offer.isStream, survives: offer.survives,
            isRouted: offer.isRouted, index: Int32(index))
        let token = SocketToken(sockets.insert(socket))
        if offer.isRouted { machine.wishes.routedSockets += 1 }
        clients[client.id].sockets.append(token)
        clients[client.id].unarmed.append(token)
        if let profile = offer.profile { addOffload(token, profile, client, elapsed: elapsed(at: now)) }
        return token
    }

    /// Whether `token` names a socket of this client.
    func owns(_ client: ClientID, _ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].owner == client
    }

    mutating func release(
        _ token: SocketToken, _ client: ClientID, into actions: inout ActionBuffer
    ) -> Answer {
        let isStrangers = mutated(.releasesForAnyClient) && sockets.contains(token.id)
        let client = isStrangers ? sockets[token.id].owner : client
        guard owns(client, token) else { return .refused(.invalidToken) }
        remove(token, client)
        if !mutated(.tellsOfReleased) { clients[client.id].fired.removeAll { $0.token == token } }
        // A client that adopts and releases sockets without ever sleeping must not make this list grow.
        if clients[client.id].unarmed.count > 2 * clients[client.id].sockets.count + 16 {
            let sockets = sockets
            clients[client.id].unarmed.removeAll { !sockets.contains($0.id) }
        }
        actions.append(.trace(client, .released(token)))
        actions.append(.close(token, of: clients[client.id].user))
        return .done
    }

    /// Removes a socket of this client from the tables.
    mutating func remove(_ token: SocketToken, _ client: ClientID) {
        guard sockets.contains(token.id) else { return }
        removeOffload(token, of: client)
        guard let removed = sockets.remove(token.id) else { return }
        if removed.isRouted { machine.wishes.routedSockets -= 1 }
        let last = clients[client.id].sockets.removeLast()
        if last != token {
            clients[client.id].sockets[Int(removed.index)] = last
            sockets[last.id].index = removed.index
        }
        users[clients[client.id].user]?.sockets -= 1
    }

    /// Arms sockets that are not armed. A socket that has not fired since the last time still is.
    mutating func armSockets(_ client: ClientID, into actions: inout ActionBuffer) {
        for token in clients[client.id].unarmed where sockets.contains(token.id) {
            if sockets[token.id].condition.isPastEnd {
                sockets[token.id].condition = .armedPastEnd
                if !mutated(.forgetsBytesPastEnd) { actions.append(.armPastEnd(token)) }
                continue
            }
            sockets[token.id].condition = .armed
            actions.append(.arm(token))
            if mutated(.armsOneSocket) { break }
        }
        // Usually one socket or two fire again and again. Memory for the first thousand is freed, as is that
        // of a client without a process, which may rest for days.
        let isFew = clients[client.id].unarmed.count <= 16
        clients[client.id].unarmed.removeAll(keepingCapacity: isFew && clients[client.id].launches.isRejoined)
    }

    mutating func socketFired(
        _ token: SocketToken, _ conditions: Conditions, at now: Instant, into actions: inout ActionBuffer
    ) {
        let client = sockets[token.id].owner
        // The event is stale if the socket has fired since it was armed.
        let wasPastEnd: Bool
        switch sockets[token.id].condition {
        case .armed: wasPastEnd = false
        case .armedPastEnd: wasPastEnd = true
        case .unwatched, .ended: return
        }
        let wakes: Bool
        switch clients[client.id].lifecycle.stage {
        case .suspended:
            wakes = true
        case .suspending:
            wakes = clients[client.id].lifecycle.mayBeFrozen && !mutated(.ignoresFiringWhileFreezing)
        case .background:
            // The event belongs to a wake of this turn, whether or not a part of that was delivered already.
            wakes = clients[client.id].pendingWake != nil || toldInTurn.contains(client)
        case .dormant, .launching:
            wakes = true
        case .notRunning, .inactive, .active, .terminating:
            wakes = false
        }
        guard wakes else {
            // The owner reads the data itself; if it leaves any, the socket fires again once it sleeps.
            sockets[token.id].condition = wasPastEnd ? .ended : .unwatched
            clients[client.id].unarmed.append(token)
            return
        }
        guard !conditions.isEmpty else {
            // Another process that shares the socket has read the data.
            if sockets[token.id].hasProfile { pings[token.slot].hasLeftBeginning = false }
            return actions.append(wasPastEnd ? .armPastEnd(token) : .arm(token))
        }
        let isEnded = sockets[token.id].isFinal(conditions) && !mutated(.watchesAfterEnd)
        sockets[token.id].condition = isEnded ? .ended : .unwatched
        clients[client.id].unarmed.append(token)
        leaveToNextProcess(token, of: client, into: &actions)
        noteFired(token, conditions, of: client)
        wake(client, conditions.wakeReasons, at: now, into: &actions)
        if isEnded || wasPastEnd { noteEnd(token) }
    }
}
