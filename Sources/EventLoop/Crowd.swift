/// How long a turn is put off because there may be more that cannot wait: what a turn does for each of a crowd would keep
/// those who come meanwhile from their `early`, and takes the processors that those need who were dealt with already.
///
/// A lone event is not kept waiting. All times are in nanoseconds, of one clock.
package struct Crowd {
    /// When there was the first of those whose turn is to come.
    private var began: Int64?
    /// When there was somebody the last time, in this gathering or in one before.
    private var latest = Int64.min / 2
    /// Nobody else is waited for after that.
    private var until = Int64.min

    package init() {}

    /// Those who come one after another, not further apart than this, are a crowd; so are many who come at once.
    private static let succession: Int64 = 2_000_000
    private static let many = 8
    /// A crowd is over when nobody has come for so long, and for so much longer for each who is there: on two processors, a
    /// process that was thawed has read its socket after some 10 µs of its own (measured with `nightbell-load storm`).
    private static let pause: Int64 = 1_000_000
    private static let pauseForEach: Int64 = 5_000
    /// Their turn is put off for so long at most, beside a pause: it is none the later for having waited, because it takes
    /// that long for so many.
    private static let patienceForEach: Int64 = 50_000
    private static let longest: Int64 = 50_000_000

    /// A turn is over.
    package mutating func disperse() { began = nil }

    /// There was more that could not wait, and it is dealt with.
    ///
    /// - Parameter known: with how many that is so, of whom the turn will be told.
    package mutating func join(known: Int, at now: Int64) {
        let isCrowd = began != nil || known >= Self.many || now - latest < Self.succession
        let start = began ?? now
        began = start
        latest = now
        guard isCrowd else { return until = now }
        let known = Int64(known)
        let patience = min(Self.longest, Self.pause + known * Self.patienceForEach)
        until = min(now + Self.pause + known * Self.pauseForEach, start + patience)
    }

    /// How many whole milliseconds more of them are waited for; nil: they are not.
    package func wait(at now: Int64) -> CInt? {
        guard began != nil, now <= until else { return nil }
        return CInt(clamping: (until - now) / 1_000_000)
    }
}
