import NightbellCore

/// The scheduler of fetches on a machine with many clients, for days of their persons' lives: how often it
/// was right.
package struct FetchWorld: ~Copyable {
    /// How clients are fetched.
    package enum Policy: Sendable {
        case learned
        /// At equal intervals.
        case unlearned
        /// Not at all: the machine's other wakes.
        case none
    }

    /// The first day that counts: three days are learned before.
    package static let firstCounted = 3
    private static let fresh = Duration.seconds(1_800)
    private static let firstInstant = Instant(nanoseconds: 1_000_000_000_000)
    /// All are one user's, which has the fewest places.
    private static let user: UserID = 1_000

    let settings: Settings
    private let policy: Policy
    private var random: SplitMix64
    private var scheduler: FetchScheduler
    private var keepAlives: KeepAliveSchedule
    private var clients: [FetchingClient] = []
    /// All that happens whatever is fetched, latest first.
    private var happenings: [Happening] = []
    private var ends = DeadlineQueue()
    private var leavings = DeadlineQueue()
    private let calendar: Calendar
    private var hindrances = 0
    package private(set) var tally = FetchTally()

    /// Something from outside, at a time.
    private struct Happening {
        enum Kind {
            case opening(Int)
            case traffic(Int)
            /// The network goes down, or memory and processors get short.
            case hindrance
            case relief
            case clockChange(WallClock)
        }

        let instant: Instant
        let kind: Kind
    }

    /// The machine's local time.
    private struct Calendar {
        let firstDay: Int
        let days: Int
        /// The day at three o'clock of which the clock is moved; nil: it is not.
        let changeDay: Int?
        let change: Duration

        var changeInstant: Instant? { changeDay.map { unshifted($0, 3 * 3_600) } }
        var start: WallClock {
            WallClock(offset: .seconds(firstDay * 86_400) - .nanoseconds(firstInstant.nanoseconds))
        }
        var end: Instant { unshifted(firstDay + days, 0) }

        private func unshifted(_ day: Int, _ second: Int) -> Instant {
            firstInstant + .seconds((day - firstDay) * 86_400 + second)
        }

        func instant(day: Int, second: Int) -> Instant {
            let instant = unshifted(day, second)
            guard let changeInstant, instant >= changeInstant else { return instant }
            return max(instant - change, changeInstant)
        }

        /// The index of the day, from 0.
        func index(of instant: Instant) -> Int {
            var clock = start
            if let changeInstant, instant >= changeInstant { clock.offset += change }
            return clock.local(instant).day - firstDay
        }
    }

    /// The same seed gives the same machine, clients and openings, whatever the policy.
    package init(seed: UInt64, clients count: Int, days: Int, policy: Policy) {
        self.policy = policy
        settings = Settings()
        random = SplitMix64(seed: seed)
        // Some Monday, and the days after it.
        let firstDay = 20_234 + random.below(7)
        calendar = Calendar(
            firstDay: firstDay, days: days, changeDay: random.once(in: 3) ? firstDay + days / 2 : nil,
            change: random.once(in: 2) ? .seconds(3_600) : .seconds(-3_600))
        scheduler = FetchScheduler(settings.fetch)
        scheduler.usesHabit = policy == .learned
        keepAlives = KeepAliveSchedule(lead: settings.keepAlive.lead)
        let now = Self.firstInstant
        scheduler.change(calendar.start, at: now)
        for _ in 0..<count {
            clients.append(FetchingClient(&random, firstDay: firstDay, days: days, at: now))
        }
        draw()
        for index in clients.indices {
            clients[index].lastKeepAlive = now
            scheduleKeepAlive(index, at: now)
            let interval = policy == .none ? .never : clients[index].interval
            scheduler.setInterval(interval, at: UInt32(index), isWaiting: true, at: now)
        }
    }

    private mutating func draw() {
        for index in clients.indices {
            for day in calendar.firstDay..<calendar.firstDay + calendar.days {
                let weekday = (day + 3) % 7
                let openings = clients[index].person.openings(
                    on: day, weekday: weekday, since: calendar.firstDay, &random)
                happenings += openings.map {
                    Happening(instant: calendar.instant(day: day, second: $0), kind: .opening(index))
                }
            }
            var instant = Self.firstInstant + random.duration(upTo: clients[index].quiet * 2)
            while instant < calendar.end {
                happenings.append(Happening(instant: instant, kind: .traffic(index)))
                instant = instant + random.duration(upTo: clients[index].quiet * 2)
            }
        }
        for day in calendar.firstDay..<calendar.firstDay + calendar.days {
            if random.once(in: 4) { drawHindrance(on: day, minutes: 10 + random.below(31)) }
            if random.once(in: 2) { drawHindrance(on: day, minutes: 5 + random.below(16)) }
        }
        if let instant = calendar.changeInstant {
            var clock = calendar.start
            clock.offset += calendar.change
            happenings.append(Happening(instant: instant, kind: .clockChange(clock)))
        }
        // A stable order of equal instants.
        let order = happenings.indices.sorted {
            (happenings[$0].instant, $0) > (happenings[$1].instant, $1)
        }
        happenings = order.map { happenings[$0] }
    }

    private mutating func drawHindrance(on day: Int, minutes: Int) {
        let begin = calendar.instant(day: day, second: random.below(86_400))
        happenings.append(Happening(instant: begin, kind: .hindrance))
        happenings.append(Happening(instant: begin + .seconds(minutes * 60), kind: .relief))
    }

    // MARK: Running

    package mutating func run() {
        while let now = nextInstant, now < calendar.end { step(at: now) }
        let days = calendar.days
        for client in clients {
            tally.fetchesPerDay += (0..<days).map { client.fetchesByDay[$0] ?? 0 }
        }
        tally.finish()
    }

    private var nextInstant: Instant? {
        [
            happenings.last?.instant, keepAlives.nextDeadline, scheduler.nextDeadline,
            ends.first?.instant, leavings.first?.instant,
        ].compactMap(\.self).min()
    }

    private mutating func step(at now: Instant) {
        var isAwake = false
        while let next = happenings.last, next.instant <= now {
            happenings.removeLast()
            if happen(next.kind, at: now) { isAwake = true }
        }
        while let slot = leavings.popDue(at: now) {
            isAwake = true
            leave(Int(slot), at: now)
        }
        if isAwake || keepAlives.isDue(at: now) {
            tally.otherInstants += 1
            isAwake = true
        }
        // While a client fetches the machine is awake as well.
        let hasEnded = ends.first.map { $0.instant <= now } ?? false
        while let slot = ends.popDue(at: now) { endFetch(Int(slot), at: now) }
        if !isAwake, !hasEnded, scheduler.isDue(at: now) { tally.extraInstants += 1 }
        while let slot = keepAlives.popBegun(at: now) {
            clients[Int(slot)].lastKeepAlive = now
            scheduleKeepAlive(Int(slot), at: now)
        }
        while let place = scheduler.popReady(at: now) {
            guard scheduler.hasPlace(for: Self.user) else {
                scheduler.hold(place, of: Self.user, at: now)
                continue
            }
            beginFetch(Int(place), at: now)
        }
    }

    /// Whether it wakes the machine.
    private mutating func happen(_ kind: Happening.Kind, at now: Instant) -> Bool {
        switch kind {
        case .opening(let index):
            open(index, at: now)
            return true
        case .traffic:
            return true
        case .hindrance:
            hindrances += 1
            scheduler.setPermitted(false, at: now)
            return false
        case .relief:
            hindrances -= 1
            scheduler.setPermitted(hindrances == 0, at: now)
            return false
        case .clockChange(let clock):
            scheduler.change(clock, at: now)
            return false
        }
    }

    private mutating func open(_ index: Int, at now: Instant) {
        guard !clients[index].isForeground else { return }
        let day = calendar.index(of: now)
        if day >= Self.firstCounted {
            let isFresh = clients[index].freshSince.map { now.since($0) <= Self.fresh } ?? false
            tally.count(isFresh, of: clients[index])
        }
        clients[index].isForeground = true
        keepAlives.set(UInt32(index), to: nil)
        scheduler.noteOpening(of: UInt32(index), at: now)
        leavings.set(UInt32(index), to: now + .seconds(60 + random.below(600)))
    }

    private mutating func leave(_ index: Int, at now: Instant) {
        clients[index].isForeground = false
        clients[index].floorBase = now
        scheduleKeepAlive(index, at: now)
        scheduler.noteLeaving(of: UInt32(index), at: now)
        scheduler.setWaiting(clients[index].running == nil, at: UInt32(index), at: now)
    }

    private mutating func scheduleKeepAlive(_ index: Int, at now: Instant) {
        guard let timeout = clients[index].keepAlive else { return }
        let latest = max(clients[index].lastKeepAlive + timeout, now + settings.keepAlive.lead)
        let tolerance = Duration.nanoseconds(
            Int64(Double(timeout.nanoseconds) * settings.keepAlive.tolerance))
        let earliest = max(latest - tolerance, clients[index].lastKeepAlive + .nanoseconds(1))
        keepAlives.set(UInt32(index), to: Window(earliest: earliest, latest: latest))
    }

    private mutating func beginFetch(_ index: Int, at now: Instant) {
        let floor = max(clients[index].floor, settings.fetch.minimumInterval)
        let base = clients[index].lastFetch.map { max($0, clients[index].floorBase) }
        if now.since(base ?? clients[index].floorBase) < floor { tally.belowFloor += 1 }
        if hindrances > 0 || clients[index].isForeground { tally.illTimed += 1 }
        let (took, result) = clients[index].fetch(&random)
        clients[index].lastFetch = now
        clients[index].running = (now, result)
        clients[index].fetchesByDay[calendar.index(of: now), default: 0] += 1
        tally.countFetch(of: clients[index])
        scheduler.begin(UInt32(index), of: Self.user, at: now)
        ends.set(UInt32(index), to: now + took)
    }

    private mutating func endFetch(_ index: Int, at now: Instant) {
        guard let (began, result) = clients[index].running.take() else { return }
        if result != nil { clients[index].freshSince = began }
        scheduler.end(
            UInt32(index), of: Self.user, result, took: now.since(began), budget: settings.budgets.fetch)
        scheduler.setWaiting(!clients[index].isForeground, at: UInt32(index), at: now)
    }
}
