import NightbellCore
import Simulation
import Testing

@Suite("Simulated worlds")
struct WorldTests {
    /// `NIGHTBELL_SEEDS=100000` runs that many worlds, `NIGHTBELL_SEEDS=4711...4711` those with these seeds.
    private static let seeds = Seeds.fromEnvironment(standard: 0...159)
    private static let steps = 400

    @Test("All invariants hold, and every kind of event occurs")
    func everythingHolds() {
        var tally = Tally()
        for seed in Self.seeds { tally.add(Run(seed: seed, steps: Self.steps)) }
        for run in tally.failures {
            #expect(run.violation == nil, "nightbell-sim --seed \(run.seed) --steps \(Self.steps) --trace")
        }
        guard Self.seeds.count >= 100 else { return }
        #expect(tally.missing.isEmpty, "a world in which this does not happen shows nothing")
    }

    @Test("A seed is reproducible", arguments: 1_000..<1_004 as Range<UInt64>)
    func sameSeed(_ seed: UInt64) {
        let first = Run(seed: seed, steps: Self.steps)
        let second = Run(seed: seed, steps: Self.steps)
        #expect(first.digest == second.digest && first.counters == second.counters)
        #expect(first.digest != Run(seed: seed + 1, steps: Self.steps).digest)
    }

    @Test("A world runs the given number of steps, and failures are listed in the order of their seeds")
    func tallies() throws {
        #expect(Run(seed: 3, steps: 50).steps == 50)
        var (one, other, tally) = (Tally(), Tally(), Tally())
        for seed in 0..<8 as Range<UInt64> {
            let run = Run(seed: seed, steps: 400, fault: .thawForgotten)
            if seed < 4 { other.add(run) } else { one.add(run) }
        }
        tally.add(one)
        tally.add(other)
        tally.keepFirstFailures(2)
        let expected = (other.failures + one.failures).map(\.seed).prefix(2)
        #expect(tally.failures.map(\.seed) == Array(expected) && expected.count == 2)
    }

    @Test("Names of counts are unique, because they are keys of one JSON object")
    func names() {
        let names = Tally().counts.map(\.name)
        #expect(Set(names).count == names.count)
    }

    @Test("Tracing does not change a world")
    func trace() {
        var lines: [String] = []
        let traced = Run(seed: 11, steps: Self.steps) { lines.append($0) }
        #expect(traced.digest == Run(seed: 11, steps: Self.steps).digest)
        #expect(lines.contains { $0.hasPrefix("step 17 at ") })
        #expect(
            lines.contains { $0.contains("says handOver") } && lines.contains { $0.contains("thaw client") })
    }

    @Test("Events with unknown names have no effect")
    func strangers() {
        var world = World(seed: 3)
        let before = world.core
        var actions = ActionBuffer()
        var core = before
        for _ in 0..<20_000 { core.handle(world.nonsense(), at: world.now, into: &actions) }
        #expect(core == before)
        let isQuiet = actions.actions.allSatisfy { action in
            if case .commandAnswer(.noSuchClient, _) = action { true } else { false }
        }
        #expect(isQuiet)
    }
}
