import NightbellCore
import Testing

/// Budgets count running time, keep-alive windows elapsed time.
@Suite("Sleep of the machine")
struct MachineSleepTests {
    private static let night = Duration.seconds(28_800)

    @Test func tasksAreNotChargedForIt() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        _ = try bench.beginTask(client)
        bench.pass(.seconds(100))
        let resumed = bench.turn(.machineSlept(total: Self.night), .timer)
        #expect(resumed.notices.isEmpty && resumed.kills.isEmpty)
        bench.say(.backgroundTimeRemaining, from: client)
        #expect(bench.answer == .backgroundTimeLeft(.seconds(80)))
        let warned = bench.pass(.seconds(75))
        #expect(warned.notices == [.backgroundTimeExpiring(remaining: .seconds(5))])
    }

    @Test func otherBudgetsAreNotEither() throws {
        var bench = Bench()
        let entering = try bench.register()
        bench.say(.enterBackground, from: entering)
        let preparing = try bench.register()
        bench.say(.enterBackground, from: preparing)
        bench.say(.backgroundEntered, from: preparing)
        let woken = try bench.register()
        bench.suspend(woken)
        bench.command(.wake, woken)
        let ending = try bench.register()
        bench.command(.quit, ending)
        bench.pass(.seconds(4))
        let resumed = bench.turn(.machineSlept(total: Self.night), .timer)
        #expect(resumed.overruns.isEmpty && resumed.kills.isEmpty)
        #expect(bench.core.state(of: preparing) == .suspending)
        #expect(bench.pass(.seconds(1)).overruns.count == 3)
        #expect(bench.pass(.seconds(5)).overruns.contains(.wake))
    }

    @Test func aKeepAliveWindowThatWasMissedIsServedOnceAndAtOnce() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        bench.suspend(client)
        bench.pass(.seconds(100))
        let wakes = bench.turn(.machineSlept(total: Self.night)).wakes
        #expect(wakes.map(\.reasons) == [.keepAlive])
        #expect(wakes.first?.asleepFor == .seconds(100) + Self.night)
        #expect(bench.counters(client)[.keepAliveRuns] == 1 && bench.counters(client)[.keepAliveLate] == 1)
        #expect(bench.pass(.seconds(500)).wakes.isEmpty)
    }

    @Test func aKeepAliveWindowComesNearerByIt() throws {
        var bench = Bench()
        let client = try bench.register()
        bench.say(.enterBackground, from: client)
        bench.say(.setKeepAliveTimeout(.seconds(600)), from: client)
        bench.suspend(client)
        let set = bench.now
        #expect(bench.turn(.machineSlept(total: .seconds(300))).isEmpty)
        #expect(bench.core.nextDeadline == set + .seconds(300) - .milliseconds(250))
        #expect(bench.pass(.seconds(300)).wakes.count == 1)
        #expect(bench.counters(client)[.keepAliveLate] == 0)
    }

    @Test func pingsGoByElapsedTime() throws {
        var bench = Bench()
        let client = try bench.register()
        var offer = SocketOffer(tag: .voip)
        offer.profile = 3
        guard case .success(let token) = bench.handOver(offer, from: client) else {
            throw Bench.Unexpected.notAdopted
        }
        bench.suspend(client)
        let terms = PingTerms(
            earliest: .seconds(90), latest: .seconds(100), answerWithin: nil, repeatAfter: .seconds(1),
            repetitions: 0)
        bench.turn(.offloadBegan(token, terms, isAwaitingAnswer: false))
        bench.pass(.seconds(10))
        let resumed = bench.turn(.machineSlept(total: .seconds(95)), .timer)
        #expect(resumed.contains(.ping(token, again: false)))
    }
}
