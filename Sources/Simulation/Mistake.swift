package import NightbellCore

/// A mistake made on purpose, of the core or of the edge. The invariants must find it.
package enum Mistake: Sendable, Hashable {
    case core(Mutation)
    case edge(Fault)

    /// Those of the edge, and those of the core where they are compiled in.
    package static var all: [Mistake] {
        (Mutation.areCompiledIn ? Mutation.allCases.map(Mistake.core) : [])
            + Fault.allCases.map(Mistake.edge)
    }

    package var name: String {
        switch self {
        case .core(let mutation): mutation.rawValue
        case .edge(let fault): fault.rawValue
        }
    }

    /// The first violation that a mistake leads to.
    package struct Finding: Sendable, Equatable {
        package let seed: UInt64
        package let violation: Violation
    }

    /// Some mistakes only show if the supervisor ends at the right moment.
    private static let seeds = 0..<1_200 as Range<UInt64>
    private static let steps = 600
    private static let seedsOfLives = 0..<200 as Range<UInt64>
    private static let stepsOfLives = 400

    private static var lives: [any Life.Type] {
        [FetchLife.self, ObservationLife.self, PushLife.self, NotificationLife.self]
    }

    /// Makes worlds with this mistake until one violates an invariant. nil: none does.
    package func find() -> Finding? {
        guard case .core(let mutation) = self,
            let life = Self.lives.first(where: { $0.mutations.contains(mutation) })
        else { return findInWorlds() }
        return life.find(mutation, Self.seedsOfLives, steps: Self.stepsOfLives)
    }

    private func findInWorlds() -> Finding? {
        for seed in Self.seeds {
            let run =
                switch self {
                case .core(let mutation): Run(seed: seed, steps: Self.steps, mutation: mutation)
                case .edge(let fault): Run(seed: seed, steps: Self.steps, fault: fault)
                }
            if let violation = run.violation { return Finding(seed: seed, violation: violation) }
        }
        return nil
    }
}

extension Life {
    fileprivate static func find(
        _ mutation: Mutation, _ seeds: Range<UInt64>, steps: Int
    ) -> Mistake.Finding? {
        for seed in seeds {
            var life = Self(seed: seed, mutation: mutation, narrator: nil)
            life.run(steps: steps)
            if let violation = life.violation { return Mistake.Finding(seed: seed, violation: violation) }
        }
        return nil
    }
}
