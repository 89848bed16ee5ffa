/// Tells when a client is woken too often, and how long it stays awake then.
package struct WakeLimiter: Sendable, Equatable {
    /// The latest wakes, in a ring of at most `limit`.
    private var recent: [Instant] = []
    private var oldest = 0
    /// How many wakes over the limit there were, less those within it since.
    private var excess = 0

    package init() {}

    /// Where another limiter left off: the instants that it gave, and its `excess`.
    package init(recent: [Instant], excess: Int, _ settings: Settings.Wakes) {
        self.recent = Array(recent.sorted().suffix(max(1, settings.limit)))
        self.excess = excess
    }

    /// Gives the latest wakes, oldest first, no more than `count`.
    package func forEachLatest(_ count: Int, _ body: (_ index: Int, _ wake: Instant) -> Void) {
        let kept = min(count, recent.count)
        for index in 0..<kept { body(index, recent[(oldest + recent.count - kept + index) % recent.count]) }
    }

    package var excessWakes: Int { excess }

    /// Notes a wake at `now`; tells whether it was one too many: more than `limit` within `period`. Where the
    /// clients of its uid have had too many together, it lingers longer as well.
    package mutating func note(at now: Instant, isUserOverLimit: Bool, _ settings: Settings.Wakes) -> Bool {
        let isOverLimit = remember(now, settings)
        if !isOverLimit, !isUserOverLimit {
            excess = max(0, excess - 1)
        } else if linger(settings) < settings.lingerMaximum {
            // Not counted further than it has an effect: it must also come down again.
            excess += 1
        }
        return isOverLimit
    }

    private mutating func remember(_ now: Instant, _ settings: Settings.Wakes) -> Bool {
        let limit = max(1, settings.limit)
        if recent.count > limit || recent.count < limit && oldest != 0 {
            // The limit was another one before.
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

    /// How long the client stays awake after it has said that it is done.
    package func linger(_ settings: Settings.Wakes) -> Duration {
        doubled(settings.linger, times: excess, maximum: settings.lingerMaximum)
    }
}

/// The pause before a suspension is tried again: doubles each time in a row.
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
