/// The load of one user on a supervisor that other users share.
enum HostileKind: String, CaseIterable, Sendable {
    /// No load: the baseline for the others.
    case none
    /// Keeps as many processors busy as an attack does, without the supervisor: one of the attackers', and
    /// one as the supervisor would that works for them. How long a wake waits for a processor is the kernel's
    /// decision.
    case busy
    /// HandOver with as many empty sockets as fit into a packet, on a hundred connections.
    case handOver = "hand_over"
    /// Patterns as long as a packet, and as many of a permitted length as fit into one, from eight clients.
    case patterns
    /// Queries for identifiers as long as a packet, on a hundred connections.
    case identifiers
    /// More connections than one user may have, repeatedly.
    case connections
    /// Small requests at the highest rate, on fifty connections.
    case messages
    /// Clients that crash at once and are relaunched.
    case crashes
    /// Six clients with a thousand sockets each that they leave unread: woken by all of them, asleep at once,
    /// woken again.
    case unread
    /// Pings, byte by byte, on 300 sockets that the supervisor answers for.
    case slowPings = "slow_pings"
    /// TCP sockets that wait for their peer when they are closed, on connections that say no Hello.
    case lingering
    /// The same by clients that hand over 200 of them, and end.
    case lingeringAdopted = "lingering_adopted"
    /// Clients that sleep with ten thousand file locks, held by each of 60 descriptors.
    case fileLocks = "file_locks"
    /// Hello for a program with 1,500 descendants, on eight connections.
    case descendants
    /// HandOver of epoll sets with 300,000 members, from four clients.
    case epollMembers = "epoll_members"

    /// Whether the load is on the supervisor.
    var isAttack: Bool { self != .none && self != .busy }

    /// Connections of one user that the supervisor of the run accepts.
    static let connectionsPerUser = 256
}
