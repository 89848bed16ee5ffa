import NightbellCore

/// The transfer processes of all users.
struct TransferCare {
    var services: [UserID: TransferService] = [:]
    /// Processes that were killed and cannot be reaped yet.
    var ending: [HelperProcess] = []
    /// The number of services and processes that there were so far.
    var count: UInt64 = 0
    /// Clients that their users have just quit.
    var quits: [(user: UserID, client: String)] = []
    /// When to look at all services.
    var due: Instant?
    /// Whether discretionary transfers may run, as the processes know it.
    var isGoodMoment = false
    /// The monitor has had time until then to tell whether it is one; nil: nothing waits.
    var judgesFrom: Instant?

    /// Each has a socket, and may have a process.
    static let mostUsers = 256

    mutating func look(at instant: Instant) { due = due.map { min($0, instant) } ?? instant }

    /// How long the monitor has for its first facts.
    static let judgingTime: Duration = .seconds(5)

    mutating func nextNumber() -> UInt64 {
        count += 1
        return count
    }
}
