import NightbellCore

/// The invariants that are checked after every step.
extension World {
    mutating func check() {
        if let first = unanswered.first { violate(.answers, "request \(first.key.request) is not answered") }
        require(.counters, core.socketCount == socketCount, "the number of sockets is wrong")
        if core.counters != expected {
            violate(.counters, TraceFormat.difference(core.counters, expected, of: "all"))
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

    /// Checks the usage of each uid.
    private mutating func checkUsage() {
        isUsageTouched = false
        require(.counters, core.clientIDs.count == clients.count, "the number of clients is wrong")
        for (user, usage) in core.usage {
            let own = clients.filter { $0.user == user }
            let sockets = own.map(\.sockets.count).reduce(0, +)
            let state = own.map(\.stateBytes).reduce(0, +)
            require(.counters, usage.stateBytes == state, "the size of the state of uid \(user) is wrong")
            require(.counters, usage.clients == own.count, "the number of clients of uid \(user) is wrong")
            require(.counters, usage.sockets == sockets, "the number of sockets of uid \(user) is wrong")
            let names = owners.values.count { $0.user == user }
            require(.counters, usage.identifiers == names, "the identifier count of uid \(user) is wrong")
            require(.counters, sockets <= settings.quotas.socketsPerUser, "uid \(user) is over its quota")
        }
    }

    /// Compares the core's state of a process with the real one, and checks its sockets.
    private mutating func checkExecution(_ client: SimulatedClient) {
        let state = core.state(of: client.id)
        switch state {
        case .suspended:
            require(.frozen, client.execution == .stopped, "\(client.name) is recorded as asleep and runs")
            require(.stop, !core.isStopping, "\(client.name) sleeps while the supervisor stops")
            require(.answers, !client.owesSuspended, "\(client.name) sleeps, and is not told")
        case .notRunning, .inactive, .active, .background:
            require(.frozen, client.execution == .running, "\(client.name) is recorded as running and is not")
        case .dormant:
            require(.frozen, client.execution == .absent, "\(client.name) is recorded as ended and is not")
        case .launching:
            require(.frozen, client.execution == .running, "\(client.name) is launched and does not run")
        case .suspending:
            require(
                .frozen, client.execution == .running || client.freezing != nil,
                "\(client.name) is stopped without a request")
        case .terminating:
            require(
                .frozen, client.execution == .running || client.isKilled, "\(client.name) is frozen for ever")
        }
        guard client.execution != .running, !client.isKilled else { return }
        for socket in client.sockets {
            let token = TraceFormat.name(socket.token)
            let isWatched = socket.isWatched || socket.isQueued || client.owed.contains(socket.token)
            require(
                .wakeBound, isWatched, "no watch is armed for \(token) of \(client.name)")
            // An answer that came before its ping is no reason for a wake.
            guard socket.mustWake else {
                socket.waitingSince = nil
                continue
            }
            guard client.execution != .absent, let since = socket.waitingSince else { continue }
            require(
                .wakeBound, now.since(since) <= Self.wakeBound,
                "something waits in \(token) of \(client.name) since \(TraceFormat.time(since))")
        }
    }

    /// Checks the deadlines that concern a client.
    private mutating func checkTime(_ client: SimulatedClient) {
        guard !core.isStopping else { return }
        let state = core.state(of: client.id)
        checkClock(client)
        for obligation in [client.entering, client.openWake, client.preparing, client.terminating] {
            guard let obligation else { continue }
            require(
                .budgets, now < obligation.until, "\(client.name) has overrun a budget without consequence")
        }
        if let freezing = client.freezing, client.asleepSince == nil, !client.isKilled {
            require(.frozen, now < freezing.until, "the freeze of \(client.name) is pending for too long")
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

    /// The warning, and then the end, come when they are due: one that becomes due within a turn may wait for
    /// the next turn.
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

    /// Compares the core's view of a client.
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
        // The timeout is cut to 292 years.
        let isSame = view.keepAliveTimeout?.nanoseconds == client.timeout?.nanoseconds
        require(.keepAlive, isSame, "\(client.name) has another timeout")
        var counters = client.expected
        if let since = client.asleepSince {
            counters.asleepNanoseconds += UInt64(max(0, elapsed.since(since).nanoseconds))
        }
        if view.counters != counters {
            violate(.counters, TraceFormat.difference(view.counters, counters, of: client.name))
        }
    }

    /// A client is in the foreground only if it has said so, and stays there until it leaves.
    private mutating func checkStay(_ client: SimulatedClient, _ state: ClientState) {
        let isRight =
            switch state {
            case .inactive: client.stay == .inactive
            case .active: client.stay == .active
            case .background, .suspending, .suspended: client.stay == .background
            case .notRunning, .terminating, .dormant, .launching: true
            }
        require(.answers, isRight, "\(client.name) is \(client.stay), and recorded as \(state)")
    }
}
