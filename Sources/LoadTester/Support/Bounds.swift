import ArgumentParser

/// Refuses values out of range: a number that is too large would trap much later without an explanation.
func require<Value: Comparable>(_ option: String, _ value: Value, _ range: ClosedRange<Value>) throws {
    guard range.contains(value) else {
        throw ValidationError("\(option): from \(range.lowerBound) to \(range.upperBound)")
    }
}

/// Ranges of options that several subcommands share.
enum Bounds {
    static let rounds = 1...1_000
    static let calls = 1...1_000_000
    /// Processes of the load tester, each with memory of its own.
    static let processes = 1...4_000
    /// The quotas of a user and of a client in a run's supervisor.
    static let sockets = 2...1_000_000
    static let socketsOfOne = 2...100_000
    /// Clients without a process.
    static let dormant = 2...100_000
    static let kills = 1...1_000_000
    static let seconds = 1...86_400
}
