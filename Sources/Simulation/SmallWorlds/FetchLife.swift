package import NightbellCore

/// The rules of fetches alone: clients that fetch, complete it or do not, are opened, crash and are quit, a
/// network that goes down, and a supervisor that dies between two turns. `FetchWorld` measures how good the
/// moments are; this finds mistakes.
package struct FetchLife: Life {
    package static let mutations: [Mutation] = [
        .ignoresFetchInterval, .fetchesInForeground, .fetchesOffline, .suspendsWhileFetching,
        .permitsEndlessFetches, .believesAnyFetch, .forgetsFetchers, .restoresWithoutFetches,
    ]

    package var world: SmallWorld
    package private(set) var coverage = Coverage()

    package struct Coverage: Sendable, Equatable {
        package var fetches = 0
        package var launches = 0
        package var completions = 0
        package var terminations = 0
        package var deaths = 0
        package var continued = 0

        package init() {}
    }

    /// A client's fetches, by the rules.
    private struct Fetcher {
        var interval: FetchInterval?
        var isLaunchedForFetch = false
        var fetch: (wakeID: UInt64, until: Instant)?
        /// When the last fetch began, or it last left the foreground.
        var floorBase: Instant
        /// When it completes the fetch that is going on.
        var completesAt: Instant?
    }

    /// By client.
    private var fetchers: [Fetcher]
    private var network: Bool?

    package init(seed: UInt64, mutation: Mutation?, narrator: ((String) -> Void)?) {
        var settings = Settings()
        settings.launches.relaunches = 200
        let clients = SmallWorld.registrations([.fetch, .fetch, .fetch])
        let world = SmallWorld(
            seed: seed, .fetches, settings, clients: clients, mutation: mutation, narrator: narrator)
        fetchers = clients.map { _ in Fetcher(floorBase: world.now) }
        self.world = world
    }

    package var initialFacts: [Event] { [.fact(.wallClock(offset: .seconds(1_750_000_000)))] }

    // MARK: Chance

    package mutating func step() {
        passTime(upTo: .seconds(1_200), fetchers.map(\.completesAt))
        turn([])
        for index in fetchers.indices {
            if let instant = fetchers[index].completesAt, instant <= world.now { complete(index) }
        }
        if world.random.once(in: 3) { happen(world.random.below(fetchers.count)) }
        if world.random.once(in: 12) {
            network = world.random.once(in: 4) ? nil : world.random.once(in: 2)
            turn([.fact(.network(network.map { NetworkFact(fingerprint: 1, isUp: $0) }))])
        }
        if world.random.once(in: 20) {
            die()
            checkContinued()
        }
    }

    private mutating func complete(_ index: Int) {
        fetchers[index].completesAt = nil
        guard let fetch = fetchers[index].fetch else { return }
        let result = FetchResult.allCases[world.random.below(FetchResult.allCases.count)]
        say(.fetchDone(wakeID: fetch.wakeID, result), index)
    }

    private mutating func happen(_ index: Int) {
        guard let id = world.clients[index].id else { return register(index) }
        switch world.random.below(16) {
        case 0...3:
            if world.clients[index].isAsleep { command(.wake, id, index) }
            say(world.clients[index].isForeground ? .enterBackground : .enterForeground, index)
        case 4...6:
            if world.clients[index].isForeground { say(.enterBackground, index) }
        case 7, 8:
            let intervals: [FetchInterval] = [
                .minimum, .atLeast(.seconds(3_600)), .atLeast(.seconds(5_400)), .never,
            ]
            say(.setMinimumFetchInterval(intervals[world.random.below(intervals.count)]), index)
        case 9...11:
            // A fetch that it was not told of.
            say(.fetchDone(wakeID: 1_000_000, .newData), index)
        case 12, 13:
            if world.clients[index].isAlive { turn([.ended(id, .failed)]) }
        case 14:
            if world.random.once(in: 3) { command(.quit, id, index) }
        default:
            // The user does nothing for a while.
            break
        }
    }

    // MARK: Rules

    package mutating func note(_ action: Action, of index: Int) {
        switch action {
        case .freeze:
            world.require(
                fetchers[index].fetch == nil, "\(world.name(index)) is suspended while it fetches")
        case .kill(_, .fetchOverran):
            coverage.terminations += 1
        case .forget:
            let wants = fetchers[index].interval.map { $0 != .never } ?? false
            let mayGo = world.clients[index].isQuit || world.clients[index].hasGivenUp || !wants
            world.require(mayGo, "\(world.name(index)) is forgotten, and wants to fetch")
        case .trace(_, .launching(let reasons)) where reasons.contains(.fetch):
            coverage.launches += 1
            checkMoment(index)
            fetchers[index].isLaunchedForFetch = true
        case .trace(let id, .fetchEnded(let result)):
            endFetch(id, index, result)
        default:
            break
        }
    }

    private mutating func endFetch(_ id: ClientID, _ index: Int, _ result: FetchResult?) {
        guard let fetch = fetchers[index].fetch.take() else { return }
        fetchers[index].completesAt = nil
        if result != nil { coverage.completions += 1 }
        let client = world.clients[index]
        guard result == nil, world.now >= fetch.until, client.isAlive, !client.isForeground, !client.isQuit
        else { return }
        world.require(
            world.actions.actions.contains(.kill(id, .fetchOverran)),
            "\(world.name(index)) does not complete a fetch, and goes on")
    }

    /// One that has declared nothing yet has nothing to leave.
    package mutating func begin(_ index: Int) { world.clients[index].isForeground = false }

    package mutating func end(_ index: Int) {
        if world.clients[index].isForeground { fetchers[index].floorBase = world.now }
        fetchers[index].fetch = nil
        fetchers[index].completesAt = nil
        fetchers[index].isLaunchedForFetch = false
    }

    package mutating func take(_ answer: Answer, to message: ClientMessage, _ index: Int) {
        switch message {
        case .enterBackground where answer == .done && world.clients[index].isForeground:
            fetchers[index].floorBase = max(fetchers[index].floorBase, world.now)
        case .setMinimumFetchInterval(let interval):
            world.require(answer == .done, "\(world.name(index)) cannot set an interval: \(answer)")
            if fetchers[index].interval == nil, interval != .never { fetchers[index].floorBase = world.now }
            if fetchers[index].interval != nil || interval != .never { fetchers[index].interval = interval }
        case .fetchDone(1_000_000, _):
            world.require(
                answer == .refused(.noFetch),
                "\(world.name(index)) completes a fetch that it was not told of")
        case .fetchDone:
            world.require(answer == .done, "\(world.name(index)) cannot complete its fetch: \(answer)")
        default:
            break
        }
    }

    package mutating func take(_ wake: Wake, _ index: Int) -> Bool {
        guard wake.reasons.contains(.fetch) else { return true }
        coverage.fetches += 1
        world.require(wake.fetchBudget == world.settings.budgets.fetch, "a fetch has another budget")
        world.require(fetchers[index].fetch == nil, "\(world.name(index)) fetches already")
        if !fetchers[index].isLaunchedForFetch { checkMoment(index) }
        fetchers[index].isLaunchedForFetch = false
        fetchers[index].fetch = (wake.wakeID, world.now + world.settings.budgets.fetch)
        fetchers[index].floorBase = world.now
        let isSlow = world.random.once(in: 4)
        fetchers[index].completesAt =
            isSlow ? nil : world.now + world.random.duration(upTo: .seconds(29))
        return true
    }

    private mutating func checkMoment(_ index: Int) {
        let name = world.name(index)
        world.require(!world.clients[index].isForeground, "\(name) is fetched in the foreground")
        world.require(network ?? true, "\(name) is fetched without a network")
        var floor = world.settings.fetch.minimumInterval
        switch fetchers[index].interval {
        case .atLeast(let interval)?: floor = max(floor, interval)
        case .minimum?: break
        case .never?, nil: world.require(false, "\(name) is fetched, and does not want to be")
        }
        world.require(
            world.now.since(fetchers[index].floorBase) >= floor, "\(name) is fetched before its floor")
    }

    package mutating func check() {
        for index in fetchers.indices {
            guard let fetch = fetchers[index].fetch else { continue }
            world.require(world.now < fetch.until, "\(world.name(index)) fetches for too long")
        }
    }

    /// The next one has not been told of the network yet.
    package mutating func loseSupervisor() {
        coverage.deaths += 1
        network = nil
    }

    private mutating func checkContinued() {
        for (index, client) in world.clients.enumerated() {
            guard let id = client.id, let view = world.core.view(of: id, at: world.now) else { continue }
            let interval = view.fetch?.state.interval
            world.require(
                interval == fetchers[index].interval, "\(world.name(index)) has lost its interval")
            let isRunning = view.fetch?.isRunning ?? false
            if fetchers[index].fetch != nil { coverage.continued += 1 }
            world.require(
                isRunning == (fetchers[index].fetch != nil), "\(world.name(index)) has lost its fetch")
        }
    }
}
