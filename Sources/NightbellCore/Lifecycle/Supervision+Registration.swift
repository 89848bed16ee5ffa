/// How clients come and go.
extension Supervision {
    /// Every identifier belongs to somebody for as long as the supervisor runs, so their number is limited too:
    /// this many for each client that a uid may have at a time.
    private static let identifiersPerClient = 4

    mutating func register(
        _ registration: Registration, _ key: RequestKey, at now: Instant, into actions: inout ActionBuffer
    ) {
        if let refusal = refusal(of: registration) {
            return actions.append(.refuseRegistration(refusal, key))
        }
        let client = ClientID(clients.insert(Client(registration, at: now)))
        if owners[registration.identifier] == nil {
            users[registration.user, default: UserUsage()].identifiers += 1
        }
        owners[registration.identifier] = Ownership(user: registration.user, client: client)
        users[registration.user, default: UserUsage()].clients += 1
        actions.append(.registered(client, key))
        actions.append(.trace(client, .registered))
        enter(.inactive, client, at: now, into: &actions)
    }

    private func refusal(of registration: Registration) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        if let owner = owners[registration.identifier] {
            guard owner.user == registration.user else { return .identifierOfOtherUser }
            guard owner.client == nil else { return .identifierInUse }
        }
        let usage = users[registration.user] ?? UserUsage()
        let identifiers = settings.quotas.clientsPerUser.multipliedReportingOverflow(
            by: Self.identifiersPerClient)
        guard usage.clients < settings.quotas.clientsPerUser,
            owners[registration.identifier] != nil || identifiers.overflow
                || usage.identifiers < identifiers.partialValue
        else { return .tooManyClients }
        return nil
    }

    /// The process ended or hung up: everything that it had goes with it.
    mutating func forget(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        noteEndOfSleep(client, at: now)
        enter(.notRunning, client, at: now, into: &actions)
        for token in clients[client.id].sockets.dropLast(mutated(.leaksOnExit) ? 1 : 0) {
            sockets.remove(token.id)
            actions.append(.close(token))
        }
        schedule.set(client.slot, to: nil)
        deadlines.set(client.slot, to: nil)
        actions.append(.trace(client, .gone))
        actions.append(.forget(client))
        guard let removed = clients.remove(client.id) else { return }
        owners[removed.identifier]?.client = nil
        users[removed.user]?.clients -= 1
        users[removed.user]?.sockets -= removed.sockets.count
    }
}
