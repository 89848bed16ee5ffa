import NightbellCore
import Simulation
import Testing

/// The scheduler of fetches, with drawn habits.
@Suite("Moments of fetches")
struct FetchWorldTests {
    private func tally(_ policy: FetchWorld.Policy, seed: UInt64 = 0, clients: Int = 25, days: Int = 8)
        -> FetchTally
    {
        var world = FetchWorld(seed: seed, clients: clients, days: days, policy: policy)
        world.run()
        return world.tally
    }

    @Test("With habits most openings find fresh data; at equal intervals a quarter do")
    func learned() {
        let learned = tally(.learned)
        let unlearned = tally(.unlearned)
        #expect(learned.openings.all > 200)
        // The targets are for 200 clients and 14 days.
        #expect(learned.openings.share > 0.8)
        #expect(learned.openings.share > 2 * unlearned.openings.share)
        #expect(learned.fetchesPerDay(percentile: 50) <= 13)
    }

    @Test("No fetch is sooner than permitted, or at a bad time", arguments: 0..<4 as Range<UInt64>)
    func floor(_ seed: UInt64) {
        for policy in [FetchWorld.Policy.learned, .unlearned] {
            let tally = tally(policy, seed: seed, clients: 12, days: 6)
            #expect(tally.belowFloor == 0 && tally.illTimed == 0)
        }
    }

    @Test("A machine is hardly woken for fetches alone")
    func instants() {
        let others = tally(.none).otherInstants
        #expect(Double(tally(.learned).extraInstants) < 0.1 * Double(others))
    }

    @Test("The same seed gives the same result")
    func repeats() {
        #expect(tally(.learned, clients: 5, days: 6) == tally(.learned, clients: 5, days: 6))
        #expect(tally(.learned, clients: 5, days: 6) != tally(.learned, seed: 1, clients: 5, days: 6))
    }
}
