/// How many descriptors the processes of a run need at most. A run that cannot have them is refused before it
/// begins: later somebody would run out of them and say something else, or nothing.
///
/// The run's own processes are not spread further: the supervisor that is measured is one process, and needs about
/// as many as the callers do, so that they never run out first.
package struct DescriptorNeeds: Sendable {
    private var needs: [(process: String, count: Int)] = []
    /// Logs, pipes, listeners, libraries.
    private static let reserve = 64
    private static let supervisor = "the supervisor"

    package init() {}

    private mutating func add(_ process: String, _ count: Int) {
        needs.append((process, count + Self.reserve))
    }

    /// Sleepers with a socket each, which callers send to, and as many of the floor's.
    package static func called(
        _ clients: Int, _ transport: Transport, _ suspension: SuspensionMethod
    ) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        // The other ends, and what tells whether somebody is frozen and freezes the floor's sleepers.
        let each = (transport.isStream ? 2 : 0) + (suspension == .cgroup ? 3 : 0)
        needs.add("the load tester", each * clients)
        needs.add("the floor", 2 * clients)
        needs.addSupervisor(sockets: clients, clients: clients)
        return needs
    }

    /// Many sockets of these clients.
    package static func parked(_ sockets: Int, clients: Int) -> DescriptorNeeds {
        var needs = DescriptorNeeds()
        needs.add("the load tester", sockets)
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

    private mutating func addSupervisor(sockets: Int, clients: Int) {
        add(Self.supervisor, sockets + Self.ofEachClient * clients)
    }

    /// Its connection, its process, and what it is stopped with.
    private static let ofEachClient = 3

    package func check(limit: Int) throws(LoadError) {
        // The supervisor takes no more sockets when only these are left.
        let spare = min(1_024, limit / 8)
        let needs = needs.map {
            (process: $0.process, count: $0.count + ($0.process == Self.supervisor ? spare : 0))
        }
        guard let most = needs.max(by: { $0.count < $1.count }), most.count > limit else { return }
        throw .tooFewDescriptors(need: most.count, limit: limit, process: most.process)
    }
}
