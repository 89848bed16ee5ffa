import NightbellCore
import Simulation

let stepsOfLives = 400

/// The first violated rule in the small worlds of some seeds.
func firstViolation<Of: Life>(
    of _: Of.Type, seeds: Range<UInt64>, _ mutation: Mutation? = nil
) -> (seed: UInt64, violation: Violation)? {
    for seed in seeds {
        var life = Of(seed: seed, mutation: mutation)
        life.run(steps: stepsOfLives)
        if let violation = life.violation { return (seed, violation) }
    }
    return nil
}
