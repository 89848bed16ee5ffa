import NightbellCore
import NightbellWire
import SwiftProtobuf

/// Conversion of notifications between the core's terms and those of the wire.
extension NotificationContent {
    init(_ wire: WireNotificationContent) throws(InvalidMessage) {
        try check(text: wire.title, "title", 1...Self.longestTitle)
        try check(text: wire.body, "body", 0...Self.longestBody)
        try check(text: wire.sound, "sound", 0...Self.longestSound)
        guard wire.payload.count <= Self.longestPayload else {
            throw .invalid("a payload has at most \(Self.longestPayload) bytes")
        }
        let keys = Set(wire.actions.map(\.key))
        guard wire.actions.count <= Self.mostActions, keys.count == wire.actions.count,
            !keys.contains(Self.defaultAction)
        else {
            throw .invalid("at most \(Self.mostActions) actions, with different keys, none of them default")
        }
        for action in wire.actions {
            try check(text: action.key, "key of an action", 1...Self.longestActionKey)
            try check(text: action.label, "label of an action", 1...Self.longestActionLabel)
        }
        let urgency: Urgency
        switch wire.urgency {
        case .low: urgency = .low
        case .unspecified, .normal: urgency = .normal
        case .critical: urgency = .critical
        case .UNRECOGNIZED: throw .invalid("an unknown urgency")
        }
        self.init(
            title: wire.title, body: wire.body, sound: wire.sound, urgency: urgency,
            actions: wire.actions.map { Action(key: $0.key, label: $0.label) },
            badge: wire.hasBadge ? wire.badge : nil, payload: Array(wire.payload))
    }

