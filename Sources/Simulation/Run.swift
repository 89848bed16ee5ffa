package import NightbellCore

/// The result of one world, and of the small ones of its seed in which clients fetch, observe and are told of
/// pushes.
package struct Run: Sendable {
    package var seed: UInt64
    /// The steps that it ran, without those of its end.
    package var steps: Int
    package var violation: Violation?
    package var counters: Counters
    package var coverage: Coverage
    package var digest: Digest

    /// A small world has so many times fewer steps, each of which is longer.
    private static let smallness = 10

    /// Makes the worlds of `seed` and runs them, the first one for `steps` steps, or until the first
    /// violation.
    ///
    /// A mistake of the edge is made in the first one only.
    ///
    /// - Parameter narrator: told each step, event and action of all of them.
    package init(
        seed: UInt64, steps: Int, mutation: Mutation? = nil, fault: Fault? = nil,
        narrator: ((String) -> Void)? = nil
    ) {
        var world = World(seed: seed, mutation: mutation, fault: fault, narrator: narrator)
        while world.steps < steps, world.violations.isEmpty { world.step() }
        self.steps = world.steps
        world.finish()
        self.seed = seed
        violation = world.violations.first
        counters = world.totals
        coverage = world.coverage
        digest = world.digest
        guard fault == nil, violation == nil else { return }
        func life<Of: Life>(_: Of.Type, _ coverage: inout UInt64, _ count: (Of) -> Int) {
            guard violation == nil else { return }
            narrator?("\(Of.self)")
            var life = Of(seed: seed, mutation: mutation, narrator: narrator)
            life.run(steps: steps / Self.smallness)
            coverage = UInt64(count(life))
            violation = life.violation
        }
        life(FetchLife.self, &coverage.fetches) { $0.coverage.fetches }
        life(ObservationLife.self, &coverage.occurrences) { $0.coverage.occurrences }
        life(PushLife.self, &coverage.pushes) { $0.coverage.told }
        life(NotificationLife.self, &coverage.notifications) { $0.coverage.shown + $0.coverage.told }
    }
}

/// The results of many worlds.
package struct Tally: Sendable {
    package private(set) var worlds = 0
    package private(set) var steps = 0
    package private(set) var counters = Counters()
    package private(set) var coverage = Coverage()
    /// The sum over all worlds, independent of their order.
    package private(set) var digest: UInt64 = 0
    package private(set) var failures: [Run] = []

    package init() {}

    package mutating func add(_ run: Run) {
        worlds += 1
        steps += run.steps
        counters += run.counters
        coverage += run.coverage
        digest &+= run.digest.value
        if run.violation != nil { failures.append(run) }
    }

    package mutating func add(_ other: Tally) {
        worlds += other.worlds
        steps += other.steps
        counters += other.counters
        coverage += other.coverage
        digest &+= other.digest
        failures += other.failures
    }

    /// Keeps the failures with the lowest seeds: the order in which worlds finish is random.
    package mutating func keepFirstFailures(_ count: Int) {
        failures = Array(failures.sorted { $0.seed < $1.seed }.prefix(count))
    }

    /// Everything that was counted, by name.
    package var counts: [(name: String, count: UInt64)] {
        [Mirror(reflecting: counters), Mirror(reflecting: coverage)].flatMap { mirror in
            mirror.children.compactMap { name, value in
                guard let name, let count = value as? UInt64 else { return nil }
                return (name, count)
            }
        }
    }

    /// The counts that are zero: a run without one of these events proves little.
    package var missing: [String] { counts.filter { $0.count == 0 }.map(\.name) }
}
