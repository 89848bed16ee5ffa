import NightbellCore
import Simulation
import Testing

/// The rules of fetches in small worlds.
@Suite("Fetches in small worlds")
struct FetchLifeTests {
    private static let seeds = 0..<200 as Range<UInt64>

    @Test("They are clean, and everything happens in them")
    func clean() {
        var sum = FetchLife.Coverage()
        for seed in Self.seeds {
            var life = FetchLife(seed: seed)
            life.run(steps: 400)
            #expect(life.violation == nil, "seed \(seed)")
            sum.fetches += life.coverage.fetches
            sum.launches += life.coverage.launches
            sum.completions += life.coverage.completions
            sum.terminations += life.coverage.terminations
            sum.deaths += life.coverage.deaths
            sum.continued += life.coverage.continued
        }
        print(sum)
        #expect(sum.fetches > 100 && sum.launches > 20 && sum.completions > 50)
        #expect(sum.terminations > 10 && sum.deaths > 100 && sum.continued > 0)
    }
}
