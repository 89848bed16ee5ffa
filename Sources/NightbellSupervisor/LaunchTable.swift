import Launching
import NightbellCore

/// The launch records of clients, by the slot of their ID, and what was declared in advance.
struct LaunchTable {
    private var records: [LaunchRecord?] = []
    private var identities: [UInt32: ProcessIdentity] = [:]
    let declarations: [ClientIdentifier: Declaration]

    init(_ declarations: [Declaration]) {
        self.declarations = Dictionary(
            declarations.map { ($0.registration.identifier, $0) }, uniquingKeysWith: { first, _ in first })
    }

    subscript(client: ClientID) -> LaunchRecord? {
        guard Int(client.slot) < records.count, let record = records[Int(client.slot)],
            record.client == client
        else { return nil }
        return record
    }

    /// The launch that an event of the loop is about, unless it is over.
    subscript(token: WatchToken) -> LaunchRecord? {
        guard Int(token.slot) < records.count, let record = records[Int(token.slot)],
            token.names(record.client.rawValue)
        else { return nil }
        return record
    }

    mutating func insert(_ record: LaunchRecord) {
        while records.count <= Int(record.client.slot) { records.append(nil) }
        records[Int(record.client.slot)] = record
    }

    mutating func remove(_ client: ClientID) {
        guard self[client] != nil else { return }
        records[Int(client.slot)] = nil
    }

    /// The same recipe, with what others have as well in memory that is shared with them.
    mutating func shared(_ recipe: LaunchRecipe) -> LaunchRecipe {
        switch recipe {
        case .declared: recipe
        case .recorded(let bytes, let limits, let identity):
            .recorded(bytes, limits: limits, shared(identity))
        }
    }

    /// The same identity, in memory that is shared with others of this user.
    mutating func shared(_ identity: ProcessIdentity) -> ProcessIdentity {
        if let known = identities[identity.user], known == identity { return known }
        identities[identity.user] = identity
        return identity
    }
}
