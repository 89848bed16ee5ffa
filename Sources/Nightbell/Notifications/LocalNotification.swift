package import NightbellWire
import SwiftProtobuf

/// A notification that ``Notifications/schedule(_:)`` schedules: for a person, or, while the client is in the
/// foreground, for the client.
public struct LocalNotification: Sendable, Hashable {
    public enum Urgency: String, Sendable, Hashable, CaseIterable {
        case low
        case normal
        /// Most notification servers show it until it is closed.
        case critical
    }

    /// A button.
    public struct Action: Sendable, Hashable {
        /// 1 to 32 bytes, not `default`; ``NotificationActivation/action`` has it.
        public var key: String
        /// 1 to 64 bytes.
        public var label: String

        public init(key: String, label: String) {
            self.key = key
            self.label = label
        }
    }

    /// A time of day in local time.
    public struct TimeOfDay: Sendable, Hashable {
        public enum Day: Sendable, Hashable {
            case every
            /// 1 is Monday, 7 is Sunday.
            case weekday(Int)
            /// 1 to 31; a shorter month has its last day instead.
            case dayOfMonth(Int)
        }

        public var hour: Int
        public var minute: Int
        public var second: Int
        public var day: Day

        public init(hour: Int, minute: Int, second: Int = 0, on day: Day = .every) {
            self.hour = hour
            self.minute = minute
            self.second = second
            self.day = day
        }
    }

    /// When it is delivered: never earlier, and as soon as possible later. A time that passes while the machine
    /// is off or asleep, or that the clock is set past, is delivered once.
    public enum Trigger: Sendable, Hashable {
        case now
        /// At a time in seconds since 1970 (UTC); what counts is the clock of the machine.
        case time(unixSeconds: Double)
        /// After this time, at most 366 days; with `repeats` again and again, every 60 s at most.
        case after(Duration, repeats: Bool = false)
        /// At the next such time; with `repeats` at each one. It follows the time zone, and daylight-saving
        /// time.
        case at(TimeOfDay, repeats: Bool = false)
    }

    /// 1 to 64 bytes. Scheduling another one of this identifier replaces it.
    public var identifier: String
    /// 1 to 256 bytes.
    public var title: String
    /// At most 1,024 bytes of plain text.
    public var body: String
    /// A name of the freedesktop.org sound naming specification, such as `message-new-instant`; empty: none.
    public var sound: String
    public var urgency: Urgency
    /// At most four, where the notification server has buttons.
    public var actions: [Action]
    /// The number beside the client's icon in launchers, from when it is shown on; 0: none, nil: as before.
    public var badge: UInt32?
    /// At most 2,048 bytes for the client, which no other process sees.
    public var payload: [UInt8]
    public var trigger: Trigger

    public init(
        _ identifier: String, title: String, body: String = "", sound: String = "",
        urgency: Urgency = .normal, actions: [Action] = [], badge: UInt32? = nil, payload: [UInt8] = [],
        trigger: Trigger = .now
    ) {
        self.identifier = identifier
        self.title = title
        self.body = body
        self.sound = sound
        self.urgency = urgency
        self.actions = actions
        self.badge = badge
        self.payload = payload
        self.trigger = trigger
    }

    package init(_ identifier: String, _ content: WireNotificationContent, _ trigger: Trigger = .now) {
        self.init(
            identifier, title: content.title, body: content.body, sound: content.sound,
            urgency: Urgency(content.urgency),
            actions: content.actions.map { Action(key: $0.key, label: $0.label) },
            badge: content.hasBadge ? content.badge : nil, payload: Array(content.payload), trigger: trigger)
    }

    package init(_ wire: WireLocalNotification) {
        let trigger: Trigger =
            switch wire.trigger {
            case nil: .now
            case .atUnixMs(let milliseconds)?: .time(unixSeconds: Double(milliseconds) / 1_000)
            case .afterMs(let milliseconds)?: .after(.wireMilliseconds(milliseconds), repeats: wire.repeats)
            case .calendar(let calendar)?: .at(TimeOfDay(calendar), repeats: wire.repeats)
            }
        self.init(wire.identifier, wire.content, trigger)
    }

    /// - Throws: ``NightbellError/Code/invalidArgument`` for what the protocol cannot say.
    package func wire() throws(NightbellError) -> WireLocalNotification {
        var wire = WireLocalNotification()
        wire.identifier = identifier
        wire.content = content
        switch trigger {
        case .now: break
        case .time(let seconds):
            guard let milliseconds = Int64(exactly: (seconds * 1_000).rounded(.up)) else {
                throw NightbellError(.invalidArgument, "a time of \(seconds) seconds since 1970")
            }
            wire.atUnixMs = milliseconds
        case .after(let time, let repeats):
            wire.afterMs = UInt64(clamping: (max(0, time.wholeNanoseconds) + 999_999) / 1_000_000)
            wire.repeats = repeats
        case .at(let time, let repeats):
            wire.calendar = try time.wire()
            wire.repeats = repeats
        }
        return wire
    }

    private var content: WireNotificationContent {
        .with {
            $0.title = title
            $0.body = body
            $0.sound = sound
            $0.urgency = urgency.wire
            $0.actions = actions.map { action in
                .with {
                    $0.key = action.key
                    $0.label = action.label
                }
            }
            if let badge { $0.badge = badge }
            $0.payload = payload.asField
        }
    }
}

extension LocalNotification.Urgency {
    fileprivate init(_ wire: WireNotificationContent.Urgency) {
        self =
            switch wire {
            case .low: .low
            case .critical: .critical
            case .normal, .unspecified, .UNRECOGNIZED: .normal
            }
    }

    fileprivate var wire: WireNotificationContent.Urgency {
        switch self {
        case .low: .low
        case .normal: .normal
        case .critical: .critical
        }
    }
}

extension LocalNotification.TimeOfDay {
    fileprivate init(_ wire: WireCalendarTime) {
        let day: Day =
            switch wire.day {
            case nil: .every
            case .weekday(let weekday)?: .weekday(Int(weekday))
            case .dayOfMonth(let dayOfMonth)?: .dayOfMonth(Int(dayOfMonth))
            }
        let second = Int(wire.secondOfDay)
        self.init(hour: second / 3_600, minute: second / 60 % 60, second: second % 60, on: day)
    }

    fileprivate func wire() throws(NightbellError) -> WireCalendarTime {
        guard (0..<24).contains(hour), (0..<60).contains(minute), (0..<60).contains(second) else {
            throw NightbellError(.invalidArgument, "a time of day of \(hour):\(minute):\(second)")
        }
        var wire = WireCalendarTime()
        wire.secondOfDay = UInt32(hour * 3_600 + minute * 60 + second)
        switch day {
        case .every: break
        // 0 is none of them: the supervisor refuses it.
        case .weekday(let weekday): wire.weekday = UInt32(exactly: weekday) ?? 0
        case .dayOfMonth(let dayOfMonth): wire.dayOfMonth = UInt32(exactly: dayOfMonth) ?? 0
        }
        return wire
    }
}
