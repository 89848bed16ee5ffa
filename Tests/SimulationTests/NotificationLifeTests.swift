import NightbellCore
import Simulation
import Testing

/// The rules of notifications in small worlds.
@Suite("Notifications in small worlds")
struct NotificationLifeTests {
    private static let seeds = 0..<200 as Range<UInt64>

    @Test("They are clean, and everything happens in them")
    func clean() {
        var sum = NotificationLife.Coverage()
        for seed in Self.seeds {
            var life = NotificationLife(seed: seed)
            life.run(steps: 400)
            #expect(life.violation == nil, "seed \(seed)")
            sum.shown += life.coverage.shown
            sum.told += life.coverage.told
            sum.dropped += life.coverage.dropped
            sum.activations += life.coverage.activations
            sum.launches += life.coverage.launches
            sum.afterQuit += life.coverage.afterQuit
            sum.clockChanges += life.coverage.clockChanges
            sum.deaths += life.coverage.deaths
            sum.lostReports += life.coverage.lostReports
            sum.renewals += life.coverage.renewals
            sum.zoneChanges += life.coverage.zoneChanges
            sum.lostClicks += life.coverage.lostClicks
            sum.lateReports += life.coverage.lateReports
            sum.closes += life.coverage.closes
            sum.repeated += life.coverage.repeated
        }
        print(sum)
        #expect(sum.shown > 1_000 && sum.told > 1_000 && sum.dropped > 100 && sum.activations > 100)
        #expect(sum.launches > 100 && sum.afterQuit > 10 && sum.clockChanges > 100)
        #expect(sum.deaths > 100 && sum.lostReports > 10 && sum.renewals > 100)
        #expect(sum.zoneChanges > 100 && sum.lostClicks > 10 && sum.lateReports > 100)
        #expect(sum.closes > 100 && sum.repeated > 100)
    }
}
