/// A socket with a connection that cannot work over the present network, as the edge has found.
package struct BrokenPath: Sendable, Equatable {
    package enum Reason: Sendable, Hashable, CaseIterable {
        /// The machine has no longer the socket's local address: it cannot work again.
        case addressGone
        /// There is no route to the peer, or one that leaves from another address.
        case unreachable
    }

    package var token: SocketToken
    package var reason: Reason

    package init(_ token: SocketToken, _ reason: Reason) {
        self.token = token
        self.reason = reason
    }
}

/// A client's sockets have yet to be inspected, because of a change of the network or a sleep of the machine.
/// The numbers are stored.
package enum PathInspection: UInt8, Sendable, Comparable {
    case none = 0
    /// A route may have changed, or the machine has slept.
    case routes = 1
    /// The machine has another network: the client is told, if it wants to be.
    case network = 2

    package static func < (one: Self, other: Self) -> Bool { one.rawValue < other.rawValue }
}

/// Changes of the network.
///
/// The edge inspects the sockets of one client after the other. Its state includes the changes that a client
/// still has to be told, so that the next supervisor tells those that this one has not told yet, and no
/// others.
extension Supervision {
    mutating func learnNetwork(_ network: NetworkFact?, into actions: inout ActionBuffer) {
        let previous = machine.network
        machine.network = network
        guard let network else {
            // Without a client that needs it, the next network known is news to none.
            if !neededFacts.contains(.network) { setHandledNetwork(nil) }
            return
        }
        let handled = machine.handledNetwork
        let isNew = handled.map { $0 != network.fingerprint } ?? false
        if handled != network.fingerprint { setHandledNetwork(network.fingerprint) }
        guard !isStopping, handled != nil, isNew || previous?.generation != network.generation,
            !mutated(.ignoresNetworks)
        else { return }
        for id in clients.ids {
            let isConcerned =
                clients[id].wantsNetworkChanges || clients[id].sockets.contains { sockets[$0.id].isRouted }
            if isConcerned { inspectPaths(of: ClientID(id), isNew ? .network : .routes, into: &actions) }
        }
    }

    /// The network may have become another one while the machine slept, and its source reports that only
    /// later, if at all.
    mutating func inspectPathsAfterSleep(into actions: inout ActionBuffer) {
        guard !isStopping, !mutated(.trustsPathsAfterSleep) else { return }
        for id in clients.ids where clients[id].sockets.contains(where: { sockets[$0.id].isRouted }) {
            inspectPaths(of: ClientID(id), .routes, into: &actions)
        }
    }

    private mutating func setHandledNetwork(_ fingerprint: UInt64?) {
        guard machine.handledNetwork != fingerprint else { return }
        machine.handledNetwork = fingerprint
        if notesChanges { changes.hasNetwork = true }
    }

    /// Has a client's sockets inspected, or inspected again.
    mutating func inspectPaths(
        of client: ClientID, _ inspection: PathInspection, into actions: inout ActionBuffer
    ) {
        let owed = max(clients[client.id].pathInspection, inspection)
        clients[client.id].pathInspection = owed
        touch(client)
        actions.append(.inspectPaths(client))
    }

    /// The edge has inspected all sockets of a client, and found these.
    mutating func pathsInspected(
        _ client: ClientID, _ broken: [BrokenPath], at now: Instant, into actions: inout ActionBuffer
    ) {
        let inspection = clients[client.id].pathInspection
        guard inspection != .none else { return }
        clients[client.id].pathInspection = mutated(.owesNetworkForEver) ? inspection : .none
        guard !isStopping else { return }
        let asks = clients[client.id].wantsNetworkChanges
        let broken = broken.filter { owns(client, $0.token) && !isToldOfEnd($0.token, client) }
        let news = broken.filter { !sockets[$0.token.id].isPathLost || mutated(.repeatsLostPaths) }
        let isTold = asks && inspection == .network
        // A client that has not asked is told of sockets that cannot work again, and of nothing else.
        let told = isTold ? broken : news.filter { asks || $0.reason == .addressGone }
        for token in clients[client.id].sockets where sockets[token.id].isPathLost {
            sockets[token.id].isPathLost = broken.contains { $0.token == token }
        }
        clients[client.id].hasLostPaths =
            !told.isEmpty || clients[client.id].sockets.contains { sockets[$0.id].isPathLost }
            || clients[client.id].fired.contains { $0.conditions.contains(.pathLost) }
        for path in told where !mutated(.forgetsLostPaths) {
            leaveToNextProcess(path.token, of: client, into: &actions)
            noteFired(path.token, .pathLost, of: client)
        }
        var reasons: WakeReasons = told.isEmpty || mutated(.forgetsLostPaths) ? [] : .pathLost
        if isTold || asks && !told.isEmpty { reasons.insert(.networkChanged) }
        // Without a process it has nothing to do about another network, unless it lost what wakes it.
        if clients[client.id].lifecycle.isDormant, !reasons.contains(.pathLost) { return }
        // One that is being terminated is not woken: its next process is told.
        if !reasons.isEmpty { wake(client, reasons, at: now, into: &actions) }
    }

    /// Whether a socket has ended and its owner knows. An end that it has yet to be told is no reason to hide
    /// a lost path.
    private func isToldOfEnd(_ token: SocketToken, _ client: ClientID) -> Bool {
        sockets[token.id].condition.isPastEnd && !clients[client.id].fired.contains { $0.token == token }
    }

    /// The reasons of a wake that is being told. A path may work again by the time that the client's process
    /// or the next supervisor has come: if no socket is named, it is no reason beside others.
    func withoutMendedPaths(_ reasons: WakeReasons, of client: ClientID) -> WakeReasons {
        guard reasons.contains(.pathLost), reasons != .pathLost,
            clients[client.id].pathInspection == .none,
            !clients[client.id].fired.contains(where: { $0.conditions.contains(.pathLost) })
        else { return reasons }
        return reasons.subtracting(.pathLost)
    }

    /// A client without a process is told by its next one of sockets that cannot work: they are inspected
    /// again.
    mutating func forgetLostPaths(of client: ClientID, into actions: inout ActionBuffer) {
        var hasLost = false
        for token in clients[client.id].sockets where sockets[token.id].isPathLost {
            sockets[token.id].isPathLost = false
            hasLost = true
        }
        if hasLost { inspectPaths(of: client, .routes, into: &actions) }
    }

    /// Continues what the previous supervisor has not finished.
    mutating func resumeInspection(of client: ClientID, into actions: inout ActionBuffer) {
        var owed = clients[client.id].pathInspection
        // The reasons of its launch are known, but not the sockets.
        let isToBeLaunched: Bool
        switch clients[client.id].lifecycle.stage {
        case .dormant, .launching: isToBeLaunched = clients[client.id].launches.reasons.contains(.pathLost)
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating:
            isToBeLaunched = false
        }
        if isToBeLaunched { owed = max(owed, .routes) }
        if owed != .none, !mutated(.restoresWithoutInspection) {
            inspectPaths(of: client, owed, into: &actions)
        }
    }
}
