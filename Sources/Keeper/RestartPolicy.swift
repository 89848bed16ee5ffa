/// Decides when a dead worker is replaced, and when deaths are too frequent. Pure.
package struct RestartPolicy: Sendable, Equatable {
    /// This many deaths in a row …
    package var limit = 5
    /// … within this time are a crash loop, in nanoseconds.
    package var period: Int64 = 10_000_000_000
    package var firstPause: Int64 = 50_000_000
    package var longestPause: Int64 = 5_000_000_000

    /// The reaction to a death.
    package struct Verdict: Sendable, Equatable {
        /// The back-off before the next worker, in nanoseconds.
        package var pause: Int64
        /// All clients are to be thawed, so that none stays frozen until a worker survives.
        package var thaws: Bool

        package init(pause: Int64, thaws: Bool) {
            self.pause = pause
            self.thaws = thaws
        }
    }

    /// Deaths of short-lived workers, one after the other.
    private var inARow = 0

    package init() {}

    /// A worker died that had served for this time; nil: it never served. A worker that stays up for `period
    /// / limit` resets the count.
    package mutating func recordDeath(servedFor: Int64?) -> Verdict {
        if let servedFor, servedFor >= period / Int64(max(1, limit)) { inARow = 0 }
        inARow += 1
        let doublings = min(inARow - 2, 16)
        let pause = doublings < 0 ? 0 : min(longestPause, firstPause << Int64(doublings))
        return Verdict(pause: inARow > limit ? longestPause : pause, thaws: inARow == limit)
    }
}
