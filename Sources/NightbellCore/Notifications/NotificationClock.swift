/// The relation of elapsed time to the time of day, and the next change of that which is known in advance.
package struct NotificationClock: Sendable, Hashable {
    /// A change of the time zone's offset: the beginning or end of daylight-saving time.
    package struct ZoneChange: Sendable, Hashable {
        /// In nanoseconds since 1970 (UTC).
        package var at: Int64
        /// Local time is UTC plus this, from then on.
        package var zone: Duration

        package init(at: Int64, zone: Duration) {
            self.at = at
            self.zone = zone
        }
    }

    /// UTC is elapsed time plus this. It changes when the clock is set.
    package var utc: Duration
    /// Local time is UTC plus this.
    package var zone: Duration
    package var change: ZoneChange?

    package init(utc: Duration, zone: Duration, change: ZoneChange? = nil) {
        self.utc = utc
        self.zone = zone
        self.change = change
    }

    /// The same clock without a change that has passed.
    package func settled(at elapsed: Instant) -> NotificationClock {
        guard let change, time(at: elapsed) >= change.at else { return self }
        return NotificationClock(utc: utc, zone: change.zone)
    }

    package func time(at elapsed: Instant) -> Int64 { (elapsed + utc).nanoseconds }

    package func elapsed(at time: Int64) -> Instant { Instant(nanoseconds: time) - utc }

    package func local(at elapsed: Instant) -> LocalTime {
        let time = time(at: elapsed)
        let offset = change.map { time >= $0.at ? $0.zone : zone } ?? zone
        return LocalTime(nanoseconds: (Instant(nanoseconds: time) + offset).nanoseconds)
    }

    /// The first moment with this local time. A time that daylight-saving time skips is the moment at which
    /// that begins.
    package func elapsed(at local: LocalTime) -> Instant {
        let time = (Instant(nanoseconds: local.nanoseconds) - zone).nanoseconds
        guard let change, time >= change.at else { return elapsed(at: time) }
        let later = (Instant(nanoseconds: local.nanoseconds) - change.zone).nanoseconds
        return elapsed(at: max(later, change.at))
    }
}

/// A recurring time of the calendar.
package struct CalendarTime: Sendable, Hashable {
    package enum Day: Sendable, Hashable {
        case every
        /// 1 is Monday, 7 is Sunday.
        case weekday(Int)
        /// From 1 to 31; a shorter month has its last day instead.
        case dayOfMonth(Int)
    }

    /// From 0 to 86,399.
    package var secondOfDay: Int
    package var day: Day

    package init(secondOfDay: Int, day: Day = .every) {
        self.secondOfDay = secondOfDay
        self.day = day
    }

    /// The next such time after another one.
    func next(after local: LocalTime) -> LocalTime {
        var day = local.day
        while true {
            let nanoseconds = Int64(day * LocalTime.secondsPerDay + secondOfDay) * 1_000_000_000
            if nanoseconds > local.nanoseconds, includes(day: day) {
                return LocalTime(nanoseconds: nanoseconds)
            }
            day += 1
        }
    }

    private func includes(day number: Int) -> Bool {
        switch day {
        case .every: true
        case .weekday(let weekday): LocalTime.weekday(of: number) == weekday - 1
        case .dayOfMonth(let wanted):
            LocalTime.dayOfMonth(number) == wanted
                || LocalTime.dayOfMonth(number) < wanted && LocalTime.dayOfMonth(number + 1) == 1
        }
    }
}

extension LocalTime {
    /// The day of the month of a day, in the Gregorian calendar: 1 to 31.
    static func dayOfMonth(_ day: Int) -> Int {
        // Eras of 400 years, which begin on 1 March, so that a leap day is the last of its year.
        let shifted = day + 719_468
        let era = (shifted >= 0 ? shifted : shifted - 146_096) / 146_097
        let dayOfEra = shifted - era * 146_097
        let yearOfEra =
            (dayOfEra - dayOfEra / 1_460 + dayOfEra / 36_524 - dayOfEra / 146_096) / 365
        let dayOfYear = dayOfEra - (365 * yearOfEra + yearOfEra / 4 - yearOfEra / 100)
        let month = (5 * dayOfYear + 2) / 153
        return dayOfYear - (153 * month + 2) / 5 + 1
    }
}
