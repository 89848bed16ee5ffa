import NightbellCore

/// The failures of a process beside the supervisor, and the rate of its reports.
struct HelperHistory {
    /// When it is started again.
    private(set) var restartAt: Instant?
    /// Consecutive ends soon after the start.
    private(set) var failures = 0
    private var reportsUntil = Instant(nanoseconds: .min)
    private var reports = 0

    /// A process that sends more in a second is replaced. The sources of a monitor merge what comes faster.
    private static let reportsPerSecond = 1_000
    /// The failures before those of one that has run this long are forgotten.
    private static let settled: Duration = .seconds(10)
    private static let retry: Duration = .milliseconds(250)
    private static let retryMaximum: Duration = .seconds(60)

    func mayStart(at now: Instant) -> Bool { restartAt.map { now >= $0 } ?? true }

    /// It has ended, or could not be started. `startedAt`: nil, it could not.
    mutating func noteFailure(startedAt: Instant?, at now: Instant) {
        if let startedAt, now >= startedAt + Self.settled { failures = 0 }
        var pause = Self.retry
        for _ in 0..<failures where pause < Self.retryMaximum { pause = min(pause * 2, Self.retryMaximum) }
        failures += 1
        restartAt = now + pause
    }

    /// Counts a report; false: there are too many.
    mutating func admitReport(at now: Instant) -> Bool {
        if now >= reportsUntil {
            reportsUntil = now + .seconds(1)
            reports = 0
        }
        reports += 1
        return reports <= Self.reportsPerSecond
    }
}
