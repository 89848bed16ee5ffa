/// How clients come and go.
extension Supervision {
    /// Identifiers belong to somebody also while no client goes by them, so their number is limited too: this many
    /// for each client that a uid may have at a time.
    private static let identifiersPerClient = 4

    mutating func register(
        _ registration: Registration, _ key: RequestKey, at now: Instant, into actions: inout ActionBuffer
    ) {
        if let refusal = refusal(of: registration) {
            return actions.append(.refuseRegistration(refusal, key))
        }
        let client = ClientID(clients.insert(Client(registration, at: now)))
        if owners[registration.identifier] == nil {
            makeRoomForIdentifier(of: registration.user)
            users[registration.user, default: UserUsage()].identifiers += 1
        }
        let number = owners[registration.identifier]?.number ?? nextOwnership()
        owners[registration.identifier] = Ownership(
            user: registration.user, client: client, number: number)
        clients[client.id].lastRequest = key.request
        users[registration.user, default: UserUsage()].clients += 1
        actions.append(.registered(client, key))
        actions.append(.trace(client, .registered))
        enter(.inactive, client, at: now, into: &actions)
        touch(client)
    }

    private mutating func nextOwnership() -> UInt64 {
        lastOwnership += 1
        return lastOwnership
    }

    private func refusal(of registration: Registration) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        if let owner = owners[registration.identifier] {
            guard owner.user == registration.user else { return .identifierOfOtherUser }
            guard owner.client == nil else { return .identifierInUse }
        }
        let clients = users[registration.user]?.clients ?? 0
        return clients < settings.quotas.clientsPerUser ? nil : .tooManyClients
    }

    /// A uid that has as many identifiers as it may loses the one that it has not used for the longest time. There
    /// is one: fewer clients run than it may have identifiers.
    private mutating func makeRoomForIdentifier(of user: UserID) {
        let limit = settings.quotas.clientsPerUser.multipliedReportingOverflow(by: Self.identifiersPerClient)
        guard !limit.overflow, users[user]?.identifiers ?? 0 >= limit.partialValue,
            !mutated(.keepsIdentifiersForEver)
        else { return }
        while let oldest = users[user]?.givenUp.takeFirst() {
            guard owners[oldest.identifier]?.givenUp == oldest.number else { continue }
            if notesChanges, let owner = owners[oldest.identifier] { endedOwnerships.append(owner.number) }
            owners[oldest.identifier] = nil
            users[user]?.identifiers -= 1
            return
        }
    }

    /// The identifier stays its uid's, until that has too many.
    private mutating func giveUp(_ identifier: ClientIdentifier, _ user: UserID) {
        identifiersGivenUp += 1
        let number = owners[identifier]?.number ?? nextOwnership()
        owners[identifier] = Ownership(user: user, client: nil, number: number, givenUp: identifiersGivenUp)
        users[user]?.givenUp.append(.init(identifier: identifier, number: identifiersGivenUp))
        // One that comes and goes all the time must not make this list grow.
        guard let usage = users[user], usage.givenUp.count > 2 * usage.identifiers + 16 else { return }
        let owners = owners
        users[user]?.givenUp.removeAll { owners[$0.identifier]?.givenUp != $0.number }
    }

    /// The process ended or hung up: everything that it had goes with it.
    mutating func forget(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        noteEndOfSleep(client, at: now)
        enter(.notRunning, client, at: now, into: &actions)
        for token in clients[client.id].sockets.dropLast(mutated(.leaksOnExit) ? 1 : 0) {
            removeOffload(token, of: client)
            sockets.remove(token.id)
            actions.append(.close(token))
        }
        schedule.set(client.slot, to: nil)
        deadlines.set(client.slot, to: nil)
        actions.append(.trace(client, .gone))
        actions.append(.forget(client))
        guard let removed = clients.remove(client.id) else { return }
        inherited[client] = nil
        goneCounters += removed.counters
        giveUp(removed.identifier, removed.user)
        users[removed.user]?.clients -= 1
        users[removed.user]?.sockets -= removed.sockets.count
    }
}
