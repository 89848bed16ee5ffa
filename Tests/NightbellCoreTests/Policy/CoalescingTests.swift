import NightbellCore
import Simulation
import Testing

/// Compares wake instants and handler runs of many clients with windows to one timer per client.
@Suite struct CoalescingTests {
    struct Result {
        var instants = 0
        var runs = 0
        var late: UInt64 = 0
        /// The count if each handler ran at the very end of its own timeout.
        var uncoalesced: Int64 = 0

        var instantsReduction: Double { Double(uncoalesced) / Double(instants) }
        var runsRatio: Double { Double(runs) / Double(uncoalesced) }
    }

    /// Clients asleep with nothing but their keep-alive handlers, on a virtual clock.
    private func simulate(_ timeouts: [Duration], hours: Int64) throws -> Result {
        var bench = Bench { $0.wakes.linger = .zero }
        var random = SplitMix64(seed: 1)
        var clients: [ClientID] = []
        let start = bench.now
        let end = start + .seconds(hours * 3_600)
        var result = Result()
        for timeout in timeouts {
            // They do not begin at the same moment.
            bench.now = bench.now + random.duration(upTo: .seconds(1))
            let client = try bench.register()
            bench.say(.enterBackground, from: client)
            bench.say(.setKeepAliveTimeout(timeout), from: client)
            sleep(&bench, [client])
            clients.append(client)
            result.uncoalesced += end.since(bench.now).nanoseconds / timeout.nanoseconds
        }
        while let deadline = bench.core.nextDeadline, deadline <= end {
            bench.now = max(bench.now, deadline)
            let actions = bench.turn(.timer)
            let woken = actions.compactMap { action in
                if case .notify(let client, .wake) = action { client } else { nil }
            }
            guard !woken.isEmpty else { continue }
            result.instants += 1
            result.runs += woken.count
            sleep(&bench, woken)
        }
        result.late = bench.core.counters[.keepAliveLate]
        return result
    }

    /// Puts clients to sleep at once, because this test does not depend on their time awake.
    private func sleep(_ bench: inout Bench, _ clients: [ClientID]) {
        for client in clients {
            let events: [Event] = [
                .message(.backgroundEntered, from: client, Bench.key),
                .message(.wakeDone(wakeID: .max), from: client, Bench.key),
            ]
            bench.actions.removeAll()
            for event in events { bench.core.handle(event, at: bench.now, into: &bench.actions) }
            for case .notify(_, .prepareToSuspend(let epoch, _)) in bench.actions.actions {
                bench.core.handle(
                    .message(.readyToSuspend(epoch: epoch, notIdle: []), from: client, Bench.key),
                    at: bench.now, into: &bench.actions)
                bench.core.handle(.frozen(client, epoch: epoch), at: bench.now, into: &bench.actions)
            }
        }
    }

    @Test func aThousandMixedTimeouts() throws {
        var random = SplitMix64(seed: 2)
        let timeouts = (0..<1_000).map { _ in
            Duration.milliseconds(Int64.random(in: 600_000...1_800_000, using: &random))
        }
        let result = try simulate(timeouts, hours: 8)
        report("600 to 1800 s, 8 h", result)
        #expect(result.late == 0)
        #expect(result.instantsReduction > 60)
        #expect(result.runsRatio < 1.08)
    }

    @Test func aThousandTimesTheSameTimeout() throws {
        let result = try simulate(Array(repeating: .seconds(600), count: 1_000), hours: 3)
        report("600 s for all, 3 h", result)
        #expect(result.late == 0)
        #expect(result.instantsReduction > 60)
        #expect(result.runsRatio < 1.01)
    }

    private func report(_ name: String, _ result: Result) {
        print(
            "keep-alive, 1000 clients, \(name): instants \(result.instants), runs \(result.runs), "
                + "instants_reduction \(result.instantsReduction), runs_ratio \(result.runsRatio)")
    }
}
