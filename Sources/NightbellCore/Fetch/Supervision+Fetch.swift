/// Why no fetch may begin at present.
package enum FetchObstacle: Sendable, Hashable, CaseIterable {
    case networkDown
    /// Of memory or processors.
    case shortage
    case machineSleeps
    /// As many fetches are going on as may at a time …
    case places
    /// … or as many of its user.
    case placesOfUser
}

/// Fetches: their beginnings and ends. `FetchScheduler` chooses the moments.
extension Supervision {
    /// A fetch that is going on. Its budget counts running time, as all budgets do.
    package struct FetchRun: Sendable, Equatable {
        /// The wake that told the client of it.
        package var wakeID: UInt64
        package var began: Instant
        package var until: Instant

        package init(wakeID: UInt64, began: Instant, until: Instant) {
            self.wakeID = wakeID
            self.began = began
            self.until = until
        }
    }

    /// How a fetch has ended.
    private enum FetchEnd {
        case completed(FetchResult)
        /// The client did not complete it.
        case unfinished
        /// The client did not complete it, and was in the foreground meanwhile.
        case interrupted
        /// The client is not to blame, or is gone.
        case abandoned
    }

    // MARK: Waiting for a moment

    mutating func setMinimumFetchInterval(
        _ interval: FetchInterval, _ client: ClientID, at now: Instant
    ) -> Answer {
        guard clients[client.id].modes.contains(.fetch) else { return .refused(.modeRequired(.fetch)) }
        let place = clients[client.id].owner
        let isWaiting = isWaitingForFetch(client)
        let kept = mutated(.ignoresFetchInterval) && interval != .never ? .minimum : interval
        fetches.setInterval(kept, at: place, isWaiting: isWaiting, at: elapsed(at: now))
        recordFetch(of: client)
        return .done
    }

    /// Whether the client wants to fetch now and then.
    func wantsFetch(_ client: ClientID) -> Bool {
        guard !fetches.isEmpty, clients[client.id].modes.contains(.fetch),
            let state = fetches.state(at: clients[client.id].owner)
        else { return false }
        return state.interval != .never
    }

    func isFetching(_ client: ClientID) -> Bool { fetchRuns.contains(client.slot) }

    /// Whether a fetch of the client may begin: it is in the background, or can be launched there.
    private func isWaitingForFetch(_ client: ClientID) -> Bool {
        guard !isStopping, clients[client.id].modes.contains(.fetch), !isFetching(client) else {
            return false
        }
        switch clients[client.id].lifecycle.stage {
        case .background, .suspending, .suspended:
            return true
        case .dormant(.waiting):
            // It has failed. When the pause is over the moment may be a bad one.
            return false
        case .dormant(.resting), .dormant(.queued):
            let launches = clients[client.id].launches
            return clients[client.id].isLaunchable && !launches.reasons.contains(.fetch) && !isQuit(client)
                && !launches.isLeft
        case .active:
            return mutated(.fetchesInForeground)
        case .notRunning, .inactive, .terminating, .launching:
            return false
        }
    }

    /// Plans the client's next fetch, or none, if that has changed.
    mutating func scheduleFetch(_ client: ClientID, at now: Instant) {
        let place = clients[client.id].owner
        guard fetches.contains(place) else { return }
        let isWaiting = isWaitingForFetch(client)
        guard isWaiting != (fetches.window(at: place) != nil) else { return }
        fetches.setWaiting(isWaiting, at: place, at: elapsed(at: now))
    }

    /// Learns from a change of a client's state.
    mutating func noteForFetch(
        _ client: ClientID, from previous: ClientState, to state: ClientState, at now: Instant
    ) {
        let place = clients[client.id].owner
        guard !fetches.isEmpty, fetches.contains(place) else { return }
        if state == .active {
            fetches.noteOpening(of: place, at: elapsed(at: now))
            recordFetch(of: client)
        } else if previous == .active {
            fetches.noteLeaving(of: place, at: elapsed(at: now))
            recordFetch(of: client)
        }
        scheduleFetch(client, at: now)
    }

