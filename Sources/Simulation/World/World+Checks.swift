import NightbellCore

/// What must hold after every step.
extension World {
    mutating func check() {
        if let first = unanswered.first { violate(.answers, "request \(first.key.request) is not answered") }
        require(.counters, core.socketCount == socketCount, "sockets do not add up")
        if core.counters != expected {
            violate(.counters, Wording.difference(core.counters, expected, of: "all"))
        }
        held.counted = core.counters
        if isUsageTouched { checkUsage() }
        checkLaunches()
        for client in clients {
            checkExecution(client)
            checkTime(client)
            checkReach(client)
            for socket in client.sockets where socket.hasProfile { checkOffload(socket, of: client) }
            if client.isTouched { checkView(client) }
        }
    }

    /// What the clients of each uid use.
    private mutating func checkUsage() {
        isUsageTouched = false
        require(.counters, core.clientIDs.count == clients.count, "clients do not add up")
        for (user, usage) in core.usage {
            let own = clients.filter { $0.user == user }
            let sockets = own.map(\.sockets.count).reduce(0, +)
            let state = own.map(\.stateBytes).reduce(0, +)
            require(.counters, usage.stateBytes == state, "the state of uid \(user) does not add up")
            require(.counters, usage.clients == own.count, "clients of uid \(user) do not add up")
            require(.counters, usage.sockets == sockets, "sockets of uid \(user) do not add up")
            let names = owners.values.count { $0.user == user }
            require(.counters, usage.identifiers == names, "identifiers of uid \(user) do not add up")
            require(.counters, sockets <= settings.quotas.socketsPerUser, "uid \(user) is over its quota")
        }
    }

    /// What the core believes of a process, and what waits for it.
    private mutating func checkExecution(_ client: SimulatedClient) {
        let state = core.state(of: client.id)
        switch state {
        case .suspended:
            require(.frozen, client.execution == .stopped, "\(client.name) is believed to sleep and runs")
            require(.stop, !core.isStopping, "\(client.name) sleeps while the supervisor stops")
        case .notRunning, .inactive, .active, .background:
            require(.frozen, client.execution == .running, "\(client.name) is believed to run and is stopped")
        case .dormant:
            require(.frozen, client.execution == .absent, "\(client.name) is believed to have ended")
        case .launching:
            require(.frozen, client.execution == .running, "\(client.name) is believed to be launched")
        case .suspending:
            require(
                .frozen, client.execution == .running || client.freezing != nil,
                "\(client.name) is stopped and nobody asked for it")
        case .terminating:
            require(
                .frozen, client.execution == .running || client.isKilled, "\(client.name) is frozen for ever")
        }
        guard client.execution != .running, !client.isKilled else { return }
        for socket in client.sockets {
            let token = Wording.name(socket.token)
            let isWatched = socket.isWatched || socket.isQueued || client.owed.contains(socket.token)
            require(
                .wakeBound, isWatched, "nobody watches \(token) of \(client.name)")
            // An answer that came before its ping was nothing to wait for.
            guard socket.mustWake else {
                socket.waitingSince = nil
                continue
            }
            guard client.execution != .absent, let since = socket.waitingSince else { continue }
            require(
                .wakeBound, now.since(since) <= Self.wakeBound,
                "something waits in \(token) of \(client.name) since \(Wording.time(since))")
        }
    }

    /// What must not take longer, and what must not be late.
    private mutating func checkTime(_ client: SimulatedClient) {
        guard !core.isStopping else { return }
        let state = core.state(of: client.id)
        checkClock(client)
        for obligation in [client.entering, client.openWake, client.preparing, client.terminating] {
            guard let obligation else { continue }
            require(
                .budgets, now < obligation.until, "\(client.name) has overrun a budget, and nothing happens")
        }
        if let freezing = client.freezing, client.asleepSince == nil, !client.isKilled {
            require(.frozen, now < freezing.until, "the freeze of \(client.name) is waited for too long")
        }
        let isBusy = state != .background || client.isBusy(at: now) || now < client.setUpUntil
        if isBusy || client.wasBusy {
            client.busyAt = now
        } else {
            let wakes = settings.wakes
            let longest = max(wakes.lingerMaximum, wakes.linger, settings.suspension.retryMaximum)
            require(
                .assertions, now < client.busyAt + longest + .seconds(1),
                "\(client.name) stays awake without reason"
            )
        }
        client.wasBusy = isBusy
        guard let window = client.window else { return }
        switch state {
        case .background, .suspending, .suspended:
            require(.keepAlive, elapsed <= window.latest, "\(client.name) was not run in its window")
            require(
                .keepAlive, !hasThawed || elapsed <= window.earliest + .microseconds(1),
                "\(client.name) is inside its window and did not run along")
        case .notRunning, .inactive, .active, .terminating, .dormant, .launching:
            break
        }
    }

    /// The warning, and then the end, come when they are due: what becomes due within a turn may wait for the next
    /// one.
    private mutating func checkClock(_ client: SimulatedClient) {
        guard let clock = client.clock, !client.tasks.isEmpty, client.isInBackground else {
            return client.dueSince = nil
        }
        let due = clock.isWarned ? clock.until : clock.until - settings.budgets.expirationNotice
        guard now >= due else { return client.dueSince = nil }
        let what = clock.isWarned ? "holds its tasks too long" : "is not warned of the end of its tasks"
        require(.budgets, client.dueSince != due, "\(client.name) \(what)")
        client.dueSince = due
    }

    /// What the core tells of a client.
    private mutating func checkView(_ client: SimulatedClient) {
        guard let view = core.view(of: client.id, at: now) else {
            return violate(.counters, "\(client.name) is lost")
        }
        checkStay(client, view.state)
        require(.counters, view.user == client.user, "\(client.name) has another uid")
        require(
            .tokens,
            view.sockets.count == client.sockets.count
                && client.sockets.allSatisfy { view.sockets.contains($0.token) },
            "\(client.name) has other sockets")
        require(
            .counters, client.sockets.count <= settings.quotas.socketsPerClient,
            "\(client.name) is over its quota")
        require(.counters, view.backgroundTasks.count == client.tasks.count, "\(client.name) has other tasks")
        // What is longer than 292 years is as long.
        let isSame = view.keepAliveTimeout?.nanoseconds == client.timeout?.nanoseconds
        require(.keepAlive, isSame, "\(client.name) has another timeout")
        var counters = client.expected
        if let since = client.asleepSince {
            counters.asleepNanoseconds += UInt64(max(0, elapsed.since(since).nanoseconds))
        }
        if view.counters != counters {
            violate(.counters, Wording.difference(view.counters, counters, of: client.name))
        }
    }

    /// Nobody is in the foreground who has not said so, or is taken from there.
    private mutating func checkStay(_ client: SimulatedClient, _ state: ClientState) {
        let isRight =
            switch state {
            case .inactive: client.stay == .inactive
            case .active: client.stay == .active
            case .background, .suspending, .suspended: client.stay == .background
            case .notRunning, .terminating, .dormant, .launching: true
            }
        require(.answers, isRight, "\(client.name) is \(client.stay), and taken to be \(state)")
    }
}