    var wire: WireNotificationContent {
        .with {
            $0.title = title
            $0.body = body
            $0.sound = sound
            $0.urgency =
                switch urgency {
                case .low: .low
                case .normal: .normal
                case .critical: .critical
                }
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

/// A text that a message bus can carry.
private func check(
    text: String, _ name: String, _ lengths: ClosedRange<Int>
) throws(InvalidMessage) {
    guard lengths.contains(text.utf8.count) else {
        let least = lengths.lowerBound == 0 ? "at most" : "\(lengths.lowerBound) to"
        throw .invalid("a \(name) has \(least) \(lengths.upperBound) bytes")
    }
    guard !text.utf8.contains(0) else { throw .invalid("a \(name) contains no NUL") }
}

extension InvalidMessage {
    fileprivate static func invalid(_ message: String) -> InvalidMessage {
        InvalidMessage(wire: WireError(.invalidArgument, message))
    }
}

extension WireCancelNotifications {
    static let mostIdentifiers = 128
}

extension LocalNotification {
    init(_ wire: WireLocalNotification) throws(InvalidMessage) {
        try check(text: wire.identifier, "identifier of a notification", 1...Self.longestIdentifier)
        self.init(
            wire.identifier, try NotificationContent(wire.content), try NotificationTrigger(wire))
    }

    /// - Parameter hidesPayload: it is for another process than the client's own.
    func wire(hidesPayload: Bool = false) -> WireLocalNotification {
        .with {
            $0.identifier = identifier
            $0.content = content.wire
            if hidesPayload { $0.content.clearPayload() }
            switch trigger {
            case .now: break
            case .time(let time): $0.atUnixMs = time / 1_000_000
            case .interval(let interval, let repeats):
                $0.afterMs = interval.wireMilliseconds
                $0.repeats = repeats
            case .calendar(let calendar, let repeats):
                $0.calendar = calendar.wire
                $0.repeats = repeats
            }
        }
    }
}

extension WireNotificationContent {
    fileprivate mutating func clearPayload() { payload = [UInt8]().asField }
}

extension NotificationTrigger {
    private static let shortestRepeated = Duration.seconds(60)
    /// Nearly 300 years, in milliseconds: more does not fit into nanoseconds.
    private static let times: ClosedRange<Int64> = -9_000_000_000_000...9_000_000_000_000

    fileprivate init(_ wire: WireLocalNotification) throws(InvalidMessage) {
        switch wire.trigger {
        case nil:
            guard !wire.repeats else { throw .invalid("a notification at once does not repeat") }
            self = .now
        case .atUnixMs(let time)?:
            guard Self.times.contains(time), !wire.repeats else {
                throw .invalid("a time that is out of range, or that repeats")
            }
            self = .time(time * 1_000_000)
        case .afterMs(let milliseconds)?:
            let interval = Duration(wireMilliseconds: milliseconds)
            guard interval <= Self.longestInterval, !wire.repeats || interval >= Self.shortestRepeated else {
                throw .invalid("an interval is at most 366 days, and at least 60 s if it repeats")
            }
            self = .interval(interval, repeats: wire.repeats)
        case .calendar(let calendar)?:
            self = .calendar(try CalendarTime(calendar), repeats: wire.repeats)
        }
    }
}

extension CalendarTime {
    fileprivate init(_ wire: WireCalendarTime) throws(InvalidMessage) {
        let day: Day
        switch wire.day {
        case nil: day = .every
        case .weekday(let weekday)?: day = .weekday(Int(weekday))
        case .dayOfMonth(let dayOfMonth)?: day = .dayOfMonth(Int(dayOfMonth))
        }
        let isValid =
            switch day {
            case .every: true
            case .weekday(let weekday): (1...7).contains(weekday)
            case .dayOfMonth(let dayOfMonth): (1...31).contains(dayOfMonth)
            }
        guard wire.secondOfDay < LocalTime.secondsPerDay, isValid else {
            throw .invalid("a time of the calendar that does not exist")
        }
        self.init(secondOfDay: Int(wire.secondOfDay), day: day)
    }

    fileprivate var wire: WireCalendarTime {
        .with {
            $0.secondOfDay = UInt32(secondOfDay)
            switch day {
            case .every: break
            case .weekday(let weekday): $0.weekday = UInt32(weekday)
            case .dayOfMonth(let dayOfMonth): $0.dayOfMonth = UInt32(dayOfMonth)
            }
        }
    }
}

extension NotificationEvent {
    var wire: WireNotificationEvent {
        .with {
            $0.number = number
            $0.identifier = identifier
            $0.content = content.wire
            switch kind {
            case .delivered: $0.delivered = .init()
            case .activated(let action, let token):
                $0.activated = .with {
                    $0.action = action
                    $0.token = token
                }
            }
        }
    }

    /// nil: it is of another version of the program.
    init?(_ wire: WireNotificationEvent) {
        guard let content = try? NotificationContent(wire.content) else { return nil }
        switch wire.kind {
        case .delivered?:
            self.init(number: wire.number, identifier: wire.identifier, content: content, .delivered)
        case .activated(let activation)?:
            self.init(
                number: wire.number, identifier: wire.identifier, content: content,
                .activated(action: activation.action, token: activation.token))
        case nil: return nil
        }
    }
}

extension WireNotificationInfo {
    /// - Parameter hidesPayload: it is for another process than the client's own.
    init(_ view: NotificationView, at elapsed: Instant, hidesPayload: Bool) {
        self.init()
        number = view.number
        client = view.client.description
        uid = view.user
        notification = view.notification.wire(hidesPayload: hidesPayload)
        state =
            switch view.presentation?.isWaiting {
            case nil: .pending
            case true?: .waiting
            case false?: .shown
            }
        if let due = view.due { dueInMs = due.since(elapsed).wireMilliseconds }
    }
}

extension NotificationProgress {
    /// For watchers.
    var text: String {
        switch self {
        case .due: "its time has come"
        case .shown: "shown"
        case .delivered: "told in the foreground"
        case .activated(let action): "activated, \(action)"
        case .dropped: "dropped, one too many"
        }
    }
}

extension WireMonitorDemand.Post {
    init(_ post: NotificationPost) {
        self.init()
        number = post.number
        revision = post.revision
        client = post.client.description
        replaces = post.replaces
        isRenewal = post.isRenewal
        title = post.content.title
        body = post.content.body
        sound = post.content.sound
        urgency = UInt32(post.content.urgency.rawValue)
        actions = post.content.actions.map { action in
            .with {
                $0.key = action.key
                $0.label = action.label
            }
        }
    }
}

extension NotificationFact {
    /// nil: it says nothing, or too much.
    init?(_ event: WireMonitorReport.NotificationEvent) {
        switch event.event {
        case .shown(let shown)?:
            guard event.id != 0, shown.server.utf8.count <= Self.longestServer else { return nil }
            self = .shown(
                number: shown.number, revision: shown.revision, .init(id: event.id, server: shown.server))
        case .refused(let refused)?: self = .refused(number: refused.number, revision: refused.revision)
        case .activated(let activated)?:
            guard activated.action.utf8.count <= NotificationContent.longestActionKey,
                activated.token.utf8.count <= NotificationEvent.longestToken
            else { return nil }
            self = .activated(event.id, action: activated.action, token: activated.token)
        case .closed(let closed)?:
            self = closed.withdrawn == 0 ? .closed(event.id) : .withdrawn(closed.withdrawn)
        case nil: return nil
        }
    }

    static let longestServer = 128
}
