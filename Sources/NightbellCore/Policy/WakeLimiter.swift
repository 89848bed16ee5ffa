/// Tells when a client is woken too often, and how long it stays awake then.
struct WakeLimiter: Sendable {
    /// The latest wakes, in a ring of at most `limit`.
    private var recent: [Instant] = []
    private var oldest = 0
    /// How many wakes over the limit there were, less those within it since.
    private var excess = 0

    /// Notes a wake at `now`; tells whether it was one too many: more than `limit` within `period`.
    mutating func note(at now: Instant, _ settings: Settings.Wakes) -> Bool {
        let limit = max(1, settings.limit)
        guard recent.count == limit else {
            recent.append(now)
            return false
        }
        let exceeded = now.since(recent[oldest]) < settings.period
        recent[oldest] = now
        oldest = (oldest + 1) % limit
        excess = exceeded ? excess + 1 : max(0, excess - 1)
        return exceeded
    }

    /// How long the client stays awake after it has said that it is done.
    func linger(_ settings: Settings.Wakes) -> Duration {
        doubled(settings.linger, times: excess, maximum: settings.lingerMaximum)
    }
}

/// The pause before a suspension is tried again: doubles each time in a row.
struct Backoff: Sendable {
    private var failures = 0

    mutating func next(_ settings: Settings.Suspension) -> Duration {
        defer { failures += 1 }
        return doubled(settings.retry, times: failures, maximum: settings.retryMaximum)
    }

    mutating func reset() {
        failures = 0
    }
}

/// `base` doubled `times` times, but not over `maximum` (or `base`, if that is larger).
private func doubled(_ base: Duration, times: Int, maximum: Duration) -> Duration {
    var result = base
    for _ in 0..<times where result < maximum {
        result = min(result * 2, max(base, maximum))
    }
    return result
}
