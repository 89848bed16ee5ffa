/// Administrators' commands, termination, and the end of the supervisor.
extension Supervision {
    mutating func obey(
        _ command: Command, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        let refusal =
            switch command {
            case .wake: wakeOnRequest(client, at: now, into: &actions)
            case .suspend: suspendOnRequest(client, at: now)
            case .quit: quit(client, at: now, into: &actions)
            case .launch: launchOnRequest(client, at: now, into: &actions)
            case .simulateNetworkChange: simulateNetworkChange(client, into: &actions)
            case .simulateSleep: simulateSleep(client, at: now, into: &actions)
            case .simulateUnlock: simulateUnlock(client, at: now, into: &actions)
            case .simulateFetch: fetchOnRequest(client, at: now, into: &actions)
            case .simulateFetchLaunch: launchForFetchOnRequest(client, at: now, into: &actions)
            }
        actions.append(.commandAnswer(refusal, key))
    }

    private mutating func wakeOnRequest(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background, .suspending, .suspended, .dormant, .launching(until: .some):
            wake(client, .request, at: now, into: &actions)
            return nil
        case .notRunning, .terminating, .launching(until: nil):
            return .illegalState(clients[client.id].lifecycle.state)
        }
    }

    /// Ends the linger time and the set-up time now; `suspendIfIdle` does the rest.
    private mutating func suspendOnRequest(_ client: ClientID, at now: Instant) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        switch clients[client.id].lifecycle.stage {
        case .background:
            guard !mutated(.refusesSuspension), !clients[client.id].assertions.holds(at: now),
                !isFetching(client), !isHandlingPush(client),
                clients[client.id].lifecycle.endLinger()
            else { return .illegalState(.background) }
            clients[client.id].launches.isInBackground = false
            return nil
        case .suspending, .suspended:
            return nil  // it is, or will be
        case .notRunning, .inactive, .active, .terminating, .dormant, .launching:
            return .illegalState(clients[client.id].lifecycle.state)
        }
    }

    /// Only a client without a process has to be launched.
    private mutating func launchOnRequest(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        switch clients[client.id].lifecycle.stage {
        case .dormant:
            requestLaunch(client, .request, at: now, into: &actions)
            return nil
        case .inactive, .active, .background, .suspending, .suspended, .launching:
            return nil  // it runs
        case .notRunning, .terminating:
            return .illegalState(clients[client.id].lifecycle.state)
        }
    }

    /// Ends a client as its user would: with notice if it runs, without if it sleeps.
    private mutating func quit(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        setQuit(true, owners.identifier(at: clients[client.id].owner))
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active, .background:
            notifyTermination(client, .quitByUser, at: now, into: &actions)
        case .suspending:
            if clients[client.id].lifecycle.mayBeFrozen {
                kill(client, .quitByUser, at: now, into: &actions)
            } else {
                notifyTermination(client, .quitByUser, at: now, into: &actions)
            }
        case .launching:
            kill(client, .quitByUser, at: now, into: &actions)
        case .dormant:
            guard staysForLocation(client) || staysForNotifications(client) else {
                forget(client, at: now, into: &actions)
                break
            }
            leaveForLocation(client, into: &actions)
            clients[client.id].lifecycle.becomeDormant(.resting)
        case .suspended:
            noteEndOfSleep(client, at: now)
            kill(client, .quitByUser, at: now, into: &actions)
        case .terminating:
            clients[client.id].lifecycle.quitWhileTerminating()
        case .notRunning:
            return .illegalState(.notRunning)
        }
        return nil
    }

    mutating func notifyTermination(
        _ client: ClientID, _ reason: TerminationReason, at now: Instant, into actions: inout ActionBuffer
    ) {
        abandonFetch(client, at: now, into: &actions)
        let budget = settings.budgets.termination
        advance(client, at: now, into: &actions) { $0.notifyTermination(reason, until: now + budget) }
        scheduleKeepAlive(client)
        actions.append(.notify(client, .willTerminate(budget: budget, reason)))
    }

    /// Ends a client without notice. `Event.ended` follows when the kernel has carried it out.
    mutating func kill(
        _ client: ClientID, _ reason: TerminationReason, at now: Instant, into actions: inout ActionBuffer
    ) {
        // A client that does not run again has vouched for its sockets: their pings continue while it dies,
        // and after.
        if !reason.isInSleep { endOffloads(client, into: &actions) }
        abandonFetch(client, at: now, into: &actions)
        advance(client, at: now, into: &actions) { $0.kill(reason) }
        scheduleKeepAlive(client)
        actions.append(.trace(client, .terminated(reason)))
        actions.append(.kill(client, reason))
    }

    /// The supervisor shuts down: no client may be left suspended, and each is told that it is responsible
    /// for its sockets and timers again.
    mutating func stop(at now: Instant, into actions: inout ActionBuffer) {
        guard !isStopping else { return }
        isStopping = true
        let ids = mutated(.stopsInHashOrder) ? Array(Set(clients.ids)) : Array(clients.ids)
        for id in ids where !mutated(.leavesAsleepOnStop) || !clients[id].lifecycle.mayBeFrozen {
            switch clients[id].lifecycle.stage {
            case .dormant:
                // No process watches its sockets any more: their peers have to know.
                forget(ClientID(id), at: now, into: &actions)
            case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating,
                .launching:
                wake(ClientID(id), .supervisorStopping, at: now, into: &actions)
            }
        }
    }
}
