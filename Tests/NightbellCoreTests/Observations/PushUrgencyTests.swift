import NightbellCore
import Testing

/// The table of RFC 8030, section 5.3.
@Suite("The urgency of pushes")
struct PushUrgencyTests {
    /// A state of the device, and the least urgency that it accepts.
    private struct Row {
        var isOnBattery: Bool?
        var isBatteryLow: Bool?
        var isMetered: Bool?
        var least: PushUrgency

        init(battery: Bool?, low: Bool?, metered: Bool?, _ least: PushUrgency) {
            (isOnBattery, isBatteryLow, isMetered, self.least) = (battery, low, metered, least)
        }
    }

    /// On power it does not matter whether the battery is low, and unknown facts forbid nothing.
    private static let rows: [Row] =
        [false, nil].flatMap { battery in
            [false, true, nil].flatMap { low in
                [
                    Row(battery: battery, low: low, metered: false, .veryLow),
                    Row(battery: battery, low: low, metered: nil, .veryLow),
                    Row(battery: battery, low: low, metered: true, .low),
                ]
            }
        } + [
            Row(battery: true, low: false, metered: false, .low),
            Row(battery: true, low: nil, metered: false, .low),
            Row(battery: true, low: false, metered: nil, .low),
            Row(battery: true, low: nil, metered: nil, .low),
            Row(battery: true, low: false, metered: true, .normal),
            Row(battery: true, low: nil, metered: true, .normal),
            Row(battery: true, low: true, metered: false, .high),
            Row(battery: true, low: true, metered: nil, .high),
            Row(battery: true, low: true, metered: true, .high),
        ]

    @Test("A device accepts what its power and its network permit")
    func table() {
        #expect(Self.rows.count == 27)
        for row in Self.rows {
            for urgency in PushUrgency.allCases {
                let isTimely = urgency.isTimely(
                    isOnBattery: row.isOnBattery, isBatteryLow: row.isBatteryLow, isMetered: row.isMetered)
                #expect(isTimely == (urgency >= row.least), "\(urgency) \(row)")
            }
        }
    }

    @Test("On a low battery a push of normal urgency waits until it is charged, or for one of high urgency")
    func lowBattery() throws {
        var bench = Bench()
        let client = try bench.register(modes: [])
        let identifier = try #require(bench.core.identifier(of: client))
        func report(_ number: UInt64, _ urgency: PushUrgency) -> Event {
            .fact(.pushes(WaitingPushes(of: 1_000, identifier, number: number, urgency: urgency)))
        }
        bench.say(.observe(name: "pushes", .pushes), from: client)
        bench.suspend(client)
        bench.turn(.fact(.power(isOnBattery: true, isLow: true)))
        #expect(bench.turn(report(1, .normal)).wakes.isEmpty)
        let observation = try #require(bench.core.view(of: client, at: bench.now)?.observations.first)
        #expect(bench.core.pushObstacle(observation, client, at: bench.now) == .conditions)
        #expect(bench.pass(.seconds(3_600)).wakes.isEmpty)
        #expect(bench.turn(.fact(.power(isOnBattery: false, isLow: true))).wakes.map(\.reasons) == [.push])
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.say(.pushDone(wakeID: bench.lastWakeID, .newData), from: client)
        bench.suspend(client)
        bench.turn(.fact(.power(isOnBattery: true, isLow: true)))
        #expect(bench.turn(report(2, .normal)).wakes.isEmpty)
        #expect(bench.turn(report(3, .high)).wakes.map(\.reasons) == [.push])
    }
}
