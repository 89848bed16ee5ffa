/// Recovery of clients without a process, when one supervisor takes over from another.
extension Client {
    /// Reconciles the stored state with the actions that were carried out before the previous supervisor
    /// ended.
    mutating func reconcile(
        _ old: RecoverySnapshot.Client, at now: Instant, elapsed: Instant, _ settings: Settings.Launches
    ) {
        // Not if that process has ended: the next one has been told of nothing.
        launches.mayHaveBeenTold = old.presence == .welcomed && !lifecycle.isDormant
        let isThere = old.presence == .launched || old.presence == .welcomed
        switch lifecycle.stage {
        case .launching:
            // The launch was decided but not carried out.
            if !isThere { lifecycle.becomeDormant(.queued) }
        case .dormant, .terminating:
            break
        case .notRunning, .inactive, .active, .background, .suspending, .suspended:
            guard old.presence != .absent else { return reconcileUnwelcomed(old, at: now, settings) }
            guard isThere else { return }
            // It has identified itself but was not welcomed: it will identify itself again.
            lifecycle.launch(until: now + settings.budget)
            enteredStateAt = elapsed
            launches.isRejoined = false
            // The reasons of its launch are repeated as the same wake.
            lastWakeID -= 1
            launches.reasons.formUnion(lastWakeReasons)
        }
    }

    /// A process started by its user has identified itself but was not welcomed. It will identify itself
    /// again: it has time for that before another process is launched. The pause also is the back-off after
    /// the last failure.
    private mutating func reconcileUnwelcomed(
        _ old: RecoverySnapshot.Client, at now: Instant, _ settings: Settings.Launches
    ) {
        if lastWakeID > old.toldWakeID {
            lastWakeID = old.toldWakeID
            launches.reasons.formUnion(lastWakeReasons)
        }
        launches.isRejoined = false
        keepAlive = nil
        let pause = doubled(
            settings.retry, times: max(0, Int(launches.inRow) - 1), maximum: settings.retryMaximum)
        lifecycle.becomeDormant(launches.reasons.isEmpty ? .resting : .waiting(until: now + pause))
    }
}

extension Supervision {
    /// It is queued again, or its launch continues; its sockets are watched as before.
    mutating func continueWithoutProcess(_ client: ClientID, into actions: inout ActionBuffer) {
        // The previous supervisor may have parked it without closing the sockets that do not survive.
        let stale = clients[client.id].sockets.filter {
            !sockets[$0.id].survives && !mutated(.restoresAllSockets)
        }
        for token in stale {
            remove(token, client)
            actions.append(.close(token, of: clients[client.id].user))
        }
        endTasks(client)
        _ = noteFound(again: client)
        let user = clients[client.id].user
        let kind = setKind(client, isUrgent: clients[client.id].launches.kind.isUrgent)
        switch clients[client.id].lifecycle.stage {
        case .dormant(.queued):
            if mutated(.restoresUnqueued) { break }
            launchQueue.append(client, of: user, kind)
        case .launching(until: .some):
            if !mutated(.launchesAll) { launchQueue.begin(user, kind) }
        case .launching(until: nil), .dormant(.resting), .dormant(.waiting), .notRunning, .inactive, .active,
            .background,
            .suspending, .suspended, .terminating:
            break
        }
        if !mutated(.restoresUnarmed) { armSockets(client, into: &actions) }
    }
}
