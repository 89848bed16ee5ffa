/// Expired deadlines.
extension Supervision {
    mutating func reachDeadlines(at now: Instant, into actions: inout ActionBuffer) {
        guard !isStopping else { return }
        // Each once at most: with settings of zero, this loop would not end.
        for _ in 0..<deadlines.count {
            guard let slot = deadlines.popDue(at: now) else { break }
            guard let id = clients.id(inSlot: slot) else { continue }
            reachDeadline(ClientID(id), at: now, into: &actions)
            suspendIfIdle(ClientID(id), at: now, into: &actions)
        }
        reachOffloadDeadlines(at: now, into: &actions)
        reachNotifications(at: now, into: &actions)
    }

    /// Handles expired deadlines before any other event of a client: an answer after the end of its budget is
    /// too late, and a new wake does not hide an overrun one, even if the loop has not served the timer yet.
    /// `suspendIfIdle` follows the event itself.
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
        if isFetching(client), fetchRuns[client.slot].until <= now {
            fetchOverran(client, at: now, into: &actions)
        }
        if let end = endOfPush(client), end <= now { pushOverran(client, at: now, into: &actions) }
        switch clients[client.id].lifecycle.expire(at: now) {
        case .nothing:
            break
        case .pause:
            endPause(client, at: now)
        case .launch:
            overran(.launch, client, into: &actions)
            endLaunchTime(client, at: now, into: &actions)
        case .background(let isEnteringOver, let isWakeOver):
            if isEnteringOver { overran(.enteringBackground, client, into: &actions) }
            if isWakeOver { wakeBudgetEnded(client, at: now, into: &actions) }
            runTaskClock(client, at: now, into: &actions)
        case .preparation(let epoch):
            overran(.prepareToSuspend, client, into: &actions)
            count(.suspensionsForced, of: client)
            actions.append(.trace(client, .suspendedByForce))
            freeze(client, epoch: epoch, isReady: false, at: now, into: &actions)
        case .look(let epoch):
            actions.append(.checkFreeze(client, epoch: epoch))
        case .confirmation(let epoch):
            freezeFailed(client, epoch: epoch, at: now, into: &actions)
        case .notice(let reason):
            overran(.termination, client, into: &actions)
            kill(client, reason, at: now, into: &actions)
        }
    }

    private mutating func wakeBudgetEnded(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
        // A background task, or media, buys more time than the wake's budget.
        if !clients[client.id].assertions.holds(at: now), !mutated(.hidesWakeOverruns) {
            overran(.wake, client, into: &actions)
        }
        linger(client, at: now)
    }

    /// Warns of the end of the time for background tasks, and enforces it.
    private mutating func runTaskClock(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) {
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

    mutating func overran(
        _ step: Step, _ client: ClientID, into actions: inout ActionBuffer
    ) {
        count(.overrun(of: step), of: client)
        actions.append(.trace(client, .overran(step)))
    }
}
