import NightbellCore
import Simulation
import Testing

/// The rules of observations in small worlds.
@Suite("Observations in small worlds")
struct ObservationLifeTests {
    private static let seeds = 0..<200 as Range<UInt64>

    @Test("They are clean, and everything happens in them")
    func clean() {
        var sum = ObservationLife.Coverage()
        for seed in Self.seeds {
            var life = ObservationLife(seed: seed)
            life.run(steps: 400)
            #expect(life.violation == nil, "seed \(seed)")
            sum.occurrences += life.coverage.occurrences
            sum.wakes += life.coverage.wakes
            sum.launches += life.coverage.launches
            sum.afterQuit += life.coverage.afterQuit
            sum.deaths += life.coverage.deaths
            sum.untoldAtDeath += life.coverage.untoldAtDeath
            sum.refusals += life.coverage.refusals
            sum.held += life.coverage.held
            sum.toldTogether += life.coverage.toldTogether
        }
        print(sum)
        #expect(sum.occurrences > 1_000 && sum.launches > 100 && sum.afterQuit > 10)
        #expect(sum.deaths > 100 && sum.untoldAtDeath > 10 && sum.refusals > 100)
        #expect(sum.held > 10 && sum.toldTogether > 10)
    }
}
