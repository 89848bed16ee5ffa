import NightbellCore

/// Clients without a process, and clients that are being launched, when the supervisor dies.
extension World {
    // MARK: Persistence

    mutating func keepLaunch(_ action: Action) {
        switch action {
        case .declared(let id):
            guard let client = client(id) else { return }
            log.declare(id, record(of: client), of: core)
        case .makeDormant(let id):
            if let record = log.written[id] { log.makeDormant(id, record) }
        case .launch(let id):
            if let record = log.written[id] { log.launch(id, record) }
        case .rejoined(let id, _):
            guard let client = client(id), let before = log.written[id] else { return }
            var record = record(of: client)
            record.stateBytes = before.stateBytes
            for token in core.sockets(of: id) {
                if let socket = core.snapshot(of: token) { log.put(socket, of: token) }
            }
            let canRepeat = before.presence == .launched || before.presence == .welcomed
            log.admit(id, record, canRepeat: canRepeat, of: core)
            welcomedInTurn.append(id)
        case .storeState(let id):
            log.update(id) { $0.stateBytes = saved }
        case .dropState(let id):
            log.update(id) { $0.stateBytes = 0 }
        default:
            break
        }
    }

    /// The welcome is in the queue of the client, and is recorded before the client is sent anything else.
    mutating func noteWelcome(_ id: ClientID) {
        guard let record = log.written[id], record.presence == .welcomed else { return }
        log.confirmWelcome(id, record)
    }

    /// A client that the supervisor had parked as it died still has the record of its process.
    mutating func parkAgain() {
        for (id, record) in log.written where record.presence != .absent && core.state(of: id) == .dormant {
            log.makeDormant(id, record)
        }
    }

    // MARK: Death

    /// An ended process stays ended, and a launched client identifies itself again.
    mutating func noteUnheard(before index: Int) {
        for case .ended(let id, let ending) in events {
            guard client(id) != nil, !queue.contains(where: { $0.event.isEnd(of: id) }) else { continue }
            queue.append((.ended(id, ending), now))
        }
        // These clients may be told of everything again.
        for (id, kept) in log.written where kept.presence == .welcomed {
            for socket in client(id)?.sockets ?? [] { socket.isEnded = false }
        }
        for client in clients where client.fate == .parked {
            parkOffload(client)
            for socket in client.sockets { socket.isEnded = false }
        }
        for case .rejoined(let id, _, _) in events {
            guard let client = client(id), client.launchUntil != nil else { continue }
            if client.hasSaidHelloAgain { client.isToRejoin = true } else { client.plan(.rejoin, at: now) }
        }
    }

    /// The next supervisor decides the state of a client with a process that had ended or was about to end.
    mutating func believeLaunches(_ client: SimulatedClient, _ view: ClientView) {
        client.launchReasons = view.launches.reasons
        client.launchNotBefore = view.launches.notBefore ?? Instant(nanoseconds: .min)
        client.inRow = view.launches.inRow
        let row = core.row(of: client.id)
        client.failuresAtStart = Int(row.failuresAtStart)
        client.misses = Int(row.flags.misses)
        client.runsSince = view.state == .launching ? view.enteredStateAt - slept : view.registeredAt
        client.launchedAt = view.enteredStateAt
        client.hasSettled = row.flags.contains(.hasSettled)
        client.neverSpoke = row.flags.contains(.neverSpoke)
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
        makeDormant(client.id)
        queue.removeAll { $0.event.isEnd(of: client.id) }
    }
}

extension Event {
    func isEnd(of client: ClientID) -> Bool {
        if case .ended(client, _) = self { true } else { false }
    }
}
