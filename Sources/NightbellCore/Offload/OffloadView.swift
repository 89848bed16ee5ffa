/// What can be seen from outside of pings that are dealt with.
public struct OffloadView: Sendable, Equatable {
    public var isActive: Bool
    public var counters: OffloadCounters
    public var isAwaitingAnswer: Bool
    /// The window of the next ping.
    public var nextPing: Window?
}

extension Supervision {
    public func hasProfile(_ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].hasProfile
    }

    public func offload(of token: SocketToken, at now: Instant) -> OffloadView? {
        guard hasProfile(token) else { return nil }
        let offload = offloads[token.slot]
        return OffloadView(
            isActive: offload.isActive, counters: offload.counters,
            isAwaitingAnswer: offload.awaited != nil,
            nextPing: offload.window(at: now, lead: settings.keepAlive.lead))
    }

    /// The sockets of a client that have a profile.
    public func offloadedSockets(of client: ClientID) -> [SocketToken] {
        guard clients.contains(client.id), clients[client.id].hasProfiles else { return [] }
        return offloaded[client.slot] ?? []
    }

    /// What was done for all clients, also for those that are gone.
    public var offloadCounters: OffloadCounters {
        offloads.slots.reduce(into: goneOffloadCounters) { $0 += offloads[$1].counters }
    }
}
