/// Clients without a process, when one supervisor takes over from another.
extension Client {
    /// Brings what was stored last in line with what had been done about it by then.
    mutating func settle(
        _ old: Legacy.Client, at now: Instant, elapsed: Instant, _ settings: Settings.Launches
    ) {
        guard old.progress != nil else {
            // It was declared, and that is all.
            guard old.presence != .registered else { return }
            lifecycle = .dormant(.resting)
            return launches.isRejoined = false
        }
        // Not if that process has ended: the next one has heard of nothing.
        launches.mayHaveBeenTold = old.presence == .welcomed && !lifecycle.isDormant
        let isThere = old.presence == .launched || old.presence == .welcomed
        switch lifecycle {
        case .launching:
            // It was decided, and nobody came to do it.
            if !isThere { lifecycle = .dormant(.queued) }
        case .dormant, .terminating:
            break
        case .notRunning, .inactive, .active, .background, .suspending, .suspended:
            guard old.presence != .absent else { return settleUnwelcomed(old, at: now, settings) }
            guard isThere else { return }
            // It has said who it is, and nobody came to welcome it: it says so again.
            lifecycle = .launching(until: now + settings.budget)
            enteredStateAt = elapsed
            launches.isRejoined = false
            // Why it was launched is told again, as the same wake.
            lastWakeID -= 1
            launches.reasons.formUnion(lastWakeReasons)
        }
    }

    /// Somebody had begun to take it over by itself, and nobody came to welcome it. It will say again who it is: it
    /// has time for that before another process is made, and so has whatever made the last one end badly.
    private mutating func settleUnwelcomed(
        _ old: Legacy.Client, at now: Instant, _ settings: Settings.Launches
    ) {
        if lastWakeID > old.toldWakeID {
            lastWakeID = old.toldWakeID
            launches.reasons.formUnion(lastWakeReasons)
        }
        launches.isRejoined = false
        keepAlive = nil
        let pause = doubled(
            settings.retry, times: max(0, Int(launches.inRow) - 1), maximum: settings.retryMaximum)
        lifecycle = .dormant(launches.reasons.isEmpty ? .resting : .waiting(until: now + pause))
    }
}

extension Supervision {
    /// It is in line again, or its launch goes on; its sockets are watched as before.
    mutating func goOnWithoutProcess(_ client: ClientID, into actions: inout ActionBuffer) {
        // Whoever parked it may not have come to close those that do not stay.
        let stale = clients[client.id].sockets.filter {
            !sockets[$0.id].survives && !mutated(.restoresAllSockets)
        }
        for token in stale {
            remove(token, client)
            actions.append(.close(token))
        }
        clients[client.id].assertions = Assertions()
        _ = noteFound(again: client)
        let user = clients[client.id].user
        let kind = setKind(client, isUrgent: clients[client.id].launches.kind.isUrgent)
        switch clients[client.id].lifecycle {
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
