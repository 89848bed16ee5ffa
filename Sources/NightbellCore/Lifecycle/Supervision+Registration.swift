/// Clients register and leave.
extension Supervision {
    /// Identifiers have an owner even while no client uses them, so their number is limited too: this many
    /// for each client that a uid may have at a time.
    private static let identifiersPerClient = 4

    mutating func register(
        _ registration: Registration, _ key: RequestKey, at now: Instant, into actions: inout ActionBuffer
    ) {
        // An unmodified program has no use for sockets and state of a predecessor.
        if !registration.isUnmodified, let client = dormantClient(registration) {
            // Its user has started it: it takes over what its last process left.
            clients[client.id].launches.hasSettled = false
            takeOver(client, registration, key, at: now, into: &actions) { $0.register() }
            return suspendIfIdle(client, at: now, into: &actions)
        }
        if let refusal = refusal(of: registration) {
            return actions.append(.refuseRegistration(refusal, key))
        }
        let client = insert(registration, at: now)
        clients[client.id].lastRequest = key.request
        recordBeginning(client)
        actions.append(.registered(client, key))
        actions.append(.trace(client, .registered))
        advance(client, at: now, into: &actions) { $0.register() }
        tellNotifications(of: client, at: now)
        touch(client)
    }

    private mutating func nextOwnership() -> UInt64 {
        lastOwnership += 1
        return lastOwnership
    }

    /// The client without a process that this registration is about.
    private func dormantClient(_ registration: Registration) -> ClientID? {
        guard !isStopping, let owner = owners[registration.identifier], owner.user == registration.user,
            let client = owner.client, case .dormant = clients[client.id].lifecycle.stage
        else { return nil }
        return client
    }

    /// Adds a client that `refusal` permits.
    mutating func insert(
        _ registration: Registration, at now: Instant
    ) -> ClientID {
        let known = owners[registration.identifier]
        if known == nil {
            makeRoomForIdentifier(of: registration.user)
            users[registration.user, default: UserUsage()].identifiers += 1
        }
        if known?.isQuit ?? true { changes.ownerships.append(registration.identifier) }
        let number = known?.number ?? nextOwnership()
        owners[registration.identifier] = Ownership(user: registration.user, number: number)
        let place = owners.place(of: registration.identifier) ?? 0
        let new = Client(permitted(registration), owner: place, at: now, elapsed: elapsed(at: now))
        let client = ClientID(clients.insert(new))
        owners[registration.identifier]?.client = client
        users[registration.user, default: UserUsage()].clients += 1
        countWishes(of: client, 1)
        observeIssues(client, at: now)
        return client
    }

    /// The registration, with its keep-alive timeout clamped to the permitted range.
    func permitted(_ registration: Registration) -> Registration {
        var registration = registration
        registration.keepAliveTimeout = registration.keepAliveTimeout.map {
            max(min($0, Settings.KeepAlive.maximumTimeout), settings.keepAlive.minimumTimeout)
        }
        return registration
    }

