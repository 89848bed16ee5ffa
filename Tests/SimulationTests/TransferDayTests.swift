import NightbellCore
import Simulation
import Testing

/// The plan of transfers that can wait.
@Suite("A day of transfers that can wait")
struct TransferDayTests {
    private func tally(
        _ policy: TransferDay.Policy = .planned, seed: UInt64 = 0, days: Int = 1, mutation: Mutation? = nil
    ) -> TransferTally {
        var day = TransferDay(seed: seed, clients: 20, days: days, policy, mutation: mutation)
        day.run()
        #expect(day.violation == nil, "seed \(seed)")
        return day.tally
    }

    @Test(
        "In 24 hours no byte is moved in a bad moment, no good one is left unused, and each client is told in time",
        arguments: 0..<6 as Range<UInt64>)
    func planned(_ seed: UInt64) {
        let tally = tally(seed: seed)
        #expect(tally.badBytes == 0 && tally.idleSeconds == 0 && tally.goodBytes > 1e9)
        #expect(tally.goodShare > 0.4 && tally.goodShare < 0.9)
        #expect(tally.ends > 20 && tally.told == tally.ends && tally.late == 0)
        #expect(tally.issues == 5 && tally.dueIssues == 5)
    }

    @Test(
        "The machine is hardly woken for ends alone; at once it would be, and bytes would be moved at any time"
    )
    func comparison() {
        let planned = tally(days: 4)
        let atOnce = tally(.atOnce, days: 4)
        #expect(planned.asked == atOnce.asked && planned.launches > 0)
        #expect(planned.extraShare <= 0.01 && atOnce.extraShare > 0.03)
        #expect(planned.badShare == 0 && atOnce.badShare > 0.1)
        #expect(planned.finished * 100 >= planned.asked * 99)
    }

    @Test("Clients that are told at once, or alone, are found")
    func mistakes() {
        #expect(tally().extraInstants == 0)
        #expect(tally(mutation: .hurriesDiscretionaryTransfers).extraInstants > 10)
        #expect(tally(mutation: .holdsDiscretionaryTransfers).extraInstants > 2)
    }

    @Test("The same seed gives the same result")
    func repeats() {
        #expect(tally(seed: 3) == tally(seed: 3))
        #expect(tally(seed: 3) != tally(seed: 4))
    }
}
