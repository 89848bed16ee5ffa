import Glibc
import LinuxSystem
import NightbellCore

/// Reads the time of day and the time zone.
enum ClockLook {
    /// The file of the machine's time zone; nil: a variable has another one for this process.
    static var zoneFile: String? { unsafe getenv("TZ") == nil ? "/etc/localtime" : nil }

    /// Readings of two clocks one after the other differ by less.
    private static let tolerance = Duration.milliseconds(2)

    /// - Parameter known: the last reading: as long as the clock is not set, its exact offset stays.
    static func now(after known: NotificationClock?) -> NotificationClock {
        // `localtime_r` reads the time zone once only; this looks whether it has changed.
        tzset()
        var utc = Duration.nanoseconds(MachineLook.realOffset())
        if let known, abs((known.utc - utc).nanoseconds) < tolerance.nanoseconds { utc = known.utc }
        let seconds = time(nil)
        let zone = offset(at: seconds)
        let change = nextChange(after: seconds, zone)
        return NotificationClock(
            utc: utc, zone: .seconds(zone),
            change: change.map {
                NotificationClock.ZoneChange(
                    at: Int64($0) * 1_000_000_000, zone: .seconds(offset(at: $0)))
            })
    }

    private static func offset(at seconds: time_t) -> Int {
        var seconds = seconds
        var broken = unsafe tm()
        return unsafe localtime_r(&seconds, &broken) == nil ? 0 : broken.tm_gmtoff
    }

    /// The first second with another offset in the next year or so; nil: there is none. Changes that are less
    /// than a week apart are taken for one.
    private static func nextChange(after start: time_t, _ zone: Int) -> time_t? {
        let week = 7 * 86_400
        var before = start
        for _ in 0..<56 {
            let after = before + week
            guard offset(at: after) == zone else { return firstChange(before, after, zone) }
            before = after
        }
        return nil
    }

    private static func firstChange(_ before: time_t, _ after: time_t, _ zone: Int) -> time_t {
        var (before, after) = (before, after)
        while after - before > 1 {
            let middle = before + (after - before) / 2
            if offset(at: middle) == zone { before = middle } else { after = middle }
        }
        return after
    }
}
