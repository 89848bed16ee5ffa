import NightbellCore
import Testing

/// A client is told again of messages that it has not taken from the push service.
@Suite("Pushes that are told again")
struct PushAgainTests {
    /// The push service reports, again or anew.
    private func report(_ number: UInt64, _ urgency: PushUrgency?, _ bench: inout Bench, _ client: ClientID)
        throws -> [Action]
    {
        let identifier = try #require(bench.core.identifier(of: client))
        let waiting = WaitingPushes(of: 1_000, identifier, number: number, urgency: urgency)
        return bench.turn(.fact(.pushes(waiting)))
    }

    /// A client in the foreground that has been told of a push.
    private func told(_ bench: inout Bench) throws -> ClientID {
        let client = try bench.register(modes: [], isLaunchable: true)
        bench.say(.observe(name: "pushes", .pushes), from: client)
        #expect(try report(1, .normal, &bench, client).wakes.map(\.reasons) == [.push])
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        return client
    }

    /// It asks for its address, as each process does.
    private func start(_ bench: inout Bench, _ client: ClientID) throws -> [Wake] {
        let identifier = try #require(bench.core.identifier(of: client))
        var registration = Registration(identifier: identifier, user: 1_000, modes: [])
        registration.isLaunchable = true
        let isLaunched = bench.core.state(of: client) == .launching
        let wakes = bench.turn(
            isLaunched
                ? .rejoined(client, registration, Bench.key) : .registration(registration, Bench.key)
        ).wakes
        bench.say(.observe(name: "pushes", .pushes), from: client)
        #expect(bench.answer == .done)
        return wakes
    }

    @Test func aClientInTheForegroundThatTakesTooLongIsToldAgain() throws {
        var bench = Bench()
        let client = try told(&bench)
        #expect(bench.pass(.seconds(31)).kills.isEmpty)
        bench.say(.pushDone(wakeID: bench.lastWakeID, .failed), from: client)
        #expect(bench.answer == .refused(.noPush))
        #expect(try report(1, .normal, &bench, client).wakes.isEmpty)
        #expect(bench.pass(.seconds(59) - .nanoseconds(1)).wakes.isEmpty)
        #expect(bench.pass(.nanoseconds(1)).wakes.map(\.reasons) == [.push])
    }

    @Test func aClientInTheForegroundThatWasOnlySlowIsNotToldAgain() throws {
        var bench = Bench()
        let client = try told(&bench)
        bench.pass(.seconds(31))
        #expect(try report(1, nil, &bench, client).wakes.isEmpty)
        #expect(bench.pass(.seconds(600)).wakes.isEmpty)
    }

    @Test func aClientThatTakesTooLongAndDiesIsLaunched() throws {
        var bench = Bench()
        let client = try told(&bench)
        bench.pass(.seconds(31))
        bench.turn(.ended(client, .failed))
        #expect(!bench.pass(.seconds(59) - .nanoseconds(1)).contains(.launch(client)))
        #expect(bench.pass(.nanoseconds(1)).contains(.launch(client)))
        #expect(try start(&bench, client).map(\.reasons) == [.push])
    }

    @Test func anotherProcessIsToldOfWhatTheLastOneHasLeft() throws {
        var bench = Bench()
        let client = try told(&bench)
        bench.say(.pushDone(wakeID: bench.lastWakeID, .newData), from: client)
        #expect(try report(1, .normal, &bench, client).wakes.isEmpty)
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(1))
        #expect(try start(&bench, client).isEmpty)
        #expect(try report(1, .normal, &bench, client).wakes.map(\.reasons) == [.push])
        #expect(try report(1, .normal, &bench, client).wakes.isEmpty)
    }

    @Test func aClientLaunchedForAPushIsToldOnce() throws {
        var bench = Bench()
        let client = try told(&bench)
        bench.say(.pushDone(wakeID: bench.lastWakeID, .newData), from: client)
        bench.turn(.ended(client, .failed))
        bench.pass(.seconds(1))
        #expect(try report(2, .normal, &bench, client).contains(.launch(client)))
        #expect(try start(&bench, client).map(\.reasons) == [.push])
        #expect(try report(2, .normal, &bench, client).wakes.isEmpty)
        #expect(bench.say(.pushDone(wakeID: bench.lastWakeID, .newData), from: client).wakes.isEmpty)
    }
}
