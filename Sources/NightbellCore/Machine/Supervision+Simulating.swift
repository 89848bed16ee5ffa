/// Events of the machine as an administrator asks for them, to try a client with.
extension Supervision {
    mutating func simulateNetworkChange(_ client: ClientID, into actions: inout ActionBuffer) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        guard clients[client.id].wantsNetworkChanges else { return .networkChangesNotWanted }
        actions.append(.trace(client, .simulated(.simulateNetworkChange)))
        inspectPaths(of: client, .network, into: &actions)
        return nil
    }

    /// Has its keep-alive handler run at the end of the turn, as before a sleep of the machine.
    mutating func simulateSleep(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        guard schedule.contains(client.slot) else { return .noKeepAlive }
        actions.append(.trace(client, .simulated(.simulateSleep)))
        schedule.set(client.slot, to: Window(earliest: elapsed(at: now), latest: elapsed(at: now)))
        return nil
    }

    /// Launches a client that waits for its user.
    mutating func simulateUnlock(
        _ client: ClientID, at now: Instant, into actions: inout ActionBuffer
    ) -> Refusal? {
        guard !isStopping else { return .shuttingDown }
        guard isWaitingForUnlock(client) else {
            return .illegalState(clients[client.id].lifecycle.state)
        }
        actions.append(.trace(client, .simulated(.simulateUnlock)))
        let isUrgent = clients[client.id].launches.reasons.isUrgent
        enqueue(client, isUrgent: isUrgent, inSpiteOfLock: true)
        return nil
    }
}
