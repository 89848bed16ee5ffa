/// How many descriptors the processes of a run need at most. A run that cannot have them is refused before it
/// begins: later somebody would run out of them and say something else, or nothing.
///
/// Other ends of sockets can lie with as many processes as are needed. The supervisor is one process, which is what is
/// measured: all others are made such that it is the first to run out.
package struct DescriptorNeeds: Sendable {
    private struct Need {
        var process: String
        var count: Int
        /// Clients of another user, for whom more is left unused: one for each of them, and the supervisor's last
        /// eighth, at most 1,024.
        var ofOthers = 0

        func count(limit: Int) -> Int { count + (ofOthers > 0 ? ofOthers + min(1_024, limit / 8) : 0) }
    }

    private var needs: [Need] = []
    /// What callers speak to sleepers from.
    private var otherEnds = 0
    /// Logs, pipes, listeners, libraries.
    private static let reserve = 64
    private static let loadTester = "the load tester"
    private static let supervisor = "the supervisor"
    /// Its connection, its process, and what it is stopped with.
    private static let ofEachClient = 3

    package init() {}

    private mutating func add(_ process: String, _ count: Int) {
        needs.append(Need(process: process, count: count + Self.reserve))
    }

    private mutating func addSupervisor(sockets: Int, clients: Int, areOthers: Bool = false) {
        needs.append(
            Need(
                process: Self.supervisor, count: sockets + Self.ofEachClient * clients + Self.reserve,
                ofOthers: areOthers ? clients : 0))
    }

    /// Sleepers with a socket each, which callers send to, and as many of the floor's if there is one.
    ///
    /// - Parameters:
    ///   - passing: sockets that come and go beside them.
    ///   - areOthers: some of them are another user's.
    package static func called(
        _ clients: Int, _ transport: Transport, _ suspension: SuspensionMethod, hasFloor: Bool = true,
        passing: Int = 0, areOthers: Bool = false
    ) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        let sleepers = hasFloor ? 2 * clients : clients
        // What tells whether somebody is frozen, and freezes the floor's sleepers.
        let cgroups = suspension == .cgroup ? sleepers + (hasFloor ? clients : 0) : 0
        needs.add(loadTester, cgroups + passing)
        needs.otherEnds = transport.isStream ? sleepers : 0
        if hasFloor { needs.add("the floor", 2 * clients) }
        needs.addSupervisor(sockets: clients + passing, clients: clients, areOthers: areOthers)
        return needs
    }

    /// Many sockets of these clients.
    package static func parked(_ sockets: Int, clients: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, sockets)
        needs.addSupervisor(sockets: sockets, clients: clients)
        return needs
    }

    /// Connections that are pinged: first of clients of the supervisor's, then of the floor.
    package static func pinged(_ sockets: Int, clients: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add("the far end", sockets)
        needs.add("the floor", sockets)
        needs.add("a client", sockets / max(1, clients))
        needs.addSupervisor(sockets: sockets, clients: clients)
        return needs
    }

    /// Clients with a socket each and no process, as many of the floor's, and a number of them that run at a time.
    package static func dormant(_ clients: Int, running: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, 0)
        needs.otherEnds = 2 * clients
        needs.add("the floor", clients)
        needs.addSupervisor(sockets: clients, clients: min(clients, running))
        return needs
    }

    /// Clients of two chat servers, and then of a third. Those who say nothing lie with as many processes as are needed.
    package static func chatting(_ connections: Int, active: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add(loadTester, 0)
        needs.add("the callers", max(6 * active, ChatRun.Stir.connections))
        needs.add("the chat server", max(connections, ChatRun.Stir.connections))
        return needs
    }

    /// How many connections to others a process may have.
    static func socketsOfPeer(limit: Int) -> Int { limit - reserve - 2 }

    /// How many further processes the callers are spread over; 0: none is needed.
    package func peerProcesses(limit: Int) throws(LoadError) -> Int {
        if let most = needs.max(by: { $0.count(limit: limit) < $1.count(limit: limit) }),
            most.count(limit: limit) > limit
        {
            throw .tooFewDescriptors(need: most.count(limit: limit), limit: limit, process: most.process)
        }
        let own = needs.first { $0.process == Self.loadTester }?.count ?? 0
        guard otherEnds > 0, own + otherEnds > limit else { return 0 }
        // Two neighbours more than its share may lie with a process.
        let each = Self.socketsOfPeer(limit: limit)
        return (otherEnds + each - 1) / each
    }
}
