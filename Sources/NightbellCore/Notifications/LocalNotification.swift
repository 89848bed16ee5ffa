/// The content of a notification, as its client has given it.
package struct NotificationContent: Sendable, Hashable {
    package enum Urgency: UInt8, Sendable, Hashable, CaseIterable {
        case low = 0
        case normal = 1
        case critical = 2
    }

    /// A button.
    package struct Action: Sendable, Hashable {
        package var key: String
        package var label: String

        package init(key: String, label: String) {
            self.key = key
            self.label = label
        }
    }

    package var title: String
    package var body: String
    /// A name of the sound naming specification; empty: none.
    package var sound: String
    package var urgency: Urgency
    package var actions: [Action]
    /// The number beside the client's icon; nil: it stays as it is.
    package var badge: UInt32?
    /// For the client, when the notification is activated.
    package var payload: [UInt8]

    // In bytes.
    package static let longestTitle = 256
    package static let longestBody = 1_024
    package static let longestSound = 64
    package static let longestActionKey = 32
    package static let longestActionLabel = 64
    package static let longestPayload = 2_048
    package static let mostActions = 4
    /// The key of an activation that is no button: a click on the notification itself.
    package static let defaultAction = "default"

    package init(
        title: String, body: String = "", sound: String = "", urgency: Urgency = .normal,
        actions: [Action] = [], badge: UInt32? = nil, payload: [UInt8] = []
    ) {
        self.title = title
        self.body = body
        self.sound = sound
        self.urgency = urgency
        self.actions = actions
        self.badge = badge
        self.payload = payload
    }
}

/// When a notification is delivered.
package enum NotificationTrigger: Sendable, Hashable {
    case now
    /// At an instant, in nanoseconds since 1970 (UTC).
    case time(Int64)
    /// After this time, and again each time that it has passed.
    case interval(Duration, repeats: Bool)
    /// At the next such time of the calendar, in local time, and at each one after that.
    case calendar(CalendarTime, repeats: Bool)

    package var repeats: Bool {
        switch self {
        case .now, .time: false
        case .interval(_, let repeats), .calendar(_, let repeats): repeats
        }
    }

    package static let longestInterval = Duration.seconds(366 * 86_400)
}

/// A notification that a client has scheduled.
package struct LocalNotification: Sendable, Hashable {
    /// Chosen by the client; scheduling again replaces the notification of the same identifier.
    package let identifier: String
    package var content: NotificationContent
    package var trigger: NotificationTrigger

    /// In bytes.
    package static let longestIdentifier = 64

    package init(_ identifier: String, _ content: NotificationContent, _ trigger: NotificationTrigger) {
        self.identifier = identifier
        self.content = content
        self.trigger = trigger
    }
}

/// The progress of a notification, for watchers.
package enum NotificationProgress: Sendable, Hashable {
    /// Its time has come, and it is to be shown.
    case due
    case shown
    /// Its time has come, and its client is told in the foreground.
    case delivered
    case activated(action: String)
    /// It was one too many.
    case dropped
}

/// Something that a client is told of one of its notifications. It is told again until the client has
/// finished the wake that tells of it.
package struct NotificationEvent: Sendable, Equatable {
    package enum Kind: Sendable, Hashable {
        /// Its time came while the client was in the foreground: it is not shown.
        case delivered
        /// Its user has chosen this action. `token`: for the activation of a window (xdg-activation).
        case activated(action: String, token: String)
    }

    /// Names the event in records.
    package let number: UInt64
    package let identifier: String
    package let content: NotificationContent
    package let kind: Kind
    package var telling = Observation.Telling.pending

    /// The longest token of a notification server that is passed on, in bytes.
    package static let longestToken = 256

    package init(number: UInt64, identifier: String, content: NotificationContent, _ kind: Kind) {
        self.number = number
        self.identifier = identifier
        self.content = content
        self.kind = kind
    }
}
