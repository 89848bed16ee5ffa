/// The public view of a socket's pings.
package struct OffloadView: Sendable, Equatable {
    package var isActive: Bool
    package var counters: OffloadCounters
    package var isAwaitingAnswer: Bool
    /// The window of the next ping, in elapsed time.
    package var nextPing: Window?
}

extension Supervision {
    package func hasProfile(_ token: SocketToken) -> Bool {
        sockets.contains(token.id) && sockets[token.id].hasProfile
    }

    package func offload(of token: SocketToken, at now: Instant) -> OffloadView? {
        guard hasProfile(token) else { return nil }
        return OffloadView(
            isActive: pings[token.slot].isActive, counters: pings[token.slot].counters,
            isAwaitingAnswer: pings.isAwaitingAnswer(token.slot),
            nextPing: pings.window(token.slot, at: elapsed(at: now)))
    }

    /// The sockets of a client that have a profile.
    package func offloadedSockets(of client: ClientID) -> [SocketToken] {
        guard clients.contains(client.id), clients[client.id].hasProfiles else { return [] }
        return offloaded[client.slot] ?? []
    }

    /// The totals of all clients, including those that are gone.
    package var offloadTotals: OffloadTotals { pings.totals }

    /// Those of removed sockets, which nothing else persists.
    package var offloadsOfGone: OffloadTotals.Words { pings.gone.words }
}
