/// Clients that are launched only once their user's home is there.
extension Supervision {
    /// Whether a client must not be launched yet. Where nothing can tell, it need not wait.
    func isLocked(_ client: ClientID) -> Bool {
        guard clients[client.id].waitsForUnlock, !mutated(.launchesLocked) else { return false }
        return switch machine.unlockedUsers {
        case .unknown: true
        case .unavailable: false
        case .known(let users): !users.contains(clients[client.id].user)
        }
    }

    /// Whether a client is to be launched as soon as its user is unlocked.
    func isWaitingForUnlock(_ client: ClientID) -> Bool {
        guard case .dormant(.resting) = clients[client.id].lifecycle.stage else { return false }
        return clients[client.id].waitsForUnlock && !clients[client.id].launches.reasons.isEmpty
    }

    /// Queues the clients that have waited for their user: all at once, and the launch limits hold.
    mutating func launchUnlocked(at now: Instant, into actions: inout ActionBuffer) {
        guard machine.wishes.unlocks > 0, !isStopping, !mutated(.forgetsUnlocked) else { return }
        let isUnavailable = machine.unlockedUsers == .unavailable
        for client in clients.ids.map(ClientID.init) where isWaitingForUnlock(client) && !isLocked(client) {
            if isUnavailable { actions.append(.trace(client, .unlockUnknown)) }
            let reasons = clients[client.id].launches.reasons
            requestLaunch(client, reasons, at: now, into: &actions)
            suspendIfIdle(client, at: now, into: &actions)
        }
    }
}
