/// The instants at which sleeping programs are thawed together for timers that may be late. Pure.
///
/// Each program is looked after by a process of its own, and none knows the timers of the others. They agree
/// without a word: each takes the instant within its own window that most other windows have, too.
package enum CommonInstant {
    /// The instant of a window that divides by the greatest power of two.
    ///
    /// A window at least 2ᵏ long has a multiple of 2ᵏ: all windows of that length are served by the multiples
    /// of 2ᵏ alone, whatever their beginnings, and those are instants of shorter windows as well.
    ///
    /// - Parameter window: in nanoseconds of a clock that all of the programs have in common.
    package static func within(_ window: ClosedRange<Int64>) -> Int64 {
        guard window.lowerBound > 0 else { return window.upperBound }
        // Above the highest bit in which they differ, both have the same bits; there, the end has a one.
        let difference = UInt64(window.lowerBound - 1) ^ UInt64(window.upperBound)
        let zeros = UInt64.bitWidth - 1 - difference.leadingZeroBitCount
        return (window.upperBound >> Int64(zeros)) << Int64(zeros)
    }
}
