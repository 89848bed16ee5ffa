/// When a worker that died is replaced, and when that has happened too often. Pure.
package struct RestartPolicy: Sendable, Equatable {
    /// So many deaths in a row …
    package var limit = 5
    /// … within this time are a loop, in nanoseconds.
    package var period: Int64 = 10_000_000_000
    package var firstPause: Int64 = 50_000_000
    package var longestPause: Int64 = 5_000_000_000

    /// What to do about a death.
    package struct Verdict: Sendable, Equatable {
        /// How long to wait before the next worker, in nanoseconds.
        package var pause: Int64
        /// Nobody is to stay frozen until one of them lives.
        package var thaws: Bool

        package init(pause: Int64, thaws: Bool) {
            self.pause = pause
            self.thaws = thaws
        }
    }

    /// Deaths of workers that did not live long, one after the other.
    private var inARow = 0

    package init() {}

    /// A worker died that had served for this time; nil: it never did. One that served for its share of the period
    /// is none of a row.
    package mutating func noteDeath(servedFor: Int64?) -> Verdict {
        if let servedFor, servedFor >= period / Int64(max(1, limit)) { inARow = 0 }
        inARow += 1
        let doublings = min(inARow - 2, 16)
        let pause = doublings < 0 ? 0 : min(longestPause, firstPause << Int64(doublings))
        return Verdict(pause: inARow > limit ? longestPause : pause, thaws: inARow == limit)
    }
}
