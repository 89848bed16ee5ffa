import Keeper
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// A notification, an event of one, one that is to be closed, or a badge, as a record of the keeper and as an entry of the file.
enum NotificationRecordBytes {
    static func bytes(of notification: RecoverySnapshot.Notification) -> [UInt8] {
        var stored = StoredNotification(notification.item, shift: .zero)
        stored.ownership = notification.ownership
        return stored.record
    }

    /// nil: another version of the program has made it, by other limits.
    static func notification(
        _ key: RecordKey, _ record: [UInt8]
    ) throws(RecordError) -> RecoverySnapshot.Notification? {
        let stored = try StoredNotification(key, record)
        return stored.item(number: key.id, shift: .zero).map {
            RecoverySnapshot.Notification(ownership: stored.ownership, $0)
        }
    }
}

extension StoredNotification {
    /// - Parameter shift: added to elapsed times.
    init(_ item: RecoverySnapshot.Notification.Item, shift: Duration) {
        self.init()
        switch item {
        case .entry(let entry): self.entry = Entry(entry, shift: shift)
        case .event(let event):
            self.event = .with {
                $0.event = event.wire.record.asField
                if case .told(let wakeID) = event.telling { $0.toldIn = wakeID }
            }
        case .close(let close):
            self.close = .with {
                $0.notification = close.notification
                if let display = close.display { $0.display = Display(display) }
            }
        case .badge(let badge): self.badge = .with { $0.count = badge.count }
        }
    }

    /// nil: another version of the program has made it, by other limits.
    func item(number: UInt64, shift: Duration) -> RecoverySnapshot.Notification.Item? {
        switch item {
        case .entry(let stored)?:
            return NotificationEntry(number: number, stored, shift: shift).map { .entry($0) }
        case .event(let stored)?:
            guard let wire = try? WireNotificationEvent(serializedBytes: stored.event),
                var event = NotificationEvent(wire)
            else { return nil }
            if stored.hasToldIn { event.telling = .told(stored.toldIn) }
            return .event(event)
        case .close(let stored)?:
            return .close(
                NotificationClose(
                    number: number, notification: stored.notification,
                    display: stored.hasDisplay ? .init(stored.display) : nil))
        case .badge(let stored)?: return .badge(NotificationBadge(number: number, count: stored.count))
        case nil: return nil
        }
    }
}

extension StoredNotification.Display {
    fileprivate init(_ display: NotificationEntry.Display) {
        self.init()
        id = display.id
        server = display.server
    }
}

extension NotificationEntry.Display {
    fileprivate init(_ stored: StoredNotification.Display) {
        self.init(id: stored.id, server: stored.server)
    }
}

extension StoredNotification.Entry {
    fileprivate init(_ entry: NotificationEntry, shift: Duration) {
        self.init()
        notification = entry.notification.wire().record.asField
        switch entry.target {
        case .elapsed(let instant)?: target = .elapsedNs((instant + shift).nanoseconds)
        case .time(let time)?: target = .timeNs(time)
        case .local(let local)?: target = .localNs(local.nanoseconds)
        case nil: break
        }
        if let last = entry.lastLocal { lastLocalNs = last.nanoseconds }
        guard let presentation = entry.presentation else { return }
        self.presentation = .with {
            $0.content = presentation.content.wire.record.asField
            $0.revision = presentation.revision
            $0.isWaiting = presentation.isWaiting
            if let display = presentation.display { $0.display = StoredNotification.Display(display) }
        }
    }
}

extension NotificationEntry {
    fileprivate init?(number: UInt64, _ stored: StoredNotification.Entry, shift: Duration) {
        guard let wire = try? WireLocalNotification(serializedBytes: stored.notification),
            let notification = try? LocalNotification(wire)
        else { return nil }
        self.init(number: number, notification)
        switch stored.target {
        case .elapsedNs(let time)?: target = .elapsed(Instant(nanoseconds: time) - shift)
        case .timeNs(let time)?: target = .time(time)
        case .localNs(let local)?: target = .local(LocalTime(nanoseconds: local))
        case nil: break
        }
        if stored.hasLastLocalNs { lastLocal = LocalTime(nanoseconds: stored.lastLocalNs) }
        guard stored.hasPresentation else { return }
        guard let wire = try? WireNotificationContent(serializedBytes: stored.presentation.content),
            let content = try? NotificationContent(wire)
        else { return nil }
        var presentation = Presentation(content, revision: stored.presentation.revision)
        presentation.isWaiting = stored.presentation.isWaiting
        if stored.presentation.hasDisplay { presentation.display = Display(stored.presentation.display) }
        self.presentation = presentation
    }
}
