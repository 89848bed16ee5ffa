/// Limits the processor time that is spent on something to a tenth, 10 ms in 100 ms.
package struct TimeShare {
    private var windowStart: Int64 = 0
    private var spent: Int64 = 0
    /// The end of the last pause.
    private var resumed: Int64?
    /// The instant of the first of the present series of pauses, with less than `longestGap` between one and
    /// the next.
    package private(set) var excessSince: Int64?

    /// In nanoseconds.
    package static let window: Int64 = 100_000_000
    package static let most: Int64 = 10_000_000
    /// The longest pause, in windows.
    private static let longestPause: Int64 = 20
    /// In nanoseconds. On a busy machine it takes more than a window to spend the share.
    package static let longestGap: Int64 = 3 * window

    package init() {}

    /// - Parameters:
    ///   - time: processor time that was spent just now, in nanoseconds.
    ///   - now: the present instant of any clock.
    /// - Returns: the instant until which nothing more may be spent; nil: it is within the limit.
    package mutating func spend(_ time: Int64, at now: Int64) -> Int64? {
        if now - windowStart >= Self.window {
            windowStart = now
            spent = 0
        }
        spent += time
        guard spent >= Self.most else { return nil }
        let isInSeries = resumed.map { windowStart - $0 < Self.longestGap } ?? false
        if !isInSeries { excessSince = now }
        // An excess over a window's share is taken from the following ones.
        let end = windowStart + Self.window * min(spent / Self.most, Self.longestPause)
        resumed = end
        return end
    }

    /// A pause has ended, perhaps later than it could.
    package mutating func resume(at now: Int64) { resumed = now }
}
