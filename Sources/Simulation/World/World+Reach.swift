import NightbellCore

/// Checks of reachability, from the events of the world and from the pending work that the core reports.
extension World {
    mutating func checkReach(_ client: SimulatedClient) {
        guard !core.isStopping, client.mustBeReachable, !client.isKilled,
            let view = core.view(of: client.id, at: now)
        else { return }
        switch view.state {
        case .dormant:
            let isPending = !view.launches.reasons.isEmpty
            let isArmed = client.sockets.contains { $0.isWatched || $0.isQueued }
            require(
                .reach, isPending || isArmed || client.restsByWish,
                "\(client.name) has ended, and nothing launches it again")
            let isResting = !isPending && view.launches.notBefore == nil
            requireShown(client, view, isOutOfReach: isResting && client.sockets.isEmpty)
        case .suspended:
            requireShown(client, view, isOutOfReach: !client.canBeWoken)
            guard let window = client.window else { return }
            // A window is in elapsed time, the timer in running time.
            let isTimed = core.nextDeadline.map { $0 + slept <= window.latest } ?? false
            require(.reach, isTimed, "no timer is set for the keep-alive of \(client.name)")
        case .launching where client.isLeftAlone:
            break  // its program never said Hello
        case .launching:
            let isTimed = zip(client.launchUntil, core.nextDeadline).map { $1 <= $0 } ?? false
            require(.reach, isTimed, "no timer is set for the launch of \(client.name)")
        case .notRunning, .inactive, .active, .background, .suspending, .terminating:
            break  // it is awake, or its end is still to be handled
        }
    }

    private mutating func requireShown(_ client: SimulatedClient, _ view: ClientView, isOutOfReach: Bool) {
        require(
            .reach, view.isOutOfReach == isOutOfReach,
            "\(client.name) is\(isOutOfReach ? "" : " not") out of reach, and is not shown as such")
    }

    private func zip(_ first: Instant?, _ second: Instant?) -> (Instant, Instant)? {
        guard let first, let second else { return nil }
        return (first, second)
    }
}