    /// Fetches depend on the network, on memory and processors, and are pointless shortly before the machine
    /// sleeps.
    mutating func permitFetches(at now: Instant) {
        let isOnline = machine.network?.isUp ?? true || mutated(.fetchesOffline)
        let isPermitted = isOnline && !machine.isShort && !machine.isSleepImminent
        fetches.setPermitted(isPermitted, at: elapsed(at: now))
    }

    /// Why a client's planned fetch may not begin; nil: it may, or none is planned.
    func fetchObstacle(_ client: Client, at now: Instant) -> FetchObstacle? {
        guard fetches.window(at: client.owner) != nil else { return nil }
        if machine.network?.isUp == false { return .networkDown }
        if machine.isShort || isMemoryShort(at: now) { return .shortage }
        if machine.isSleepImminent { return .machineSleeps }
        if fetches.isHeld(client.owner) || !fetches.hasPlace(for: client.user) { return .placesOfUser }
        return fetches.hasPlace ? nil : .places
    }

    /// When the timer must fire for fetches. While memory is short they wait.
    var fetchDeadline: Instant? {
        guard let deadline = fetches.nextDeadline else { return nil }
        return max(deadline - machineSlept, pressedUntil)
    }

    /// Ends a turn: begins the fetches that are due, and those that may begin because the machine is awake.
    mutating func runFetches(at now: Instant, into actions: inout ActionBuffer) {
        guard !fetches.isEmpty, !isMemoryShort(at: now) else { return }
        while let place = fetches.popReady(at: elapsed(at: now)) {
            guard let owner = owners[place: place], let client = owner.client else { continue }
            guard fetches.hasPlace(for: owner.user) else {
                fetches.hold(place, of: owner.user, at: elapsed(at: now))
                continue
            }
            fetches.setSimulated(false, at: place, at: elapsed(at: now))
            catchUp(client, at: now, into: &actions)
            // An expired deadline may have terminated it.
            if clients.contains(client.id), isWaitingForFetch(client) {
                wake(client, .fetch, at: now, into: &actions)
            }
            suspendIfIdle(client, at: now, into: &actions)
        }
    }

    // MARK: One fetch

    /// The client is being told of a fetch, in the wake that was just decided.
    mutating func beginFetch(_ client: ClientID, at now: Instant) {
        guard !isFetching(client) else { return }
        let until = now + settings.budgets.fetch
        let run = FetchRun(wakeID: clients[client.id].lastWakeID, began: now, until: until)
        fetchRuns.insert(run, at: client.slot)
        fetches.begin(clients[client.id].owner, of: clients[client.id].user, at: elapsed(at: now))
        recordFetch(of: client)
    }

    /// A client without a process is launched for a fetch.
    mutating func noteLaunchForFetch(_ client: ClientID, at now: Instant) {
        fetches.noteLaunch(of: clients[client.id].owner, at: elapsed(at: now))
        recordFetch(of: client)
    }

    /// The client says that it has finished a fetch.
    mutating func finishFetch(
        _ result: FetchResult, wakeID: UInt64, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) -> Answer {
        let isUntold = clients[client.id].pendingWake != nil && wakeID >= clients[client.id].lastWakeID
        guard isFetching(client), fetchRuns[client.slot].wakeID == wakeID, !isUntold else {
            // A previous supervisor process accepted it.
            return wasInherited(key, of: client) || mutated(.believesAnyFetch) ? .done : .refused(.noFetch)
        }
        endFetch(client, .completed(result), at: now, into: &actions)
        linger(client, at: now)
        return .done
    }

    /// Its time is over. In the foreground it may go on, and while media plays its user needs it; otherwise
    /// it is terminated.
    mutating func fetchOverran(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        switch clients[client.id].lifecycle.stage {
        case .background:
            overran(.fetch, client, into: &actions)
            endFetch(client, .unfinished, at: now, into: &actions)
            guard !clients[client.id].assertions.mediaPlays(at: now), !mutated(.permitsEndlessFetches) else {
                return
            }
            kill(client, .fetchOverran, at: now, into: &actions)
        case .inactive, .active:
            endFetch(client, .interrupted, at: now, into: &actions)
        case .notRunning, .suspending, .suspended, .terminating, .dormant, .launching:
            endFetch(client, .abandoned, at: now, into: &actions)
        }
    }

