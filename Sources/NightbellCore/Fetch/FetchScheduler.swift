/// Chooses the moments of all clients' fetches: shortly before a likely opening, at an instant at which the
/// machine is awake anyway if there is one, and never while the network is down or the machine is short of
/// memory or processors.
///
/// Times are elapsed times; clients are the places of their identifiers.
package struct FetchScheduler: Sendable, Equatable {
    package private(set) var settings: Settings.Fetch
    /// Local time, once it is known. Without it nothing is learned, and fetches are spread over the day.
    package private(set) var clock: WallClock?
    /// Whether the state of the machine permits fetches. Unknown facts do not forbid them.
    package private(set) var isPermitted = true
    /// False: fetches are spread over the day whatever was learned. For comparison.
    package var usesHabit = true

    private var states = SideTable<FetchState>()
    private var windows = KeepAliveSchedule(lead: .zero)
    /// The number of fetches that are going on. Simulated ones do not count.
    private var running = 0
    private var runningByUser: [UserID: Int] = [:]
    /// Clients that wait for the end of another fetch of their user.
    private var held = SideTable<Held>()

    private struct Held: Sendable, Equatable {
        let user: UserID
        let since: Instant
    }

    package init(_ settings: Settings.Fetch) {
        self.settings = settings
    }

    package var isEmpty: Bool { states.isEmpty }

    package func contains(_ place: UInt32) -> Bool { states.contains(place) }

    /// The places with a state, in a deterministic order.
    package var places: [UInt32] { states.slots }

    package func state(at place: UInt32) -> FetchState? { states.contains(place) ? states[place] : nil }

    package func window(at place: UInt32) -> Window? {
        guard held.contains(place) else { return windows.window(place) }
        return Window(earliest: held[place].since, latest: held[place].since)
    }

    /// The next instant at which a fetch must begin.
    package var nextDeadline: Instant? { mayBegin ? windows.nextDeadline : nil }

    private var mayBegin: Bool { isPermitted && hasPlace }

    /// Whether another fetch may run beside those that are going on.
    package var hasPlace: Bool { running < max(1, settings.concurrent) }

    /// Whether a client waits for the end of another fetch of its user.
    package func isHeld(_ place: UInt32) -> Bool { held.contains(place) }

    /// Whether a user has a place for another fetch. No user has more than half of them, so that its slow
    /// clients do not stop the fetches of all others.
    package func hasPlace(for user: UserID) -> Bool {
        runningByUser[user, default: 0] < max(1, settings.concurrent / 2)
    }

    // MARK: Facts and settings

    package mutating func change(_ settings: Settings.Fetch, at now: Instant) {
        self.settings = settings
        replan(at: now) { _ in true }
    }

    package mutating func change(_ clock: WallClock, at now: Instant) {
        guard clock != self.clock else { return }
        self.clock = clock
        replan(at: now) { _ in true }
    }

    /// The network, memory or processors have become sufficient, or are not any more.
    package mutating func setPermitted(_ isPermitted: Bool, at now: Instant) {
        guard isPermitted != self.isPermitted else { return }
        self.isPermitted = isPermitted
        guard isPermitted else { return }
        // The moments that have passed are not made up for all at once.
        replan(at: now) { $0.latest < now }
    }

    private mutating func replan(at now: Instant, _ isAffected: (Window) -> Bool) {
        for place in states.slots {
            guard let window = window(at: place), isAffected(window) else { continue }
            plan(place, at: now)
        }
    }

    private mutating func plan(_ place: UInt32, at now: Instant) {
        let window = states[place].window(from: now, clock, usesHabit: usesHabit, settings)
        unplan(place)
        windows.set(place, to: window)
    }

    private mutating func unplan(_ place: UInt32) {
        windows.set(place, to: nil)
        held.remove(place)
    }

    // MARK: Clients

    /// Restores what was recorded of a client. Its next fetch is planned when it is in the background.
    package mutating func restore(_ state: FetchState, at place: UInt32) {
        states.insert(state, at: place)
    }

    /// The client has said how often it wants to fetch. `isWaiting`: it is in the background.
    package mutating func setInterval(
        _ interval: FetchInterval, at place: UInt32, isWaiting: Bool, at now: Instant
    ) {
        if !states.contains(place) {
            guard interval != .never else { return }
            states.insert(FetchState(interval: interval, leftForeground: now), at: place)
        }
        states[place].interval = interval
        setWaiting(isWaiting, at: place, at: now)
    }

    /// Its identifier has no owner any more.
    package mutating func remove(_ place: UInt32) {
        unplan(place)
        states.remove(place)
    }

    /// Whether the client is in the background, or can be launched there, and no fetch is going on.
    package mutating func setWaiting(_ isWaiting: Bool, at place: UInt32, at now: Instant) {
        guard states.contains(place) else { return }
        if isWaiting { plan(place, at: now) } else { unplan(place) }
    }

    /// The client was brought to the foreground.
    package mutating func noteOpening(of place: UInt32, at now: Instant) {
        guard states.contains(place) else { return }
        states[place].noteOpening(at: now, clock)
        unplan(place)
    }

    /// The client has left the foreground. Its next fetch is planned by `setWaiting`.
    package mutating func noteLeaving(of place: UInt32, at now: Instant) {
        guard states.contains(place) else { return }
        states[place].leftForeground = now
        unplan(place)
    }

    // MARK: Fetches

    /// Whether the machine must be woken for a fetch, if it is not awake anyway.
    package func isDue(at now: Instant) -> Bool { mayBegin && windows.isDue(at: now) }

    /// Removes one client from the plan that should fetch now, since the machine is awake.
    package mutating func popReady(at now: Instant) -> UInt32? { mayBegin ? windows.popBegun(at: now) : nil }

    /// A client that `popReady` has removed waits until another fetch of its user has ended.
    package mutating func hold(_ place: UInt32, of user: UserID, at now: Instant) {
        held.insert(Held(user: user, since: now), at: place)
    }

    /// Says of the fetch that is to begin next whether it is simulated: then nothing is learned from it but
    /// its instant, and it takes no place.
    package mutating func setSimulated(_ isSimulated: Bool, at place: UInt32, at now: Instant) {
        if isSimulated { makeState(at: place, at: now) }
        guard states.contains(place) else { return }
        states[place].isSimulated = isSimulated
    }

    private mutating func makeState(at place: UInt32, at now: Instant) {
        guard !states.contains(place) else { return }
        states.insert(FetchState(interval: .never, leftForeground: now), at: place)
    }

    private func isSimulated(_ place: UInt32) -> Bool {
        states.contains(place) && states[place].isSimulated
    }

    /// A fetch begins.
    package mutating func begin(_ place: UInt32, of user: UserID, at now: Instant) {
        makeState(at: place, at: now)
        resume(place, of: user)
        guard !isSimulated(place) else { return states[place].lastFetch = now }
        states[place].noteFetch(at: now, clock)
    }

    /// A client is launched for a fetch, which begins with its process.
    package mutating func noteLaunch(of place: UInt32, at now: Instant) {
        guard states.contains(place) else { return }
        unplan(place)
        states[place].lastFetch = now
    }

    /// A client that was launched for a fetch has failed before it began.
    package mutating func noteFailedLaunch(of place: UInt32) {
        guard states.contains(place), !isSimulated(place) else { return }
        states[place].score.addOverrun()
    }

    /// A fetch that the previous supervisor process has begun goes on.
    package mutating func resume(_ place: UInt32, of user: UserID) {
        unplan(place)
        guard !isSimulated(place) else { return }
        running += 1
        runningByUser[user, default: 0] += 1
    }

    /// A fetch has ended. nil: the client has not completed it, because its time was over or its process has
    /// ended.
    package mutating func end(
        _ place: UInt32, of user: UserID, _ result: FetchResult?, took: Duration, budget: Duration
    ) {
        guard leave(place, user) else { return }
        if let result {
            states[place].score.add(result, took: took, budget: budget)
        } else {
            states[place].score.addOverrun()
        }
    }

    /// A fetch of a client that was brought to the foreground has ended without a completion.
    package mutating func interrupt(_ place: UInt32, of user: UserID) {
        if leave(place, user) { states[place].score.addInterruption() }
    }

    /// A fetch has ended without a verdict on the client, such as when its user has quit it.
    package mutating func abandon(_ place: UInt32, of user: UserID) { _ = leave(place, user) }

    /// - Returns: whether the fetch counts for the client's score.
    private mutating func leave(_ place: UInt32, _ user: UserID) -> Bool {
        guard !isSimulated(place) else {
            states[place].isSimulated = false
            return false
        }
        running -= 1
        let rest = runningByUser[user, default: 1] - 1
        runningByUser[user] = rest > 0 ? rest : nil
        for place in held.slots where held[place].user == user {
            guard let held = held.remove(place) else { continue }
            windows.set(place, to: Window(earliest: held.since, latest: held.since))
        }
        return states.contains(place)
    }
}
