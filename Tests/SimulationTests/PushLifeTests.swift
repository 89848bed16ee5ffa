import NightbellCore
import Simulation
import Testing

/// The rules of pushes in small worlds.
@Suite("Pushes in small worlds")
struct PushLifeTests {
    private static let seeds = 0..<200 as Range<UInt64>

    @Test("They are clean, and everything happens in them")
    func clean() {
        var sum = PushLife.Coverage()
        for seed in Self.seeds {
            var life = PushLife(seed: seed)
            life.run(steps: 400)
            #expect(life.violation == nil, "seed \(seed)")
            sum.told += life.coverage.told
            sum.merged += life.coverage.merged
            sum.held += life.coverage.held
            sum.launches += life.coverage.launches
            sum.completions += life.coverage.completions
            sum.terminations += life.coverage.terminations
            sum.toldAgain += life.coverage.toldAgain
            sum.deaths += life.coverage.deaths
        }
        print(sum)
        #expect(sum.told > 1_000 && sum.merged > 100 && sum.held > 100 && sum.completions > 100)
        #expect(sum.launches > 100 && sum.terminations > 20 && sum.toldAgain > 20 && sum.deaths > 100)
    }
}
