/// A notification that is to be shown no more, and has to be closed on its user's screen: it was cancelled,
/// replaced or activated. It is asked of the monitor until that reports it, also by the next supervisor.
package struct NotificationClose: Sendable, Hashable {
    /// Names it in records.
    package let number: UInt64
    /// The notification's number.
    package var notification: UInt64
    /// nil: a server was perhaps given it, and has not said where it shows it.
    package var display: NotificationEntry.Display?

    package init(number: UInt64, notification: UInt64, display: NotificationEntry.Display?) {
        self.number = number
        self.notification = notification
        self.display = display
    }
}

/// Closing notifications that are shown, or are perhaps shown.
extension Supervision {
    /// - Parameter display: nil: wherever it is shown.
    mutating func close(
        _ notification: UInt64, _ display: NotificationEntry.Display?, at place: UInt32, of user: UserID
    ) {
        // Another server shows nothing of it.
        if let display, let server = notifications.servers[user], display.server != server { return }
        guard !notifications.isClosing(notification, display, of: user) else { return }
        let close = NotificationClose(
            number: notifications.nextNumber(), notification: notification, display: display)
        let dropped = notifications.add(close, at: place, of: user)
        recordNotification(close.number, place)
        if let dropped { recordNotification(dropped.close.number, dropped.place) }
    }

    /// Nothing of these is left to be closed.
    mutating func endCloses(of user: UserID, where isOver: (NotificationClose) -> Bool) {
        for ended in notifications.removeCloses(of: user, where: isOver) {
            recordNotification(ended.close.number, ended.place)
        }
    }
}
