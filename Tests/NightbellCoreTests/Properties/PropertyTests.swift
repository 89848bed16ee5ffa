import NightbellCore
import Testing

@Suite("Random worlds")
struct PropertyTests {
    /// `NIGHTBELL_SEEDS=100000` runs that many worlds, `NIGHTBELL_SEEDS=4711...4711` those with these seeds.
    private static let seeds = Seeds.fromEnvironment(standard: 0...119)
    private static let steps = 400

    /// Small numbers, so that every limit is met within minutes of the worlds' time.
    private static let settings: Settings = {
        var settings = Settings()
        settings.keepAlive.minimumTimeout = .seconds(2)
        settings.budgets.backgroundTasks = .seconds(30)
        settings.wakes.limit = 5
        settings.wakes.period = .seconds(30)
        settings.wakes.limitPerUser = 40
        settings.wakes.lingerMaximum = .seconds(4)
        settings.quotas.socketsPerClient = 8
        settings.quotas.socketsPerUser = 20
        settings.quotas.clientsPerUser = 3
        return settings
    }()

    private func run(_ seed: UInt64) -> World {
        var world = World(seed: seed, settings: Self.settings)
        for _ in 0..<Self.steps where world.failures.isEmpty { world.step() }
        if world.failures.isEmpty { world.end() }
        return world
    }

    @Test func nothingIsLostLateOrLeaked() {
        var sum = Counters()
        for seed in Self.seeds {
            let world = run(seed)
            #expect(world.failures.isEmpty, "seed \(seed): \(world.failures.prefix(3))")
            guard world.failures.isEmpty else { return }
            let counters = world.core.counters
            sum.wakesSocket += counters.wakesSocket
            sum.wakesKeepAlive += counters.wakesKeepAlive
            sum.wakesClientMessage += counters.wakesClientMessage
            sum.suspensionsForced += counters.suspensionsForced
            sum.suspensionsFailed += counters.suspensionsFailed
            sum.suspensionsCancelled += counters.suspensionsCancelled
            sum.overrunsWake += counters.overrunsWake
            sum.overrunsEnteringBackground += counters.overrunsEnteringBackground
            sum.overrunsBackgroundTasks += counters.overrunsBackgroundTasks
            sum.overrunsTermination += counters.overrunsTermination
            sum.wakeLimitExceeded += counters.wakeLimitExceeded
        }
        // A world in which these do not happen shows nothing.
        for (what, count) in Mirror(reflecting: sum).children {
            guard let count = count as? UInt64, let what, Self.mustHappen.contains(what) else { continue }
            #expect(count > 0, "\(what) never happened")
        }
    }

    private static let mustHappen: Set<String> = [
        "wakesSocket", "wakesKeepAlive", "wakesClientMessage", "suspensionsForced", "suspensionsFailed",
        "suspensionsCancelled", "overrunsWake", "overrunsEnteringBackground", "overrunsBackgroundTasks",
        "overrunsTermination", "wakeLimitExceeded",
    ]

    @Test(arguments: 1_000..<1_010 as Range<UInt64>)
    func theSameSeedGivesTheSameActions(_ seed: UInt64) {
        #expect(run(seed).history == run(seed).history)
    }

    @Test(arguments: 2_000..<2_010 as Range<UInt64>)
    func replayingTheEventsGivesTheSameActions(_ seed: UInt64) {
        let world = run(seed)
        var core = Supervision(settings: Self.settings)
        var actions = ActionBuffer()
        var history: [Action] = []
        for (events, now) in world.log {
            actions.removeAll()
            for event in events { core.handle(event, at: now, into: &actions) }
            core.endTurn(at: now, into: &actions)
            history += actions.actions
        }
        #expect(history == world.history)
        #expect(core.counters == world.core.counters)
    }

    /// Made-up names alone, in every event that takes one: nothing may come of them.
    @Test func strangersChangeNothing() {
        var world = World(seed: 3, settings: Self.settings)
        let before = world.core.counters
        for _ in 0..<20_000 { world.turn([world.nonsense()]) }
        #expect(world.core.counters == before && world.failures.isEmpty)
        #expect(
            world.history.allSatisfy { action in
                if case .commandAnswer(.noSuchClient, _) = action { true } else { false }
            })
    }
}
