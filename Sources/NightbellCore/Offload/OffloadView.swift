/// The public view of a socket's pings.
public struct OffloadView: Sendable, Equatable {
    public var isActive: Bool
    public var counters: OffloadCounters
    public var isAwaitingAnswer: Bool
    /// The window of the next ping, in elapsed time.
    public var nextPing: Window?
}

extension Supervision {
    public func hasProfile(_ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].hasProfile
    }

    public func offload(of token: SocketToken, at now: Instant) -> OffloadView? {
        guard hasProfile(token) else { return nil }
        return OffloadView(
            isActive: pings[token.slot].isActive, counters: pings[token.slot].counters,
            isAwaitingAnswer: pings.isAwaitingAnswer(token.slot),
            nextPing: pings.window(token.slot, at: elapsed(at: now)))
    }

    /// The sockets of a client that have a profile.
    public func offloadedSockets(of client: ClientID) -> [SocketToken] {
        guard clients.contains(client.id), clients[client.id].hasProfiles else { return [] }
        return offloaded[client.slot] ?? []
    }

    /// The totals of all clients, including those that are gone.
    public var offloadCounters: OffloadCounters { pings.counters }
}
