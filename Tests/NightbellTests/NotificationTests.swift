import Nightbell
import NightbellWire
import SwiftProtobuf
import Testing

/// Notifications as the library says and hears them.
@Suite("Notifications of the library") struct NotificationValueTests {
    @Test("Each trigger comes back as it was said")
    func triggers() throws {
        let triggers: [LocalNotification.Trigger] = [
            .now, .time(unixSeconds: 1_800_000_000.5), .after(.milliseconds(1_500)),
            .after(.seconds(3_600), repeats: true), .at(.init(hour: 7, minute: 30)),
            .at(.init(hour: 23, minute: 59, second: 59, on: .weekday(7)), repeats: true),
            .at(.init(hour: 0, minute: 0, on: .dayOfMonth(31)), repeats: true),
        ]
        for trigger in triggers {
            let notification = LocalNotification(
                "tea", title: "Tea", body: "hot", sound: "bell", urgency: .critical,
                actions: [.init(key: "a", label: "A")], badge: 0, payload: [1, 2], trigger: trigger)
            #expect(try LocalNotification(notification.wire()) == notification)
        }
    }

    @Test("It is never early: times are rounded up to whole milliseconds")
    func rounding() throws {
        func wire(_ trigger: LocalNotification.Trigger) throws -> WireLocalNotification {
            try LocalNotification("tea", title: "Tea", trigger: trigger).wire()
        }
        #expect(try wire(.after(.nanoseconds(1))).afterMs == 1)
        #expect(try wire(.after(.seconds(-1))).afterMs == 0)
        #expect(try wire(.time(unixSeconds: 1.000_1)).atUnixMs == 1_001)
    }

    @Test("The protocol cannot say these")
    func refusals() {
        for trigger: LocalNotification.Trigger in [
            .time(unixSeconds: .nan), .time(unixSeconds: .infinity), .at(.init(hour: 24, minute: 0)),
            .at(.init(hour: 1, minute: -1)),
        ] {
            let error = #expect(throws: NightbellError.self) {
                try LocalNotification("tea", title: "Tea", trigger: trigger).wire()
            }
            #expect(error?.code == .invalidArgument)
        }
    }
}
