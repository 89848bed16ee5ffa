import ArgumentParser

/// Refuses what is outside: a number that is too large for anybody traps much later, and says nothing then.
func require<Value: Comparable>(_ option: String, _ value: Value, _ range: ClosedRange<Value>) throws {
    guard range.contains(value) else {
        throw ValidationError("\(option): from \(range.lowerBound) to \(range.upperBound)")
    }
}

/// What several subcommands have in common.
enum Bounds {
    static let rounds = 1...1_000
    static let calls = 1...1_000_000
    /// Processes of ours, each with memory of its own.
    static let processes = 1...4_000
    /// What the supervisor of a run lets one user, and one client, have.
    static let sockets = 2...1_000_000
    static let socketsOfOne = 2...100_000
    /// Clients without a process.
    static let dormant = 2...100_000
    static let kills = 1...1_000_000
    static let seconds = 1...86_400
}
