/// Suspends a client step by step, so that no event is lost.
extension Supervision {
    /// Whether anything but a request can wake a client once it sleeps: a socket, its keep-alive timeout or
    /// an observation.
    func canBeWoken(_ client: ClientID) -> Bool {
        if clients[client.id].keepAlive != nil
            || clients[client.id].sockets.contains(where: { sockets[$0.id].canWake })
        {
            return true
        }
        return clients[client.id].lifecycle.isDormant
            ? hasLaunchingObservations(client) : observations(of: client).contains { $0.subject.wakes }
    }

    /// Whether fetches are all that the client wants to be woken for.
    private func onlyFetches(_ client: ClientID) -> Bool {
        !clients[client.id].modes.contains(.voip) && wantsFetch(client)
    }

    /// Until when a launched client is left awake because nothing could wake it yet; nil: it may be
    /// suspended. Connecting and registering takes longer than the wake that it was launched for.
    func endOfSetUp(_ client: ClientID, at now: Instant) -> Instant? {
        guard clients[client.id].launches.isInBackground,
            case .background = clients[client.id].lifecycle.stage,
            !clients[client.id].hibernates, !canBeWoken(client), !onlyFetches(client),
            !mutated(.suspendsInSetUp)
        else { return nil }
        let end = clients[client.id].registeredAt + settings.launches.budget
        return now < end ? end : nil
    }

    /// It has a wake source now, but its peer may not know yet that it can be reached.
    mutating func lingerAfterSetUp(_ client: ClientID, at now: Instant) {
        guard !clients[client.id].hibernates, endOfSetUp(client, at: now) == nil else { return }
        clients[client.id].lifecycle.linger(until: now + settings.wakes.linger)
    }

    /// Whether a client that should be reachable is suspended or has no process, and only a request could
    /// change that.
    func isOutOfReach(_ client: ClientID) -> Bool {
        let record = clients[client.id]
        guard record.modes.contains(.voip) || record.launches.isInBackground, !canBeWoken(client),
            !onlyFetches(client)
        else {
            return false
        }
        return switch record.lifecycle.stage {
        case .suspended: true
        case .dormant(.resting): record.launches.reasons.isEmpty
        case .notRunning, .inactive, .active, .background, .suspending, .terminating, .dormant, .launching:
            false
        }
    }

    /// Asks the client to finish its work.
    mutating func prepareToSuspend(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
        if clients[client.id].exitsOnSuspend {
            return notifyTermination(client, .exitsOnSuspend, at: now, into: &actions)
        }
        clients[client.id].lastEpoch += 1
        let epoch = clients[client.id].lastEpoch
        let budget = settings.budgets.prepareToSuspend
        advance(client, at: now, into: &actions) { $0.prepareToSuspend(epoch: epoch, until: now + budget) }
        actions.append(.notify(client, .prepareToSuspend(epoch: epoch, budget: budget)))
    }

    /// The client is ready, or its time is up: watches its sockets, then freezes it. A socket with unread
    /// bytes fires as soon as it is watched.
    mutating func freeze(
        _ client: ClientID, epoch: UInt64, isReady: Bool, at now: Instant, into actions: inout ActionBuffer
    ) {
        // A client that was not asked, or has not answered, may be in the middle of a message.
        if isReady || mutated(.offloadsUnasked) { beginOffloads(client, at: now, into: &actions) }
        watchBeginnings(client)
        armSockets(client, into: &actions)
        let until = now + settings.suspension.confirmation
        advance(client, at: now, into: &actions) { $0.freeze(epoch: epoch, until: until) }
        actions.append(.freeze(client, epoch: epoch))
    }

