/// The rate limit of a client's wakes, and its linger time over the limit.
package struct WakeLimiter: Sendable, Equatable {
    /// The latest wakes, in a ring of at most `limit`.
    private var recent: [Instant] = []
    private var oldest = 0
    /// The number of wakes over the limit, less those within it since.
    private var excess = 0

    package init() {}

    /// Restores a limiter from its latest wakes and its `excess`.
    package init(recent: [Instant], excess: Int, _ settings: Settings.Wakes) {
        self.recent = Array(recent.sorted().suffix(max(1, settings.limit)))
        self.excess = excess
    }

    /// Calls `body` with the latest wakes, oldest first, at most `count`.
    package func forEachLatest(_ count: Int, _ body: (_ index: Int, _ wake: Instant) -> Void) {
        let kept = min(count, recent.count)
        for index in 0..<kept { body(index, recent[(oldest + recent.count - kept + index) % recent.count]) }
    }

    package var excessWakes: Int { excess }

    /// Counts a wake at `now`; returns whether it exceeds `limit` within `period`. The client also lingers
    /// longer if its uid is over its own limit.
    package mutating func countWake(at now: Instant, isUserOverLimit: Bool, _ settings: Settings.Wakes)
        -> Bool
    {
        let isOverLimit = remember(now, settings)
        if !isOverLimit, !isUserOverLimit {
            excess = max(0, excess - 1)
        } else if linger(settings) < settings.lingerMaximum {
            // Counted only as far as it has an effect, so that it can come down again.
            excess += 1
        }
        return isOverLimit
    }

    private mutating func remember(_ now: Instant, _ settings: Settings.Wakes) -> Bool {
        let limit = max(1, settings.limit)
        if recent.count > limit || recent.count < limit && oldest != 0 {
            // The limit has changed.
            recent = Array((recent[oldest...] + recent[..<oldest]).suffix(limit))
            oldest = 0
        }
        guard recent.count == limit else {
            recent.append(now)
            return false
        }
        let isOverLimit = now.since(recent[oldest]) < settings.period
        recent[oldest] = now
        oldest = (oldest + 1) % limit
        return isOverLimit
    }

    /// How long the client stays awake after `WakeDone`.
    package func linger(_ settings: Settings.Wakes) -> Duration {
        doubled(settings.linger, times: excess, maximum: settings.lingerMaximum)
    }
}

/// The back-off before a suspension is tried again: doubles with each consecutive failure.
package struct Backoff: Sendable, Equatable {
    package private(set) var failures = 0

    package init(failures: Int = 0) {
        self.failures = failures
    }

    package mutating func next(_ settings: Settings.Suspension) -> Duration {
        defer { failures += 1 }
        return doubled(settings.retry, times: failures, maximum: settings.retryMaximum)
    }

    package mutating func reset() {
        failures = 0
    }
}

/// `base` doubled `times` times, but not over `maximum` (or `base`, if that is larger).
func doubled(_ base: Duration, times: Int, maximum: Duration) -> Duration {
    var result = base
    for _ in 0..<times where result < maximum {
        result = min(result * 2, max(base, maximum))
    }
    return result
}