    func refusal(of registration: Registration) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        if let owner = owners[registration.identifier] {
            guard owner.user == registration.user else { return .identifierOfOtherUser }
            guard owner.client == nil else { return .identifierInUse }
        }
        let clients = users[registration.user]?.clients ?? 0
        return clients < settings.quotas.clientsPerUser ? nil : .tooManyClients
    }

    /// A uid at its limit of identifiers loses the least recently used one of those that were not quit, or else
    /// the one that was quit first. There always is an unused one: the limit of clients is lower than that of
    /// identifiers.
    private mutating func makeRoomForIdentifier(of user: UserID) {
        let limit = settings.quotas.clientsPerUser.multipliedReportingOverflow(by: Self.identifiersPerClient)
        guard !limit.overflow, users[user]?.identifiers ?? 0 >= limit.partialValue,
            !mutated(.keepsIdentifiersForEver)
        else { return }
        while let oldest = users[user]?.givenUp.takeFirst() {
            guard let owner = owners[place: oldest.place], owner.givenUp == oldest.number else { continue }
            return removeOwnership(of: owners.identifier(at: oldest.place), owner)
        }
    }

    /// The identifier stays with its uid until that has too many.
    private mutating func giveUp(_ identifier: ClientIdentifier, _ user: UserID) {
        guard let place = owners.place(of: identifier) else { return }
        identifiersGivenUp += 1
        owners[identifier]?.client = nil
        owners[identifier]?.givenUp = identifiersGivenUp
        let isQuit = owners[identifier]?.isQuit ?? false
        users[user]?.givenUp.append(.init(place: place, number: identifiersGivenUp), isQuit: isQuit)
        // A client that registers and leaves repeatedly must not make this list grow.
        guard let usage = users[user], usage.givenUp.count > 2 * usage.identifiers + 16 else { return }
        let owners = owners
        users[user]?.givenUp.removeAll { owners[place: $0.place]?.givenUp != $0.number }
    }

    /// The process ended or disconnected: its sockets and state are released.
    mutating func forget(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        leaveFetch(client, at: now, into: &actions)
        retractEvents(of: client)
        noteEndOfSleep(client, at: now)
        advance(client, at: now, into: &actions) { $0.forget() }
        countWishes(of: client, -1)
        replaceObservations(of: client, with: [])
        observations.formerPushes.remove(client.slot)
        observations.held.remove(client.slot)
        for token in clients[client.id].sockets.dropLast(mutated(.leaksOnExit) ? 1 : 0).reversed() {
            removeOffload(token, of: client)
            if sockets[token.id].isRouted { machine.wishes.routedSockets -= 1 }
            sockets.remove(token.id)
            actions.append(.close(token, of: clients[client.id].user))
        }
        schedule.set(client.slot, to: nil)
        deadlines.set(client.slot, to: nil)
        actions.append(.trace(client, .gone))
        let identifier = owners.identifier(at: clients[client.id].owner)
        actions.append(.forget(client, identifier, clients[client.id].user))
        guard let removed = clients.remove(client.id) else { return }
        users[removed.user]?.stateBytes -= Int(removed.launches.stateBytes)
        inherited[client] = nil
        goneCounters += removed.counters
        giveUp(identifier, removed.user)
        users[removed.user]?.clients -= 1
        users[removed.user]?.sockets -= removed.sockets.count
    }

    // MARK: What is remembered of identifiers

    /// The owner of an identifier, and whether its user has quit the client.
    package func ownership(of identifier: ClientIdentifier) -> (user: UserID, isQuit: Bool)? {
        owners[identifier].map { ($0.user, $0.isQuit) }
    }

    /// All identifiers that have an owner, sorted.
    package var identifiers: [ClientIdentifier] { owners.keys.sorted { $0.description < $1.description } }

    /// Restores an ownership known to a previous supervisor. Call it before the first event.
    package mutating func remember(_ identifier: ClientIdentifier, of user: UserID, isQuit: Bool) {
        guard owners[identifier] == nil else { return }
        owners[identifier] = Ownership(user: user, client: nil, isQuit: isQuit, number: nextOwnership())
        users[user, default: UserUsage()].identifiers += 1
        giveUp(identifier, user)
        changes.ownerships.append(identifier)
    }

    /// Gives an identifier to a uid, as an administrator has declared it: one that another uid has, without a
    /// client, is taken from that.
    ///
    /// - Returns: false if a client of another uid uses it.
    package mutating func reserve(_ identifier: ClientIdentifier, for user: UserID) -> Bool {
        if let owner = owners[identifier], owner.user != user {
            guard owner.client == nil else { return false }
            removeOwnership(of: identifier, owner)
        }
        remember(identifier, of: user, isQuit: false)
        return true
    }

    mutating func setQuit(_ isQuit: Bool, _ identifier: ClientIdentifier) {
        guard let owner = owners[identifier], owner.isQuit != isQuit else { return }
        owners[identifier]?.isQuit = isQuit
        if owner.client == nil { giveUp(identifier, owner.user) }
        changes.ownerships.append(identifier)
    }

    /// No client uses this identifier now, and none is launched under it until its user asks for it again.
    mutating func quitAbsent(
        _ identifier: ClientIdentifier, _ key: RequestKey, into actions: inout ActionBuffer
    ) {
        let isPossible = owners[identifier].map { $0.client == nil } ?? false
        if isPossible { setQuit(true, identifier) }
        actions.append(.commandAnswer(isPossible ? nil : .noSuchClient, key))
    }

    /// Takes a quit back: the process that uses this identifier is about to reconnect, and is wanted again.
    package mutating func takeBackQuit(of identifier: ClientIdentifier) { setQuit(false, identifier) }

    mutating func disown(
        _ identifier: ClientIdentifier, _ key: RequestKey, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard let owner = owners[identifier] else {
            return actions.append(.commandAnswer(.noSuchClient, key))
        }
        if let client = owner.client {
            guard case .dormant = clients[client.id].lifecycle.stage else {
                let state = clients[client.id].lifecycle.state
                return actions.append(.commandAnswer(.illegalState(state), key))
            }
            forget(client, at: now, into: &actions)
        }
        removeOwnership(of: identifier, owner)
        actions.append(.commandAnswer(nil, key))
    }

    /// No client uses it.
    private mutating func removeOwnership(of identifier: ClientIdentifier, _ owner: Ownership) {
        recordEndOfOwnership(owner.number)
        if let place = owners.place(of: identifier) {
            fetches.remove(place)
            removeNotifications(at: place, of: owner.user)
        }
        owners[identifier] = nil
        users[owner.user]?.identifiers -= 1
        changes.ownerships.append(identifier)
    }
}