    /// The client has failed: a fetch that was going on, or for which it was launched, is not completed.
    mutating func failFetch(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        if isFetching(client) {
            endFetch(client, .unfinished, at: now, into: &actions)
        } else if clients[client.id].launches.reasons.contains(.fetch) {
            clients[client.id].launches.reasons.remove(.fetch)
            fetches.noteFailedLaunch(of: clients[client.id].owner)
            recordFetch(of: client)
        }
    }

    /// The client leaves by itself, which does not complete a fetch either.
    mutating func leaveFetch(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard !isStopping else { return abandonFetch(client, at: now, into: &actions) }
        switch clients[client.id].lifecycle.stage {
        case .active where isFetching(client):
            endFetch(client, .interrupted, at: now, into: &actions)
        case .inactive, .active, .background, .suspending, .suspended, .launching:
            failFetch(client, at: now, into: &actions)
        case .notRunning, .terminating, .dormant:
            abandonFetch(client, at: now, into: &actions)
        }
    }

    /// The client is being terminated, or is gone.
    mutating func abandonFetch(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        if isFetching(client) { endFetch(client, .abandoned, at: now, into: &actions) }
    }

    private mutating func endFetch(
        _ client: ClientID, _ end: FetchEnd, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard let run = fetchRuns.remove(client.slot) else { return }
        let place = clients[client.id].owner
        let user = clients[client.id].user
        let took = now.since(run.began)
        switch end {
        case .completed(let result):
            fetches.end(place, of: user, result, took: took, budget: settings.budgets.fetch)
            actions.append(.trace(client, .fetchEnded(result)))
        case .unfinished:
            fetches.end(place, of: user, nil, took: took, budget: settings.budgets.fetch)
            actions.append(.trace(client, .fetchEnded(nil)))
        case .interrupted:
            fetches.interrupt(place, of: user)
            actions.append(.trace(client, .fetchEnded(nil)))
        case .abandoned:
            fetches.abandon(place, of: user)
            actions.append(.trace(client, .fetchEnded(nil)))
        }
        recordFetch(of: client)
        scheduleFetch(client, at: now)
    }

    // MARK: On request

    /// A fetch as if its moment had come, for a client that runs. It changes neither the client's score nor
    /// its habit.
    mutating func fetchOnRequest(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        guard clients[client.id].modes.contains(.fetch) else { return .modeRequired(.fetch) }
        let state = clients[client.id].lifecycle.state
        guard !isStopping else { return .shuttingDown }
        switch state {
        case .background, .suspending, .suspended:
            guard !isFetching(client) else { return .illegalState(state) }
            actions.append(.trace(client, .simulated(.simulateFetch)))
            fetches.setSimulated(true, at: clients[client.id].owner, at: elapsed(at: now))
            wake(client, .fetch, at: now, into: &actions)
            return nil
        case .notRunning, .inactive, .active, .terminating, .dormant, .launching:
            return .illegalState(state)
        }
    }

    /// The same for a client without a process, which is launched.
    mutating func launchForFetchOnRequest(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        guard clients[client.id].modes.contains(.fetch) else { return .modeRequired(.fetch) }
        let state = clients[client.id].lifecycle.state
        guard !isStopping else { return .shuttingDown }
        switch state {
        case .dormant:
            guard clients[client.id].isLaunchable else { return .cannotLaunch }
            actions.append(.trace(client, .simulated(.simulateFetchLaunch)))
            // One that is to be launched for a fetch already is still judged by that.
            if !clients[client.id].launches.reasons.contains(.fetch) {
                fetches.setSimulated(true, at: clients[client.id].owner, at: elapsed(at: now))
            }
            wake(client, .fetch, at: now, into: &actions)
            return nil
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating, .launching:
            return .illegalState(state)
        }
    }
}
