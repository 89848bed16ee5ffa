package import Nightbell
package import Presentation

extension Report {
    /// The notifications of clients, the next one first.
    package static func notifications(
        _ notifications: [NotificationInfo], width: Int?, paint: Paint = .none
    ) -> [String] {
        guard !notifications.isEmpty else { return ["no notifications"] }
        var table = Table([
            .init("CLIENT", shrinks: true), .init("NOTIFICATION"), .init("STATE"), .init("IN", .right),
            .init("REPEATS", leaves: 1), .init("TITLE"),
        ])
        for info in notifications.sorted(by: isSooner) {
            let text = [info.notification.title, info.notification.body].filter { !$0.isEmpty }
            table.add(
                [
                    info.client, info.notification.identifier, info.state.rawValue,
                    info.dueIn.map(Human.duration) ?? "-", info.notification.trigger.repeats ? "yes" : "-",
                    text.joined(separator: ": ").split(whereSeparator: \.isNewline).joined(separator: " "),
                ], notes: [])
        }
        return table.lines(width: width, paint: paint)
    }

    /// Those that wait come before those that are still to come.
    private static func isSooner(_ one: NotificationInfo, _ other: NotificationInfo) -> Bool {
        func rank(_ info: NotificationInfo) -> (Int, Duration) {
            let state =
                switch info.state {
                case .waiting: 0
                case .pending: 1
                case .shown: 2
                }
            return (state, info.dueIn ?? .zero)
        }
        return rank(one) < rank(other)
    }
}

extension LocalNotification.Trigger {
    fileprivate var repeats: Bool {
        switch self {
        case .now, .time: false
        case .after(_, let repeats), .at(_, let repeats): repeats
        }
    }
}

extension NotificationInfo {
    package var json: JSON {
        [
            "client": .string(client), "uid": .count(Int(uid)),
            "identifier": .string(notification.identifier),
            "state": .string(state.rawValue), "due_in_ms": dueIn.map(JSON.milliseconds) ?? .null,
            "repeats": .bool(notification.trigger.repeats),
            "title": .string(notification.title), "body": .string(notification.body),
            "urgency": .string(notification.urgency.rawValue),
            "actions": .array(notification.actions.map { .string($0.key) }),
            "badge": notification.badge.map { .count(Int($0)) } ?? .null,
        ]
    }
}
