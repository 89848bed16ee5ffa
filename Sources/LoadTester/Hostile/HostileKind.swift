/// What one user can do to a supervisor that others use, too.
enum HostileKind: String, CaseIterable, Sendable {
    /// Nothing: what everything else is compared with.
    case none
    /// Takes as much of the processors as the others, and leaves the supervisor alone. What a machine with few of them
    /// does to a wake is not the supervisor's doing.
    case busy
    /// HandOver with as many empty sockets as fit into a packet, on a hundred connections.
    case handOver = "hand_over"
    /// The longest patterns that fit into a packet, and those that may be in one, from eight clients.
    case patterns
    /// Questions about identifiers as long as a packet, on a hundred connections.
    case identifiers
    /// More connections than one user may have, again and again.
    case connections
    /// Small requests as fast as they are taken, on fifty connections.
    case messages
    /// Clients that crash as soon as they are there, and are launched again.
    case crashes

    /// Whether it turns on the supervisor.
    var isAttack: Bool { self != .none && self != .busy }

    /// Connections of one user that the supervisor of the run accepts.
    static let connectionsPerUser = 256
}
