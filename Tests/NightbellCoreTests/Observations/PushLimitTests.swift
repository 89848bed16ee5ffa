import NightbellCore
import Testing

@Suite("The hourly limit of pushes")
struct PushLimitTests {
    private static let hour = Duration.seconds(3_600)

    /// The push service reports.
    private func report(
        _ number: UInt64, _ bench: inout Bench, _ client: ClientID, urgency: PushUrgency? = .normal
    ) throws -> [Wake] {
        let identifier = try #require(bench.core.identifier(of: client))
        let waiting = WaitingPushes(of: 1_000, identifier, number: number, urgency: urgency)
        return bench.turn(.fact(.pushes(waiting))).wakes
    }

    /// The client handles what it was told of, and sleeps again.
    private func handle(_ number: UInt64, _ bench: inout Bench, _ client: ClientID) throws {
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.say(.pushDone(wakeID: bench.lastWakeID, .newData), from: client)
        #expect(try report(number, &bench, client, urgency: nil).isEmpty)
        bench.suspend(client)
    }

    private func obstacle(_ bench: Bench, _ client: ClientID) -> PushObstacle? {
        bench.core.view(of: client, at: bench.now)?.observations.first.flatMap {
            bench.core.pushObstacle($0, client, at: bench.now)
        }
    }

    @Test(
        "By default nine wake a client within an hour, and what comes then is told at once when the hour is over"
    )
    func nine() throws {
        var bench = Bench()
        let client = try bench.register(modes: [])
        bench.say(.observe(name: "pushes", .pushes), from: client)
        bench.suspend(client)
        let start = bench.now
        for number in 1...9 as ClosedRange<UInt64> {
            let wakes = try report(number, &bench, client)
            #expect(wakes.map(\.reasons) == [.push] && wakes.first?.pushBudget == .seconds(30), "\(number)")
            try handle(number, &bench, client)
            bench.pass(.seconds(60))
        }
        for number in 10...12 as ClosedRange<UInt64> {
            #expect(try report(number, &bench, client).isEmpty)
            #expect(obstacle(bench, client) == .tooMany(until: start + Self.hour))
            bench.pass(.seconds(60))
        }
        let left = (start + Self.hour).since(bench.now)
        #expect(bench.pass(left - .nanoseconds(1)).wakes.isEmpty)
        // The three have become one.
        #expect(bench.pass(.nanoseconds(1)).wakes.map(\.reasons) == [.push])
        try handle(12, &bench, client)
        #expect(bench.pass(.seconds(59)).wakes.isEmpty)
        // The second of the nine was a minute after the first one.
        #expect(try report(13, &bench, client).isEmpty)
        #expect(obstacle(bench, client) == .tooMany(until: start + .seconds(60) + Self.hour))
        #expect(bench.pass(.seconds(1)).wakes.map(\.reasons) == [.push])
    }
}
