import NightbellCore

/// Admission of clients, and ownership of identifiers.
extension World {
    mutating func register(_ id: ClientID, _ key: RequestKey) {
        guard let registration = registrations.removeValue(forKey: key) else {
            return violate(.answers, "no request for \(TraceFormat.name(id))")
        }
        require(.stop, !core.isStopping, "a client is admitted by a supervisor that stops")
        let client = add(id, registration)
        note("\(TraceFormat.name(id)) is \(client.behaviour), uid \(registration.user)")
    }

    mutating func add(_ id: ClientID, _ registration: Registration) -> SimulatedClient {
        isUsageTouched = true
        coverage.clients += 1
        let behaviour = random.pick(parameters.behaviours) ?? .wellBehaved
        let client = SimulatedClient(id, registration, behaviour, at: now)
        while clientsBySlot.count <= Int(id.slot) { clientsBySlot.append(nil) }
        require(.tokens, clientsBySlot[Int(id.slot)] == nil, "\(TraceFormat.name(id)) is given twice")
        clientsBySlot[Int(id.slot)] = client
        clients.append(client)
        let others = clients.count { $0.user == registration.user }
        require(.counters, others <= settings.quotas.clientsPerUser, "more clients than the quota allows")
        own(registration)
        let namesakes = clients.count { $0.registration.identifier == registration.identifier }
        require(.counters, namesakes == 1, "two clients with one identifier")
        let timeout = registration.keepAliveTimeout
        client.timeout = timeout.map { max($0, settings.keepAlive.minimumTimeout) }
        client.lastRun = elapsed
        client.setWindow(parameters)
        return client
    }

    /// No client uses this identifier any more.
    mutating func giveUp(_ identifier: ClientIdentifier) {
        identifiersGivenUp += 1
        owners[identifier]?.givenUp = identifiersGivenUp
        owners[identifier]?.isQuit = core.ownership(of: identifier)?.isQuit ?? false
    }

    /// At its limit of identifiers, a uid that registers a new one loses the one that it has not used for the
    /// longest time, one that was quit last.
    private mutating func own(_ registration: Registration) {
        let user = registration.user
        if let owner = owners[registration.identifier] {
            require(.tokens, owner.user == user, "an identifier is given to another uid")
        } else if owners.values.count(where: { $0.user == user }) >= settings.quotas.clientsPerUser * 4 {
            let unused = owners.filter { $0.value.user == user && $0.value.givenUp != nil }
            let others = unused.filter { !$0.value.isQuit }
            let oldest = (others.isEmpty ? unused : others).min {
                ($0.value.givenUp ?? 0) < ($1.value.givenUp ?? 0)
            }
            require(.counters, oldest != nil, "uid \(user) has more identifiers in use than it may have")
            if let oldest { owners[oldest.key] = nil }
        }
        owners[registration.identifier] = Ownership(user: user, givenUp: nil)
    }

    mutating func refuseRegistration(_ refusal: Refusal, _ key: RequestKey) {
        guard let registration = registrations.removeValue(forKey: key) else {
            return violate(.answers, "no request for a registration")
        }
        let isRight: Bool
        switch refusal {
        case .shuttingDown:
            isRight = core.isStopping
        case .identifierInUse:
            isRight = clients.contains { $0.registration.identifier == registration.identifier }
        case .identifierOfOtherUser:
            isRight = owners[registration.identifier].map { $0.user != registration.user } ?? false
        case .tooManyClients:
            let own = clients.count { $0.user == registration.user }
            isRight = own >= settings.quotas.clientsPerUser
        case .modeRequired, .noStream, .timeoutTooShort, .timeoutTooLong, .invalidToken, .invalidTask,
            .illegalState,
            .notPollable,
            .listeningSocket, .notAListener, .notASocket, .notConnected, .socketError, .tooManySockets,
            .tooManyTasks, .cannotLaunch, .stateTooLarge, .invalidProfile, .opaqueSocket, .profileNotForThis,
            .receiveBufferNotForThis, .networkChangesNotWanted, .noKeepAlive, .noFetch, .noPush,
            .noSuchObservation,
            .tooManyObservations, .tooManyNotifications:
            isRight = false
        case .noSuchClient:
            isRight = !asked.isNew && asked.client == nil
        }
        require(.answers, isRight, "a registration is refused because of \(refusal)")
    }
}
