import Launching
import NightbellCore

/// The launch records of clients, by the slot of their ID, the settings that they share, and what was declared in
/// advance.
struct LaunchTable {
    private var records: [LaunchRecord?] = []
    var settings = LaunchSettings()
    /// Those that something can be started by.
    let declarations: [ClientIdentifier: Declaration]

    init(_ declarations: [Declaration]) {
        let possible = declarations.filter { $0.launch.problem == nil }
        self.declarations = Dictionary(
            possible.map { ($0.registration.identifier, $0) }, uniquingKeysWith: { first, _ in first })
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

    /// Launches whose process has not said who it is.
    var attempts: [LaunchAttempt] { records.compactMap { $0?.attempt }.filter { $0.introduction == nil } }

    /// - Precondition: its setting is one of `settings`.
    mutating func insert(_ record: LaunchRecord) {
        settings.enter(record.recipe.setting)
        while records.count <= Int(record.client.slot) { records.append(nil) }
        if let last = records[Int(record.client.slot)] { settings.leave(last.recipe.setting) }
        records[Int(record.client.slot)] = record
    }

    mutating func remove(_ client: ClientID) {
        guard let record = self[client] else { return }
        settings.leave(record.recipe.setting)
        records[Int(client.slot)] = nil
    }
}
