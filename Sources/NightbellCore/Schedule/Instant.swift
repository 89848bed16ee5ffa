/// A moment on the supervisor's clock, in nanoseconds. The core never reads a clock: time is a parameter.
///
/// There are two clocks. *Running time* stops while the machine sleeps; the edge reads `CLOCK_MONOTONIC`. All
/// events carry it, and budgets count it. *Elapsed time* goes on (`CLOCK_BOOTTIME`); peers and their timeouts
/// count it, and so do keep-alive windows. `Supervision.elapsed(at:)` converts running time to elapsed time.
@usableFromInline package struct Instant: Sendable, Hashable, Comparable, BitwiseCopyable {
    @usableFromInline package var nanoseconds: Int64

    @inlinable package init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    @inlinable package static func < (left: Instant, right: Instant) -> Bool {
        left.nanoseconds < right.nanoseconds
    }

    /// Saturates instead of overflowing: a duration of centuries means "never".
    package static func + (instant: Instant, duration: Duration) -> Instant {
        let (sum, overflow) = instant.nanoseconds.addingReportingOverflow(duration.nanoseconds)
        return Instant(nanoseconds: overflow ? (duration < .zero ? .min : .max) : sum)
    }

    package static func - (instant: Instant, duration: Duration) -> Instant {
        let (difference, overflow) = instant.nanoseconds.subtractingReportingOverflow(duration.nanoseconds)
        return Instant(nanoseconds: overflow ? (duration < .zero ? .max : .min) : difference)
    }

    /// The time from `earlier` to `self`; negative when `earlier` is the later one.
    package func since(_ earlier: Instant) -> Duration {
        let (difference, overflow) = nanoseconds.subtractingReportingOverflow(earlier.nanoseconds)
        return .nanoseconds(overflow ? (self < earlier ? .min : .max) : difference)
    }

    /// Saturates. For paths that are taken for each ping: a `Duration` costs a multiplication and a division
    /// of 128 bits.
    package func advanced(byNanoseconds nanoseconds: Int64) -> Instant {
        let (sum, overflow) = self.nanoseconds.addingReportingOverflow(nanoseconds)
        return Instant(nanoseconds: overflow ? (nanoseconds < 0 ? .min : .max) : sum)
    }
}

extension Duration {
    /// The whole duration in nanoseconds, clamped to what 64 bits hold (292 years).
    package var nanoseconds: Int64 { Int64(clamping: attoseconds / 1_000_000_000) }
}

/// The earlier of two instants; `nil` is never.
func earlier(_ first: Instant?, _ second: Instant?) -> Instant? {
    guard let first, let second else { return first ?? second }
    return min(first, second)
}
