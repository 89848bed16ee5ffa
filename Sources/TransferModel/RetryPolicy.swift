/// The delays between attempts: exponential back-off with jitter, so that clients of a server that comes back
/// do not arrive together.
package struct RetryPolicy: Hashable, Sendable {
    /// In nanoseconds, as all times.
    package var first: Int64
    package var longest: Int64
    /// The longest that a server can ask for.
    package var longestAsked: Int64
    /// Attempts after which a server that contradicts itself is given up.
    package var inconsistencies: Int

    package init(
        first: Int64 = 1_000_000_000, longest: Int64 = 600_000_000_000,
        longestAsked: Int64 = 3_600_000_000_000, inconsistencies: Int = 4
    ) {
        self.first = first
        self.longest = longest
        self.longestAsked = longestAsked
        self.inconsistencies = inconsistencies
    }

    /// - Parameters:
    ///   - failures: how many attempts in a row brought nothing, this one included.
    ///   - random: any number.
    ///   - asked: the delay that the server asks for, in seconds.
    package func delay(failures: Int, random: UInt64, askedSeconds asked: Int64? = nil) -> Int64 {
        // At least half of the step: no attempt follows at once.
        let doublings = min(max(failures - 1, 0), 40)
        let step = first.multipliedReportingOverflow(by: 1 << Int64(doublings))
        let bound = step.overflow ? longest : min(step.partialValue, longest)
        let jittered = bound / 2 + Int64(random % UInt64(max(bound / 2, 1)))
        guard let asked, asked > 0 else { return jittered }
        let seconds = min(asked, longestAsked / 1_000_000_000)
        return max(seconds * 1_000_000_000 + jittered - bound / 2, jittered)
    }
}
