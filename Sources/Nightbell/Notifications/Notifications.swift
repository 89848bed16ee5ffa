package import NightbellWire
import SwiftProtobuf

/// The local notifications of a client, by ``Client/notifications``.
///
/// They belong to the client's identifier: they stay, and are shown when their time comes, while the client
/// sleeps, after it has ended or was quit, and after a restart of the supervisor or of the machine.
public struct Notifications: Sendable {
    let session: Session

    /// Schedules a notification, and replaces the one of the same identifier.
    ///
    /// - Returns: the identifier of the notification that is dropped, because the client has more than 128
    ///   pending: the latest one, perhaps this one. nil: none.
    /// - Throws: ``NightbellError/Code/tooManyNotifications`` (of this user);
    ///   ``NightbellError/Code/invalidArgument`` if a value is out of its range.
    @discardableResult
    public func schedule(_ notification: LocalNotification) throws(NightbellError) -> String? {
        guard case .scheduled(let dropped) = try session.request(.schedule(try notification.wire())) else {
            throw NightbellError(.malformedAnswer, "an answer of the wrong kind")
        }
        return dropped
    }

    /// Cancels the pending ones of these identifiers, and closes those that are shown. Others are ignored.
    public func cancel(_ identifiers: [String]) throws(NightbellError) {
        for start in stride(from: 0, to: identifiers.count, by: Self.identifiersPerRequest) {
            let some = identifiers[start..<min(start + Self.identifiersPerRequest, identifiers.count)]
            _ = try session.request(.cancelNotifications(Array(some)))
        }
    }

    private static let identifiersPerRequest = 64

    /// Cancels and closes all.
    public func cancelAll() throws(NightbellError) { _ = try session.request(.cancelNotifications(nil)) }

    /// Sets the number beside the client's icon in launchers and docks, in the foreground as well. It stays, also when the
    /// process ends and after a restart of the supervisor or of the machine, until another one is set here or by a
    /// notification that is shown (``LocalNotification/badge``).
    ///
    /// - Parameter count: 0: no number.
    /// - Throws: ``NightbellError/Code/disconnected`` without a supervisor.
    public func setBadge(_ count: UInt32) throws(NightbellError) { _ = try session.request(.setBadge(count)) }

    /// Those that are pending or shown, in the order in which they were first scheduled.
    public func list() throws(NightbellError) -> [NotificationInfo] {
        var all: [NotificationInfo] = []
        while true {
            guard
                case .notifications(let some, let hasMore) = try session.request(
                    .listNotifications(after: all.last?.number ?? 0))
            else { throw NightbellError(.malformedAnswer, "an answer of the wrong kind") }
            all += some
            guard hasMore, !some.isEmpty else { return all }
        }
    }
}

extension Client {
    /// Local notifications.
    public var notifications: Notifications { Notifications(session: session) }
}

/// A notification that its client has scheduled.
public struct NotificationInfo: Sendable, Hashable {
    public enum State: String, Sendable, Hashable, CaseIterable {
        /// Its time is still to come.
        case pending
        /// Its time has come, and it is not shown yet: there is no notification server, or it has refused.
        case waiting
        /// It is shown.
        case shown
    }

    /// The identifier of its client.
    public var client: String
    public var uid: UInt32
    /// Without the payload, unless the client itself asks.
    public var notification: LocalNotification
    public var state: State
    /// Until its time comes, or comes again; nil: it does not, or the time of day is unknown yet.
    public var dueIn: Duration?
    package var number: UInt64

    package init(_ wire: WireNotificationInfo) {
        client = wire.client
        uid = wire.uid
        notification = LocalNotification(wire.notification)
        state =
            switch wire.state {
            case .waiting: .waiting
            case .shown: .shown
            case .pending, .unspecified, .UNRECOGNIZED: .pending
            }
        dueIn = wire.hasDueInMs ? .wireMilliseconds(wire.dueInMs) : nil
        number = wire.number
    }
}

/// The time of a notification has come while the client is in the foreground: it is not shown.
public struct NotificationDelivery: Sendable, Hashable {
    /// The same if it is told again, to another process for example.
    public var number: UInt64
    public var notification: LocalNotification
}

/// A person has activated a notification of the client's.
public struct NotificationActivation: Sendable, Hashable {
    /// The same if it is told again, to another process for example.
    public var number: UInt64
    public var notification: LocalNotification
    /// The key of the button; `default`: the notification itself.
    public var action: String
    /// `XDG_ACTIVATION_TOKEN` for a window that the client opens; empty: the notification server has given
    /// none.
    public var token: String
}

/// An event of a notification that a wake tells of.
package enum NotificationEvent: Sendable, Hashable {
    case delivered(NotificationDelivery)
    case activated(NotificationActivation)

    /// nil: it is from a newer supervisor.
    init?(_ wire: WireNotificationEvent) {
        let notification = LocalNotification(wire.identifier, wire.content)
        switch wire.kind {
        case .delivered?:
            self = .delivered(NotificationDelivery(number: wire.number, notification: notification))
        case .activated(let activation)?:
            self = .activated(
                NotificationActivation(
                    number: wire.number, notification: notification, action: activation.action,
                    token: activation.token))
        case nil: return nil
        }
    }
}
