/// Expired deadlines.
extension Supervision {
    mutating func reachDeadlines(at now: Instant, into actions: inout ActionBuffer) {
        guard !isStopping else { return }
        // Each once at most: with settings of zero, this loop would not end.
        for _ in 0..<deadlines.count {
            guard let slot = deadlines.popDue(at: now) else { break }
            guard let id = clients.id(inSlot: slot) else { continue }
            reachDeadline(ClientID(id), at: now, into: &actions)
            settle(ClientID(id), at: now, into: &actions)
        }
        reachOffloadDeadlines(at: now, into: &actions)
    }

    /// Handles expired deadlines before any other event of a client: an answer after the end of its budget is too late,
    /// and a new wake does not hide an overrun one, even if the loop has not served the timer yet. `settle` follows
    /// the event itself.
    mutating func catchUp(_ client: ClientID, at now: Instant, into actions: inout ActionBuffer) {
        guard !isStopping, let due = deadlines[client.slot], due <= now, !mutated(.acceptsLateAnswers) else {
            return
        }
        reachDeadline(client, at: now, into: &actions)
    }

    mutating func catchUp(ownerOf token: SocketToken, at now: Instant, into actions: inout ActionBuffer) {
        guard sockets.contains(token.id) else { return }
        catchUp(sockets[token.id].owner, at: now, into: &actions)
    }

    private mutating func reachDeadline(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch clients[client.id].lifecycle {
        case .notRunning, .inactive, .active, .suspended, .terminating(.killed), .dormant(.resting),
            .dormant(.queued), .launching(until: nil):
            break  // these have none
        case .dormant(.waiting(let until)):
            guard now >= until else { return }
            endPause(client)
        case .launching(let until?):
            guard now >= until else { return }
            overran(.launch, client, into: &actions)
            endLaunchTime(client, at: now, into: &actions)
        case .background(let background):
            reachDeadline(background, client, at: now, into: &actions)
        case .suspending(let suspending):
            reachDeadline(suspending, client, at: now, into: &actions)
        case .terminating(.noticed(let until, let reason)):
            guard now >= until else { return }
            overran(.termination, client, into: &actions)
            kill(client, reason, at: now, into: &actions)
        }
    }

    private mutating func reachDeadline(
        _ background: Lifecycle.Background, _ client: ClientID, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        var background = background
        if let until = background.enteringUntil, now >= until {
            background.enteringUntil = nil
            overran(.enteringBackground, client, into: &actions)
        }
        let isWakeOver = background.wake.map { now >= $0.until } ?? false
        if isWakeOver {
            background.wake = nil
            // A background task, or media, buys more time than the wake's budget.
            if !clients[client.id].assertions.holds(at: now), !mutated(.hidesWakeOverruns) {
                overran(.wake, client, into: &actions)
            }
        }
        if let until = background.holdUntil, now >= until { background.holdUntil = nil }
        clients[client.id].lifecycle = .background(background)
        if isWakeOver { linger(client, at: now) }

        clients[client.id].assertions.runClock(at: now, budget: settings.budgets.backgroundTasks)
        let early: Duration = mutated(.warnsEarly) ? .seconds(3_600) : .zero
        let notice = settings.budgets.expirationNotice + early
        switch clients[client.id].assertions.takeDue(at: now, notice: notice) {
        case .nothing:
            break
        case .notice(let remaining):
            if mutated(.forgetsToWarn) { break }
            actions.append(.notify(client, .backgroundTimeExpiring(remaining: remaining)))
        case .overrun:
            overran(.backgroundTasks, client, into: &actions)
            kill(client, .backgroundTasksOverran, at: now, into: &actions)
        }
    }

    private mutating func reachDeadline(
        _ suspending: Lifecycle.Suspending, _ client: ClientID, at now: Instant,
        into actions: inout ActionBuffer
    ) {
        switch suspending.phase {
        case .preparing(let until):
            guard now >= until else { return }
            overran(.prepareToSuspend, client, into: &actions)
            count(.suspensionsForced, of: client)
            actions.append(.trace(client, .suspendedByForce))
            freeze(client, epoch: suspending.epoch, isReady: false, at: now, into: &actions)
        case .freezing(let until, let lookAt, let pause):
            if now >= until {
                freezeFailed(client, epoch: suspending.epoch, at: now, into: &actions)
            } else if now >= lookAt {
                var looked = suspending
                looked.phase = .freezing(until: until, lookAt: until, pause: pause)
                clients[client.id].lifecycle = .suspending(looked)
                actions.append(.checkFreeze(client, epoch: suspending.epoch))
            }
        }
    }

    private mutating func overran(
        _ step: Step, _ client: ClientID, into actions: inout ActionBuffer
    ) {
        count(.overrun(of: step), of: client)
        actions.append(.trace(client, .overran(step)))
    }
}
