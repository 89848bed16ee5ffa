/// The relation of elapsed time to local time, as the edge has reported it last. A change of the clock or of
/// daylight saving time only changes the offset.
package struct WallClock: Sendable, Hashable {
    /// Local time is elapsed time plus this.
    package var offset: Duration

    package init(offset: Duration) {
        self.offset = offset
    }

    package func local(_ elapsed: Instant) -> LocalTime {
        LocalTime(nanoseconds: (elapsed + offset).nanoseconds)
    }
}

/// A moment in local time, in nanoseconds since the beginning of 1970.
package struct LocalTime: Sendable, Hashable {
    package static let secondsPerDay = 86_400

    package var nanoseconds: Int64

    package init(nanoseconds: Int64) {
        self.nanoseconds = nanoseconds
    }

    private var seconds: Int { Int(nanoseconds.quotientRoundedDown(by: 1_000_000_000)) }

    /// The number of the day; that of 1 January 1970 is 0.
    package var day: Int { seconds.quotientRoundedDown(by: Self.secondsPerDay) }

    package var secondOfDay: Int { seconds - day * Self.secondsPerDay }

    /// The weekday of a day: 0 is Monday.
    static func weekday(of day: Int) -> Int {
        // 1 January 1970 was a Thursday.
        let shifted = day + 3
        return shifted - 7 * shifted.quotientRoundedDown(by: 7)
    }

    static func isWeekend(_ weekday: Int) -> Bool { weekday >= 5 }
}

extension FixedWidthInteger {
    /// The quotient towards minus infinity; `divisor` is positive.
    fileprivate func quotientRoundedDown(by divisor: Self) -> Self {
        let (quotient, remainder) = quotientAndRemainder(dividingBy: divisor)
        return remainder < 0 ? quotient - 1 : quotient
    }
}
