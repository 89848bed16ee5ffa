/// Formats quantities for people. Programs use the JSON output, which has plain numbers.
package enum Human {
    /// Two units at most: `380ms`, `4.2s`, `12m 5s`, `3h 40m`, `8d 2h`.
    package static func duration(_ duration: Duration) -> String {
        let (seconds, attoseconds) = duration.components
        if seconds < 0 || attoseconds < 0 { return "-" + self.duration(.zero - duration) }
        let microseconds = attoseconds / 1_000_000_000_000
        switch seconds {
        case 0 where microseconds == 0: return "0s"
        case 0 where microseconds < 1_000: return "\(microseconds)us"
        case 0: return "\(microseconds / 1_000)ms"
        case ..<10: return "\(seconds).\(microseconds / 100_000)s"
        case ..<60: return "\(seconds)s"
        case ..<3_600: return joined(seconds / 60, "m", seconds % 60, "s")
        case ..<86_400: return joined(seconds / 3_600, "h", seconds % 3_600 / 60, "m")
        default: return joined(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h")
        }
    }

    /// `512 B`, `3.4 KiB`, `11.2 MiB`.
    package static func bytes(_ count: UInt64) -> String {
        var tenths = count.multipliedReportingOverflow(by: 10)
        if tenths.overflow { tenths.partialValue = .max }
        var rest = tenths.partialValue
        for unit in ["B", "KiB", "MiB", "GiB"] {
            if rest < 10_240 {
                return unit == "B" ? "\(rest / 10) B" : "\(rest / 10).\(rest % 10) \(unit)"
            }
            rest /= 1_024
        }
        return "\(rest / 10).\(rest % 10) TiB"
    }

    private static func joined(_ large: Int64, _ largeUnit: String, _ small: Int64, _ smallUnit: String)
        -> String
    {
        small == 0 ? "\(large)\(largeUnit)" : "\(large)\(largeUnit) \(small)\(smallUnit)"
    }
}
