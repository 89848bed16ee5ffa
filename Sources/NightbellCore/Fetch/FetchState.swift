/// All that is kept of a client's fetches. It belongs to the client's identifier, so that it outlives the
/// process.
package struct FetchState: Sendable, Equatable {
    package var interval: FetchInterval
    package var habit = Habit()
    package var score = FetchScore()
    /// When its last fetch began, in elapsed time as the other instants.
    package var lastFetch: Instant?
    /// When it last left the foreground, or asked for fetches first.
    package var leftForeground: Instant
    package var lastOpening: Instant?
    /// The day of the last fetch, in local time if that was known.
    package var day: Int32 = .min
    /// The fetch that is going on, or for which the client is launched, is simulated.
    package var isSimulated = false
    /// The number of fetches on that day.
    package var fetchesOnDay: UInt8 = 0

    package init(interval: FetchInterval, leftForeground: Instant) {
        self.interval = interval
        self.leftForeground = leftForeground
    }

    /// A fetch without a completion doubles the pause before the next one, up to this.
    private static let longestPause = Duration.seconds(LocalTime.secondsPerDay)
    /// The number of fetches that a plan for a day may have, as shares of the most that is permitted.
    private static let aimed = 0.75
    private static let aimedLeast = 0.5
    /// An opening that is expected with this probability is worth a fetch of a client with the best score.
    private static let price = 0.015

    /// The shortest pause between two fetches, and after the foreground; nil: it wants none.
    func pause(_ settings: Settings.Fetch) -> Duration? {
        let own: Duration
        switch interval {
        case .never: return nil
        case .minimum: own = .zero
        case .atLeast(let duration): own = duration
        }
        let floor = max(own, settings.minimumInterval)
        return max(floor, doubled(floor, times: Int(score.overruns), maximum: Self.longestPause))
    }

    /// The first instant at which its next fetch is permitted; nil: none is.
    func permitted(from now: Instant, _ clock: WallClock?, _ settings: Settings.Fetch) -> Instant? {
        guard let pause = pause(settings) else { return nil }
        let base = lastFetch.map { max($0, leftForeground) } ?? leftForeground
        let instant = max(now, base + pause)
        let local = Self.local(instant, clock)
        guard local.day == Int(day), Int(fetchesOnDay) >= limit(settings) else { return instant }
        // It has had all of this day's.
        return instant + .seconds(LocalTime.secondsPerDay - local.secondOfDay)
    }

    /// When its next fetch should begin; nil: never.
    func window(
        from now: Instant, _ clock: WallClock?, usesHabit: Bool, _ settings: Settings.Fetch
    ) -> Window? {
        guard let permitted = permitted(from: now, clock, settings) else { return nil }
        let base = lastFetch.map { max($0, leftForeground) } ?? leftForeground
        let aim = max(1, Int(Double(limit(settings)) * Self.aimed))
        let least = min(aim, max(1, Int(Double(limit(settings)) * Self.aimedLeast)))
        guard let clock, usesHabit, habit.isUseful else {
            let spacing = Duration.seconds(LocalTime.secondsPerDay / least)
            let latest = max(permitted + settings.slack / 2, base + spacing)
            return Window(earliest: max(permitted, latest - spacing / 8), latest: latest)
        }
        let freshUntil = lastFetch.map { ($0 + settings.fresh).since(permitted) } ?? .zero
        let returnsUntil = lastOpening.map { ($0 + Habit.returnTime).since(permitted) } ?? .zero
        let plan = FetchPlan(
            habit, from: clock.local(permitted), pause: pause(settings) ?? .zero,
            fresh: settings.fresh - settings.slack / 2, freshUntil: freshUntil, returnsUntil: returnsUntil)
        let price = Self.price / max(score.share, 0.05)
        let day = Duration.seconds(LocalTime.secondsPerDay)
        let latest = plan.firstFetch(price: price, least...aim).map { permitted + $0 }
        // A client that is hardly ever opened has one fetch a day.
        let target = max(latest ?? base + day, permitted + settings.slack / 2)
        return Window(earliest: max(permitted, target - settings.slack), latest: target)
    }

    /// How many fetches it may have in a day.
    func limit(_ settings: Settings.Fetch) -> Int {
        max(1, min(Int((Double(settings.perDay) * score.share).rounded()), Int(UInt8.max)))
    }

    mutating func noteFetch(at now: Instant, _ clock: WallClock?) {
        let today = Int32(clamping: Self.local(now, clock).day)
        fetchesOnDay = today == day ? min(fetchesOnDay, .max - 1) + 1 : 1
        day = today
        lastFetch = now
        if let clock { habit.advance(to: clock.local(now)) }
    }

    mutating func noteOpening(at now: Instant, _ clock: WallClock?) {
        defer { lastOpening = now }
        guard let clock, Habit.isVisit(now, after: lastOpening) else { return }
        let isReturn = lastOpening.map { now.since($0) < Habit.returnTime } ?? false
        habit.add(openingAt: clock.local(now), isReturn: isReturn)
    }

    /// Local time, or elapsed time where that is unknown.
    private static func local(_ instant: Instant, _ clock: WallClock?) -> LocalTime {
        clock?.local(instant) ?? LocalTime(nanoseconds: instant.nanoseconds)
    }
}
