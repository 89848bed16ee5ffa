import NightbellCore
import Simulation
import Testing

/// The rules of fetches in small worlds, and the mistakes that these find.
@Suite("Fetches in small worlds")
struct FetchLifeTests {
    static let mutations: [Mutation] = [
        .ignoresFetchInterval, .fetchesInForeground, .fetchesOffline, .suspendsWhileFetching,
        .permitsEndlessFetches, .believesAnyFetch, .forgetsFetchers, .restoresWithoutFetches,
    ]
    private static let seeds = 0..<60 as Range<UInt64>

    @Test(
        "A mistake of the core is found",
        .enabled(if: Mutation.areCompiledIn, "mutations are in debug builds only"), arguments: mutations)
    func mutation(_ mutation: Mutation) throws {
        let found = try #require(
            firstViolation(of: FetchLife.self, seeds: Self.seeds, mutation), "\(mutation) is not found")
        print("mutation \(mutation.rawValue): seed \(found.seed), \(found.violation)")
    }

    @Test("Without a mistake they are clean, and everything happens in them")
    func clean() {
        var sum = FetchLife.Coverage()
        for seed in Self.seeds {
            var life = FetchLife(seed: seed)
            life.run(steps: stepsOfLives)
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
