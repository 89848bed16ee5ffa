import NightbellCore
import Testing

/// Memory is only allocated for the figures that a client's first sleep needs.
@Suite("Counters of clients that were never woken")
struct UsualFiguresTests {
    private enum Life: CaseIterable {
        case suspended, hibernated, endedUnderPressure, crashed
    }

    @Test("The first statistics hold all counters until the first rest", arguments: Life.allCases)
    private func firstRest(_ life: Life) throws {
        var bench = Bench()
        bench.core.notesChanges = true
        let client = try live(life, &bench)
        let statistics = bench.core.statistics(of: client)
        let words = statistics.words
        #expect(words[0] != 0)
        for index in ClientStatistics.usualCount..<words.count {
            #expect(words[index] == 0, "figure \(index)")
        }
        let counters = bench.counters(client)
        switch life {
        case .suspended:
            #expect(counters[.suspensions] == 1)
        case .hibernated:
            #expect(counters[.hibernations] == 1 && words[2] != 0)
        case .endedUnderPressure:
            #expect(counters[.endedUnderPressure] == 1 && counters.asleepNanoseconds == 60_000_000_000)
            #expect(words[2] != 0 && words[3] != 0)
        case .crashed:
            #expect(counters[.crashes] == 1 && words[1] != 0)
        }
        // A core that recovers the client has the same counters.
        let registration = try #require(bench.core.registration(of: client))
        var old = RecoverySnapshot.Client(id: client, registration: registration, registeredAt: bench.now)
        old.state = (bench.core.row(of: client), statistics)
        old.presence = .absent
        if case .suspended = life { (old.presence, old.execution) = (.registered, .stopped) }
        var snapshot = RecoverySnapshot()
        snapshot.clients = [old]
        bench.core = try Supervision(
            settings: bench.core.settings, restoring: snapshot, at: bench.now, into: &bench.actions)
        var after = bench.counters(client)
        // The time asleep continues to increase.
        after.asleepNanoseconds = counters.asleepNanoseconds
        #expect(after == counters)
    }

    private func live(_ life: Life, _ bench: inout Bench) throws -> ClientID {
        let client = try bench.register(isLaunchable: true)
        _ = try bench.handOver(from: client, survives: true)
        switch life {
        case .suspended:
            bench.suspend(client)
        case .hibernated:
            hibernate(client, &bench)
        case .endedUnderPressure:
            bench.suspend(client)
            bench.pass(.seconds(60))
            bench.turn(.memoryPressure([ClientSize(client, bytes: 1)]))
            bench.turn(.ended(client, .failed))
        case .crashed:
            bench.turn(.ended(client, .failed))
        }
        return client
    }

    private func hibernate(_ client: ClientID, _ bench: inout Bench) {
        bench.say(.hibernate, from: client)
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        if bench.core.state(of: client) == .background { bench.command(.suspend, client) }
        bench.say(.readyToSuspend(epoch: bench.lastEpoch, notIdle: []), from: client)
        bench.turn(.ended(client, .failed))
    }
}
