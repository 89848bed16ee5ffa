/// The number of descriptors that each process of a run needs at most. A run that cannot have them is refused
/// before it begins: later, a process would run out of them and report another error, or none.
///
/// Peer sockets can be spread over as many processes as are needed. The supervisor is one process and the one
/// that is measured, so all others are laid out such that it is the first to run out.
package struct DescriptorNeeds: Sendable {
    private struct Need {
        var process: String
        var count: Int
        /// Clients of another user, for which the supervisor leaves more unused: one descriptor for each of
        /// them, and its last eighth, at most 1,024.
        var reservedForOthers = 0

        func count(limit: Int) -> Int {
            count + (reservedForOthers > 0 ? reservedForOthers + min(1_024, limit / 8) : 0)
        }
    }

    private var needs: [Need] = []
    /// The sockets that callers send from.
    private var peerSockets = 0
    /// Logs, pipes, listeners, libraries.
    private static let reserve = 64
    private static let loadTester = "the load tester"
    private static let supervisor = "the supervisor"
    /// For each client: its connection, its process, and the handle that suspends it.
    private static let ofEachClient = 3

    package init() {}

    private mutating func add(_ process: String, _ count: Int) {
        needs.append(Need(process: process, count: count + Self.reserve))
    }

    private mutating func addSupervisor(sockets: Int, clients: Int, areOthers: Bool = false) {
        needs.append(
            Need(
                process: Self.supervisor, count: sockets + Self.ofEachClient * clients + Self.reserve,
                reservedForOthers: areOthers ? clients : 0))
    }

    /// Sleepers with a socket each, which callers send to, and as many of the floor's, if there is one.
    ///
    /// - Parameters:
    ///   - passing: sockets that come and go beside them.
    ///   - areOthers: some of the sleepers belong to another user.
    package static func called(
        _ clients: Int, _ transport: Transport, _ suspension: SuspensionMethod, hasFloor: Bool = true,
        passing: Int = 0, areOthers: Bool = false
    ) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        let sleepers = hasFloor ? 2 * clients : clients
        // Handles that show whether a sleeper is frozen, and that freeze the floor's sleepers.
        let cgroups = suspension == .cgroup ? sleepers + (hasFloor ? clients : 0) : 0
        needs.add(loadTester, cgroups + passing)
        needs.peerSockets = transport.isStream ? sleepers : 0
        if hasFloor { needs.add("the floor", 2 * clients) }
        needs.addSupervisor(sockets: clients + passing, clients: clients, areOthers: areOthers)
        return needs
    }

    /// Clients without sockets.
    package static func pushed(_ clients: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.addSupervisor(sockets: 0, clients: clients)
        return needs
    }

    /// Programs with a connection each, and as many of the floor's.
    package static func unmodified(_ programs: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        // Connections of both; handles that show whether a program is frozen, and the floor's sockets and
        // freezers.
        needs.add(loadTester, 2 * programs + 2 * programs + 2 * programs)
        needs.add("the floor", 2 * programs)
        // Each may have a descriptor and a timer watched.
        needs.addSupervisor(sockets: 2 * programs, clients: programs)
        return needs
    }

    /// Programs with a line for each of their threads and processes.
    package static func tortured(_ programs: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, 20 * programs)
        // The two that have the most.
        needs.add("a program", 12_000)
        needs.addSupervisor(sockets: programs, clients: programs)
        return needs
    }

    /// Files that were handed over.
    package static func transferred(_ files: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, files + 100)
        return needs
    }

    /// Parked sockets of these clients.
    package static func parked(_ sockets: Int, clients: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, sockets)
        needs.addSupervisor(sockets: sockets, clients: clients)
        return needs
    }

    /// Pinged connections: first of the supervisor's clients, then of the floor.
    package static func pinged(_ sockets: Int, clients: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add("the far end", sockets)
        needs.add("the floor", sockets)
        needs.add("a client", sockets / max(1, clients))
        needs.addSupervisor(sockets: sockets, clients: clients)
        return needs
    }

    /// Clients with a socket and no process, as many of the floor's, and a number of clients that run at a
    /// time.
    package static func dormant(_ clients: Int, running: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, 0)
        needs.peerSockets = 2 * clients
        needs.add("the floor", clients)
        needs.addSupervisor(sockets: clients, clients: min(clients, running))
        return needs
    }

    /// Clients with a socket and no process, and sleepers.
    package static func watched(
        _ clients: Int, sleepers: Int, _ suspension: SuspensionMethod
    ) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, (suspension == .cgroup ? sleepers : 0) + GatewayRun.slowBrowsers)
        needs.peerSockets = clients + sleepers
        needs.addSupervisor(
            sockets: clients + sleepers, clients: sleepers + min(clients, DormantPhones.mostAtOnce))
        return needs
    }

    /// Clients of two chat servers, and then of a third. Quiet clients are spread over as many processes as
    /// are needed.
    package static func chatting(_ connections: Int, active: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, 0)
        needs.add("the callers", max(6 * active, ChatRun.Soak.connections))
        needs.add("the chat server", max(connections, ChatRun.Soak.connections))
        return needs
    }

    /// The connections that a peer process may have.
    static func socketsOfPeer(limit: Int) -> Int { limit - reserve - 2 }

    /// The number of further processes that hold peer sockets; 0: none is needed.
    package func peerProcesses(limit: Int) throws(LoadError) -> Int {
        if let most = needs.max(by: { $0.count(limit: limit) < $1.count(limit: limit) }),
            most.count(limit: limit) > limit
        {
            throw .tooFewDescriptors(need: most.count(limit: limit), limit: limit, process: most.process)
        }
        let own = needs.first { $0.process == Self.loadTester }?.count ?? 0
        guard peerSockets > 0, own + peerSockets > limit else { return 0 }
        // A process may hold two sockets more than its share, because neighbours stay together.
        let each = Self.socketsOfPeer(limit: limit)
        return (peerSockets + each - 1) / each
    }
}
