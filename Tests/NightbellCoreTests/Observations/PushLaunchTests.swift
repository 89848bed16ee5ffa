import NightbellCore
import Testing

@Suite("Launches for pushes")
struct PushLaunchTests {
    private func report(_ number: UInt64, _ urgency: PushUrgency?, _ bench: Bench, _ client: ClientID) throws
        -> Event
    {
        let identifier = try #require(bench.core.identifier(of: client))
        let user = try #require(bench.core.owner(of: identifier)?.user)
        return .fact(.pushes(WaitingPushes(of: user, identifier, number: number, urgency: urgency)))
    }

    /// A client without a process. It is to be launched for a push of the least urgency when memory is not short
    /// any more.
    private func waiting(_ bench: inout Bench) throws -> ClientID {
        let client = try bench.register(modes: [], isLaunchable: true)
        bench.say(.observe(name: "pushes", .pushes), from: client)
        bench.suspend(client)
        bench.turn(.ended(client, .failed))
        bench.turn(.memoryPressure([]))
        let actions = bench.turn(try report(1, .veryLow, bench, client))
        #expect(!actions.contains(.launch(client)))
        return client
    }

    @Test func aLaunchThatWaitsBegins() throws {
        var bench = Bench()
        let client = try waiting(&bench)
        #expect(bench.pass(.seconds(60)).contains(.launch(client)))
    }

    @Test func aLaunchThatWaitsIsWithdrawnWhenItsMomentHasPassed() throws {
        var bench = Bench()
        let client = try waiting(&bench)
        bench.turn(.fact(.power(isOnBattery: true)))
        #expect(!bench.pass(.seconds(600)).contains(.launch(client)))
        #expect(bench.turn(.fact(.power(isOnBattery: false))).contains(.launch(client)))
    }

    @Test func aLaunchThatWaitsIsWithdrawnWhenTheUrgentPushHasGone() throws {
        var bench = Bench()
        let client = try waiting(&bench)
        bench.turn(try report(2, .high, bench, client), .fact(.power(isOnBattery: true)))
        bench.turn(try report(2, .veryLow, bench, client))
        #expect(!bench.pass(.seconds(600)).contains(.launch(client)))
        #expect(bench.turn(try report(3, .high, bench, client)).contains(.launch(client)))
    }
}
