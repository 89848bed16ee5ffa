/// Delays the turn while a burst of wakes is still arriving: a turn's work for each wake would delay the
/// early thaw of the next ones, and takes the processors that the thawed clients need.
///
/// A lone wake is not delayed. All times are in nanoseconds, of one clock.
package struct WakeBurst {
    /// When the first wake of the burst arrived; nil: none has.
    private var began: Int64?
    /// When the last one arrived, in this turn or an earlier one.
    private var latest = Int64.min / 2
    /// When the turn begins, if no other wake arrives.
    private var until = Int64.min

    package init() {}

    /// Wakes that follow one another within this time are a burst; so are `many` at once.
    private static let succession: Int64 = 2_000_000
    private static let many = 8
    /// A burst is over when no wake has arrived for `pause`, plus `pauseForEach` for each that has: on two
    /// processors, a process that was thawed has read its socket after some 10 µs of its own (measured with
    /// `nightbell-load storm`).
    private static let pause: Int64 = 1_000_000
    private static let pauseForEach: Int64 = 5_000
    /// The longest delay per wake beside a pause: the turn itself takes that long anyway.
    private static let patienceForEach: Int64 = 50_000
    private static let longest: Int64 = 50_000_000

    /// Forgets the burst: its turn is over.
    package mutating func reset() { began = nil }

    /// Notes that wakes have arrived.
    ///
    /// - Parameter pending: how many clients were thawed and are waiting for the turn.
    package mutating func update(pending: Int, at now: Int64) {
        let isBurst = began != nil || pending >= Self.many || now - latest < Self.succession
        let start = began ?? now
        began = start
        latest = now
        guard isBurst else { return until = now }
        let pending = Int64(pending)
        let patience = min(Self.longest, Self.pause + pending * Self.patienceForEach)
        until = min(now + Self.pause + pending * Self.pauseForEach, start + patience)
    }

    /// How long to wait for more, in whole milliseconds; nil: the turn begins.
    package func wait(at now: Int64) -> CInt? {
        guard began != nil, now <= until else { return nil }
        return CInt(clamping: (until - now) / 1_000_000)
    }
}
