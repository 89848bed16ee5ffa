import Launching
import NightbellCore

/// The launch records of clients, by the slot of their ID, the settings that they share, and what was declared in
/// advance.
struct LaunchTable {
    private struct Entry {
        /// Of the client's ID, whose slot is where this lies.
        let generation: UInt32
        var record: LaunchRecord
    }

    private var entries: [Entry?] = []
    /// Why launches went wrong, for people to read, by the slots of the clients.
    private var problems: [UInt32: String] = [:]
    var settings = LaunchSettings()
    /// Those that something can be started by.
    let declarations: [ClientIdentifier: Declaration]

    init(_ declarations: [Declaration]) {
        let possible = declarations.filter { $0.launch.problem == nil }
        self.declarations = Dictionary(
            possible.map { ($0.registration.identifier, $0) }, uniquingKeysWith: { first, _ in first })
    }

    subscript(client: ClientID) -> LaunchRecord? {
        get { contains(client) ? entries[Int(client.slot)]?.record : nil }
        set {
            guard contains(client), let newValue else { return }
            entries[Int(client.slot)]?.record = newValue
        }
    }

    private func contains(_ client: ClientID) -> Bool { self.client(inSlot: client.slot) == client }

    private func client(inSlot slot: UInt32) -> ClientID? {
        guard Int(slot) < entries.count, let entry = entries[Int(slot)] else { return nil }
        return ClientID(rawValue: UInt64(entry.generation) << 32 | UInt64(slot))
    }

    /// The client whose launch an event of the loop is about, unless that is over.
    func client(for token: WatchToken) -> ClientID? {
        guard let client = client(inSlot: token.slot), token.names(client.rawValue) else { return nil }
        return client
    }

    /// Why its last launch went wrong, if it did.
    func problem(of client: ClientID) -> String? { contains(client) ? problems[client.slot] : nil }

    mutating func note(problem: String?, of client: ClientID) {
        if contains(client) { problems[client.slot] = problem }
    }

    /// Launches whose process has not said who it is.
    var attempts: [LaunchAttempt] {
        entries.compactMap { $0?.record.attempt }.filter { $0.introduction == nil }
    }

    /// - Precondition: its setting is one of `settings`.
    mutating func insert(_ record: LaunchRecord, of client: ClientID) {
        settings.enter(record.recipe.setting)
        if Int(client.slot) >= entries.capacity {
            // An array left to itself doubles.
            entries.reserveCapacity(Int(client.slot) + max(8, entries.count / 8))
        }
        while entries.count <= Int(client.slot) { entries.append(nil) }
        if let last = entries[Int(client.slot)] { settings.leave(last.record.recipe.setting) }
        entries[Int(client.slot)] = Entry(
            generation: UInt32(truncatingIfNeeded: client.rawValue >> 32), record: record)
        problems[client.slot] = nil
    }

    mutating func remove(_ client: ClientID) {
        guard let record = self[client] else { return }
        settings.leave(record.recipe.setting)
        entries[Int(client.slot)] = nil
        problems[client.slot] = nil
    }
}
