/// The text format of durations, in files and on command lines: `600s`, `250ms`, `3m` or `3min`, `1h`, `2d`,
/// or a plain number of seconds.
package enum DurationText {
    /// Nil if the text is no duration, is negative, or is longer than 100 years.
    package static func parse(_ text: String) -> Duration? {
        let units: [(suffix: String, nanoseconds: Double)] = [
            ("ms", 1e6), ("us", 1e3), ("ns", 1), ("s", 1e9), ("min", 60e9), ("m", 60e9), ("h", 3_600e9),
            ("d", 86_400e9),
        ]
        let unit = units.first { text.hasSuffix($0.suffix) }
        let digits = text.dropLast(unit?.suffix.utf8.count ?? 0)
        guard isPlainDecimal(digits), let number = Double(digits) else { return nil }
        let nanoseconds = (number * (unit?.nanoseconds ?? 1e9)).rounded()
        guard nanoseconds <= 100 * 366 * 86_400e9 else { return nil }
        return .nanoseconds(Int64(nanoseconds))
    }

    /// The shortest text that `parse` reads back as the same duration.
    package static func format(_ duration: Duration) -> String {
        let (seconds, attoseconds) = duration.components
        let nanoseconds = attoseconds / 1_000_000_000
        if nanoseconds == 0 { return "\(seconds)s" }
        if nanoseconds % 1_000_000 == 0 { return "\(seconds * 1_000 + nanoseconds / 1_000_000)ms" }
        if nanoseconds % 1_000 == 0 { return "\(seconds * 1_000_000 + nanoseconds / 1_000)us" }
        return "\(seconds * 1_000_000_000 + nanoseconds)ns"
    }
}

/// Digits with at most one point. `Double` would also accept `inf`, `0x1p3`, `1e9`.
package func isPlainDecimal(_ text: some StringProtocol) -> Bool {
    let points = text.utf8.count { $0 == UInt8(ascii: ".") }
    let digits = text.utf8.count { (UInt8(ascii: "0")...UInt8(ascii: "9")).contains($0) }
    return digits > 0 && points <= 1 && points + digits == text.utf8.count
}
