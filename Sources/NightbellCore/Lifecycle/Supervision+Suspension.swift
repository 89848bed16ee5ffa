/// Suspends a client step by step, so that no event is lost.
extension Supervision {
    /// The first pause before checking again whether the kernel has confirmed. Freezing a process takes some
    /// 20 µs (measured); the kernel notifies no faster than every 10 ms, so polling is quicker than waiting.
    private static let firstLook: Duration = .microseconds(100)
    private static let longestLook: Duration = .milliseconds(50)

    /// Whether anything but a request can wake a client once it sleeps: a socket that is still open at its other end, or
    /// its keep-alive timeout.
    func canBeWoken(_ client: ClientID) -> Bool {
        clients[client.id].keepAlive != nil
            || clients[client.id].sockets.contains { !sockets[$0.id].condition.isPastEnd }
    }

    /// Until when a launched client is left awake because nothing could wake it yet; nil: it may be suspended. Connecting
    /// and registering takes longer than the wake that it was launched for.
    func endOfSetUp(_ client: ClientID, at now: Instant) -> Instant? {
        guard clients[client.id].launches.isInBackground, case .background = clients[client.id].lifecycle,
            !clients[client.id].hibernates, !canBeWoken(client), !mutated(.suspendsInSetUp)
        else { return nil }
        let end = clients[client.id].registeredAt + settings.launches.budget
        return now < end ? end : nil
    }

    /// It has a wake source now, but its peer may not know yet that it can be reached.
    mutating func lingerAfterSetUp(_ client: ClientID, at now: Instant) {
        guard case .background(var background) = clients[client.id].lifecycle,
            !clients[client.id].hibernates, endOfSetUp(client, at: now) == nil
        else { return }
        let linger = now + settings.wakes.linger
        background.holdUntil = max(background.holdUntil ?? linger, linger)
        clients[client.id].lifecycle = .background(background)
    }

    /// Whether a client that should be reachable is suspended or has no process, and only a request could change that.
    func isOutOfReach(_ client: ClientID) -> Bool {
        let record = clients[client.id]
        guard record.modes.contains(.voip) || record.launches.isInBackground, !canBeWoken(client) else {
            return false
        }
        return switch record.lifecycle {
        case .suspended, .dormant(.resting): true
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
        enter(
            .suspending(.init(epoch: epoch, phase: .preparing(until: now + budget))), client, at: now,
            into: &actions)
        actions.append(.notify(client, .prepareToSuspend(epoch: epoch, budget: budget)))
    }

    /// The client is ready, or its time is up: watches its sockets, then freezes it. A socket with unread bytes fires
    /// as soon as it is watched.
    mutating func freeze(
        _ client: ClientID, epoch: UInt64, isReady: Bool, at now: Instant, into actions: inout ActionBuffer
    ) {
        // A client that was not asked, or has not answered, may be in the middle of a message.
        if isReady || mutated(.offloadsUnasked) { beginOffloads(client, at: now, into: &actions) }
        watchBeginnings(client)
        armSockets(client, into: &actions)
        let until = now + settings.suspension.confirmation
        let phase = Lifecycle.Suspending.Phase.freezing(until: until, lookAt: until, pause: Self.firstLook)
        enter(.suspending(.init(epoch: epoch, phase: phase)), client, at: now, into: &actions)
        actions.append(.freeze(client, epoch: epoch))
    }

    /// The client answered `PrepareToSuspend`.
    mutating func ready(
        _ client: ClientID, epoch: UInt64, isIdle: Bool, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch clients[client.id].lifecycle {
        case .suspending(let suspending):
            switch suspending.phase {
            case .preparing where suspending.epoch == epoch:
                if isIdle, clients[client.id].hibernates, !mutated(.suspendsHibernators) {
                    // The supervisor answers the pings of surviving sockets from now on: the client has vouched for them.
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
        enter(.background(.init(holdUntil: now + pause)), client, at: now, into: &actions)
        actions.append(.notify(client, .suspendCancelled(epoch: epoch)))
    }

    mutating func freezeConfirmed(
        _ client: ClientID, epoch: UInt64, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch clients[client.id].lifecycle {
        case .suspending(let suspending):
            switch suspending.phase {
            case .freezing where suspending.epoch == epoch || mutated(.confirmsAnyEpoch):
                count(.suspensions, of: client)
                clients[client.id].backoff.reset()
                clients[client.id].launches.hasSettled = true
                clients[client.id].assertions.restoreTime()
                enter(.suspended(since: elapsed(at: now)), client, at: now, into: &actions)
                if isOutOfReach(client) { actions.append(.trace(client, .outOfReach)) }
            case .preparing, .freezing:
                break  // of an earlier, cancelled attempt
            }
        case .notRunning, .inactive, .active, .background, .suspended, .terminating, .dormant, .launching:
            break  // thawed since
        }
    }

    mutating func freezePending(_ client: ClientID, epoch: UInt64, at now: Instant) {
        guard case .suspending(var suspending) = clients[client.id].lifecycle, suspending.epoch == epoch,
            case .freezing(let until, _, let pause) = suspending.phase
        else { return }
        suspending.phase = .freezing(
            until: until, lookAt: now + pause, pause: min(pause * 2, Self.longestLook))
        clients[client.id].lifecycle = .suspending(suspending)
    }

    /// The kernel did not confirm, or refused: the client runs on, and the next attempt follows with back-off.
    mutating func freezeFailed(
        _ client: ClientID, epoch: UInt64, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard case .suspending(let suspending) = clients[client.id].lifecycle, suspending.epoch == epoch,
            case .freezing = suspending.phase
        else { return }
        count(.suspensionsFailed, of: client)
        actions.append(.trace(client, .suspensionFailed))
        let pause = clients[client.id].backoff.next(settings.suspension)
        cancelSuspension(client, epoch: epoch, pause: pause, at: now, into: &actions)
    }

    /// Another process has resumed a suspended client. It gets no wake: it reads on as if it had never been suspended,
    /// lingers, and is suspended again.
    mutating func foundRunning(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        switch clients[client.id].lifecycle {
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
        switch clients[client.id].lifecycle {
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