    /// The process that speaks for an unmodified program has found it idle and handed over all that it waits
    /// for.
    mutating func suspendUnmodified(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Answer {
        switch clients[client.id].lifecycle.stage {
        case .inactive, .active:
            guard !isStopping else { return .refused(.shuttingDown) }
            // A wake that it does not know of yet: it is told at the end of this turn, and starts over.
            guard clients[client.id].pendingWake == nil else { return .done }
            clients[client.id].backgroundSince = elapsed(at: now)
            clients[client.id].lastEpoch += 1
            let epoch = clients[client.id].lastEpoch
            // With the sockets that it has handed over it has vouched for them.
            freeze(client, epoch: epoch, isReady: true, at: now, into: &actions)
            return .done
        case .suspending, .suspended:
            return .done  // it is there
        case .notRunning, .background, .terminating, .dormant, .launching:
            return .refused(.illegalState(clients[client.id].lifecycle.state))
        }
    }

    /// The process that speaks for an unmodified program has found a reason to let it run. This is no wake.
    mutating func resumeUnmodified(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        noteEndOfSleep(client, at: now)
        if case .suspending = clients[client.id].lifecycle.stage {
            count(.suspensionsCancelled, of: client)
            actions.append(.trace(client, .suspensionCancelled))
        }
        if !mutated(.keepsOffloadsOfUnmodified) { endOffloads(client, into: &actions) }
        if client != recovering, !mutated(.leavesUnmodifiedFrozen) { actions.append(.thaw(client)) }
        advance(client, at: now, into: &actions) { $0.enterForeground() }
    }

    /// The client answered `PrepareToSuspend`.
    mutating func ready(
        _ client: ClientID, epoch: UInt64, isIdle: Bool, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch clients[client.id].lifecycle.stage {
        case .suspending(let suspending):
            switch suspending.phase {
            case .preparing where suspending.epoch == epoch:
                if isIdle, clients[client.id].hibernates, !mutated(.suspendsHibernators) {
                    // The supervisor answers the pings of surviving sockets from now on: the client has
                    // vouched for them.
                    beginOffloads(client, at: now, into: &actions)
                    hibernate(client, at: now, into: &actions)
                } else if isIdle {
                    freeze(client, epoch: epoch, isReady: true, at: now, into: &actions)
                } else {
                    let pause = clients[client.id].backoff.next(settings.suspension)
                    cancelSuspension(client, epoch: epoch, pause: pause, at: now, into: &actions)
                }
            case .preparing, .freezing:
                break  // an answer to an attempt that is over, or given twice
            }
        case .notRunning, .inactive, .active, .background, .suspended, .terminating, .dormant, .launching:
            break  // an answer to an attempt that is over
        }
    }

    /// Terminates the client instead of suspending it.
    mutating func hibernate(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        noteEndOfSleep(client, at: now)
        count(.hibernations, of: client)
        kill(client, .hibernation, at: now, into: &actions)
    }

    /// Cancels the suspension; it may be tried again after `pause`.
    mutating func cancelSuspension(
        _ client: ClientID, epoch: UInt64, pause: Duration, at now: Instant, into actions: inout ActionBuffer
    ) {
        if clients[client.id].lifecycle.mayBeFrozen, !mutated(.leavesFrozenOnCancel) {
            endOffloads(client, into: &actions)
            if client != recovering { actions.append(.thaw(client)) }
        }
        count(.suspensionsCancelled, of: client)
        actions.append(.trace(client, .suspensionCancelled))
        runOn(client, until: now + pause, at: now, into: &actions)
        actions.append(.notify(client, .suspendCancelled(epoch: epoch)))
    }

    /// It runs on, and is not suspended before that time; an unmodified one not before the next request.
    mutating func runOn(
        _ client: ClientID, until hold: Instant, at now: Instant, into actions: inout ActionBuffer
    ) {
        let isUnmodified = clients[client.id].isUnmodified
        advance(client, at: now, into: &actions) {
            isUnmodified ? $0.enterForeground() : $0.cancelSuspension(holdUntil: hold)
        }
    }

    mutating func freezeConfirmed(
        _ client: ClientID, epoch: UInt64, at now: Instant, into actions: inout ActionBuffer
    ) {
        let epoch = mutated(.confirmsAnyEpoch) ? clients[client.id].lastEpoch : epoch
        // Otherwise the client was thawed since, or this is an earlier attempt, which was cancelled.
        guard clients[client.id].lifecycle.isFreezing(epoch: epoch) else { return }
        count(.suspensions, of: client)
        clients[client.id].backoff.reset()
        clients[client.id].launches.hasSettled = true
        clients[client.id].assertions.restoreTime()
        let since = elapsed(at: now)
        advance(client, at: now, into: &actions) { $0.sleep(since: since) }
        if client != recovering { tellSuspended(client, into: &actions) }
        if isOutOfReach(client) { actions.append(.trace(client, .outOfReach)) }
    }

    /// Whatever speaks for an unmodified program can look at it now that it does not change any more.
    func tellSuspended(_ client: ClientID, into actions: inout ActionBuffer) {
        guard clients[client.id].isUnmodified else { return }
        actions.append(.notify(client, .suspended(epoch: clients[client.id].lastEpoch)))
    }

    mutating func freezePending(_ client: ClientID, epoch: UInt64, at now: Instant) {
        clients[client.id].lifecycle.waitForFreeze(epoch: epoch, at: now)
    }

    /// The kernel did not confirm, or refused: the client runs on, and the next attempt follows with
    /// back-off.
    mutating func freezeFailed(
        _ client: ClientID, epoch: UInt64, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard clients[client.id].lifecycle.isFreezing(epoch: epoch) else { return }
        count(.suspensionsFailed, of: client)
        actions.append(.trace(client, .suspensionFailed))
        let pause = clients[client.id].backoff.next(settings.suspension)
        cancelSuspension(client, epoch: epoch, pause: pause, at: now, into: &actions)
    }

    /// Another process has resumed a suspended client. It gets no wake: it reads on as if it had never been
    /// suspended, lingers, and is suspended again.
    mutating func foundRunning(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        switch clients[client.id].lifecycle.stage {
        case .suspended:
            noteEndOfSleep(client, at: now)
            actions.append(.trace(client, .foundRunning))
            let epoch = clients[client.id].lastEpoch
            cancelSuspension(client, epoch: epoch, pause: settings.wakes.linger, at: now, into: &actions)
        case .suspending:
            break  // the kernel's confirmation is being checked anyway
        case .notRunning, .inactive, .active, .background, .terminating, .dormant, .launching:
            break  // it was not believed to be suspended
        }
    }

    /// A message of a client that is being suspended, or is suspended, keeps it running or wakes it.
    mutating func callBack(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        switch clients[client.id].lifecycle.stage {
        case .suspending(let suspending):
            switch suspending.phase {
            case .preparing:
                cancelSuspension(
                    client, epoch: suspending.epoch, pause: settings.wakes.linger, at: now, into: &actions)
            case .freezing:
                wake(client, .clientMessage, at: now, into: &actions)
            }
        case .suspended:
            wake(client, .clientMessage, at: now, into: &actions)
        case .notRunning, .inactive, .active, .background, .terminating, .dormant, .launching:
            break  // it runs
        }
    }
}
