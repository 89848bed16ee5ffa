import TransferModel

/// When the ends of sessions are told again, to clients that have not taken the results: a client may have died
/// after it was told, and the supervisor may have heard of the end before it heard of the death.
///
/// The pauses double until something new has happened: a client that cannot give credentials is not woken
/// again and again. All times are those of `BootClock`.
struct EndReminders {
    private struct Entry {
        var due: Int64?
        /// How often it was told again.
        var count: Int64 = 0
    }

    private var entries: [SessionID: Entry] = [:]

    private static let firstPause: Int64 = 10_000_000_000
    private static let mostDoublings: Int64 = 10

    /// The next one; nil: there is none.
    var next: Int64? { entries.values.compactMap(\.due).min() }

    func isScheduled(_ id: SessionID) -> Bool { entries[id]?.due != nil }

    /// - Returns: when it is due.
    mutating func schedule(_ id: SessionID, at now: Int64) -> Int64 {
        var entry = entries[id] ?? Entry()
        let due = now + Self.firstPause << min(entry.count, Self.mostDoublings)
        entry.due = due
        entries[id] = entry
        return due
    }

    /// Those that are due, in their order; none of them is scheduled any more.
    mutating func takeDue(at now: Int64) -> [SessionID] {
        let due = entries.filter { $0.value.due.map { $0 <= now } ?? false }.keys.sorted()
        for id in due { entries[id]?.due = nil }
        return due
    }

    /// The end was told again.
    mutating func noteRepeated(_ id: SessionID) { entries[id, default: Entry()].count += 1 }

    /// The session has ended anew, or is gone.
    mutating func reset(_ id: SessionID) { entries[id] = nil }
}
