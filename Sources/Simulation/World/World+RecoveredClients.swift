import NightbellCore

/// Clients without a process, and clients that are being launched, when the supervisor dies.
extension World {
    // MARK: Persistence

    mutating func keepLaunch(_ action: Action) {
        switch action {
        case .declared(let id):
            guard let client = client(id) else { return }
            var kept = RecoverySnapshot.Client(id: id, registration: client.registration, registeredAt: now)
            kept.progress = (core.progress(of: id), core.statistics(of: id))
            kept.presence = .absent
            kept.ownership = core.owner(of: client.registration.identifier)?.number ?? 0
            held.clients[id] = kept
            held.clientGeneration = max(held.clientGeneration, UInt32(id.rawValue >> 32))
            keepOwner(of: client.registration.identifier)
        case .park(let id):
            held.clients[id]?.presence = .absent
            held.clients[id]?.toldWakeID = core.toldWakeID(of: id)
            noteEnds(id)
        case .launch(let id):
            held.clients[id]?.presence = .launched
        case .rejoined(let id, _):
            guard let client = client(id), let before = held.clients[id]?.presence else { return }
            held.clients[id]?.presence = before == .launched || before == .welcomed ? .welcomed : .registered
            held.clients[id]?.registration = client.registration
            held.clients[id]?.registeredAt = now
            held.clients[id]?.toldWakeID = core.toldWakeID(of: id)
            for token in core.sockets(of: id) {
                held.sockets[token]?.request = 0
                held.sockets[token]?.index = 0
            }
            noteEnds(id)
            welcomedInTurn.append(id)
        case .keepState(let id):
            held.clients[id]?.stateBytes = saved
        case .dropState(let id):
            held.clients[id]?.stateBytes = 0
        default:
            break
        }
    }

    private mutating func noteEnds(_ id: ClientID) {
        var held = Held()
        swap(&held, &self.held)
        for token in core.sockets(of: id) {
            held.sockets[token]?.endedInWake = 0
            noteEnd(of: token, &held)
        }
        swap(&held, &self.held)
    }

    /// The welcome is in the queue of the client, and is recorded before the client is sent anything else.
    mutating func noteWelcome(_ id: ClientID) {
        if held.clients[id]?.presence == .welcomed { held.clients[id]?.presence = .registered }
    }

    // MARK: Death

    /// An ended process stays ended, and a launched client identifies itself again.
    mutating func noteUnheard(before index: Int) {
        for case .ended(let id, let ending) in events {
            guard client(id) != nil, !queue.contains(where: { $0.event.isEnd(of: id) }) else { continue }
            queue.append((.ended(id, ending), now))
        }
        // These clients may be told of everything again.
        for (id, kept) in held.clients where kept.presence == .welcomed {
            for socket in client(id)?.sockets ?? [] { socket.isEnded = false }
        }
        for client in clients where client.fate == .parked {
            parkOffload(client)
            for socket in client.sockets { socket.isEnded = false }
        }
        for case .rejoined(let id, _, _) in events where client(id)?.launchUntil != nil {
            client(id)?.plan(.rejoin, at: now)
        }
    }

    /// The next supervisor decides the state of a client with a process that had ended or was about to end.
    mutating func believeLaunches(_ client: SimulatedClient, _ view: ClientView) {
        client.launchReasons = view.launches.reasons
        client.launchNotBefore = view.launches.notBefore ?? Instant(nanoseconds: .min)
        client.inRow = view.launches.inRow
        client.failuresAtStart = Int(core.progress(of: client.id)[0] >> 62)
        client.runsSince = view.state == .launching ? view.enteredStateAt - slept : view.registeredAt
        client.hasSettled = core.progress(of: client.id)[0] & 1 << 52 != 0
        client.neverSpoke = core.progress(of: client.id)[0] & 1 << 22 != 0
        if view.state != .terminating { client.ending = nil }
        client.owed.removeAll()
        client.mustHear = []
        client.mustDropState = false
        client.stateBytes = view.launches.stateBytes
        switch view.state {
        case .dormant:
            if client.fate == .parked || client.execution != .absent { settleParked(client) }
        case .launching:
            client.execution = .running
            // The timeout at the time of the death holds until it is admitted.
            client.timeout = view.keepAliveTimeout
            client.setWindow(parameters)
            let wasLaunching = client.launchUntil != nil
            let until = view.launches.until ?? .distantFuture
            let isLeftAlone = view.launches.until == nil && client.neverSpoke
            require(
                .restart, until <= now + settings.launches.budget || isLeftAlone,
                "\(client.name) has too long to identify itself")
            client.launchUntil = until
            guard !wasLaunching else { break }
            // It was welcomed, but the supervisor has no record of it.
            client.isToRejoin = true
            client.mayHearAgain = true
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating:
            if client.execution == .absent { client.execution = .running }
        }
        client.fate = nil
    }

    private mutating func settleParked(_ client: SimulatedClient) {
        client.fate = .parked
        client.execution = .absent
        client.isKilled = false
        park(client.id)
        queue.removeAll { $0.event.isEnd(of: client.id) }
    }
}

extension Event {
    func isEnd(of client: ClientID) -> Bool {
        if case .ended(client, _) = self { true } else { false }
    }
}
