/// Notifications survive the supervisor's process, and the machine.
extension RecoverySnapshot {
    /// The record of a notification, of an event of one, or of a badge. It belongs to the ownership of the identifier.
    package struct Notification: Sendable, Equatable {
        package enum Item: Sendable, Equatable {
            case entry(NotificationEntry)
            case event(NotificationEvent)
            case close(NotificationClose)
            case badge(NotificationBadge)
        }

        package var ownership: UInt64
        package var item: Item

        package init(ownership: UInt64, _ item: Item) {
            self.ownership = ownership
            self.item = item
        }

        package var number: UInt64 {
            switch item {
            case .entry(let entry): entry.number
            case .event(let event): event.number
            case .close(let close): close.number
            case .badge(let badge): badge.number
            }
        }
    }
}

/// A notification as it is visible outside the core.
package struct NotificationView: Sendable {
    package var number: UInt64
    package var client: ClientIdentifier
    package var user: UserID
    package var notification: LocalNotification
    /// When its time comes, in elapsed time; nil: it has come, or the time of day is unknown.
    package var due: Instant?
    /// As it was when its time came; nil: its time is still to come.
    package var presentation: NotificationEntry.Presentation?
}

extension Supervision {
    /// The numbers of notifications with changed records. They are noted even if nothing else is.
    package var hasChangedNotifications: Bool { !changes.notifications.isEmpty }

    /// The record with this number; nil: there is none any more.
    func notificationSnapshot(_ change: ChangeSet.Notification) -> RecoverySnapshot.Notification? {
        guard let owner = owners[place: change.place] else { return nil }
        if let id = notifications.id(of: change.number), notifications.place(of: id) == change.place {
            return RecoverySnapshot.Notification(
                ownership: owner.number, .entry(notifications.entries[id].recorded))
        }
        if let event = notifications.place(change.place)?.events.first(where: { $0.number == change.number })
        {
            return RecoverySnapshot.Notification(ownership: owner.number, .event(event.recorded))
        }
        if let badge = notifications.place(change.place)?.badge, badge.number == change.number {
            return RecoverySnapshot.Notification(ownership: owner.number, .badge(badge))
        }
        return notifications.closes(of: owner.user).first { $0.number == change.number }.map {
            RecoverySnapshot.Notification(ownership: owner.number, .close($0))
        }
    }

    /// The records of all notifications, for a file. After a start of the machine none is left to be closed.
    package var notificationSnapshots: [(owner: (ClientIdentifier, UserID), RecoverySnapshot.Notification)] {
        notifications.places.slots.sorted().flatMap { place in
            guard let owner = owners[place: place], let all = notifications.place(place) else {
                return [((ClientIdentifier, UserID), RecoverySnapshot.Notification)]()
            }
            let name = (owners.identifier(at: place), owner.user)
            return all.entries.map {
                (name, .init(ownership: owner.number, .entry(notifications.entries[$0].recorded)))
            } + all.events.map { (name, .init(ownership: owner.number, .event($0.recorded))) }
                + (all.badge.map { [(name, .init(ownership: owner.number, .badge($0)))] } ?? [])
        }
    }

    /// Restores what is known of a notification of an identifier that has an owner, after a start of the
    /// machine or of the supervisor. Call it before the first event.
    package mutating func remember(
        _ item: RecoverySnapshot.Notification.Item, of identifier: ClientIdentifier, at now: Instant
    ) {
        guard let place = owners.place(of: identifier), let user = owners[place: place]?.user else { return }
        switch item {
        case .entry(var entry):
            if let clock = notifications.clock { entry.follow(clock, at: elapsed(at: now)) }
            _ = notifications.insert(entry, at: place, of: user)
            recordNotification(entry.number, place)
        case .event(let event):
            notifications.restore(event, at: place)
            recordNotification(event.number, place)
        case .badge(let badge):
            notifications.set(badge, at: place, of: user)
            recordNotification(badge.number, place)
        case .close: break  // the file has none
        }
    }

    /// Numbers them from here on, or from the last one that is known: no supervisor of this machine is to have
    /// used the same ones. Call it before the first event.
    package mutating func numberNotifications(from number: UInt64) { notifications.number(from: number) }

    /// The notifications after the one with this number, in the order of their numbers, of all identifiers or
    /// of one.
    package func notificationViews(
        after number: UInt64, of identifier: ClientIdentifier?, isVisible: (UserID) -> Bool
    ) -> [NotificationView] {
        let places = identifier.map { owners.place(of: $0).map { [$0] } ?? [] } ?? notifications.places.slots
        var views: [NotificationView] = []
        for place in places {
            guard let owner = owners[place: place], isVisible(owner.user) else { continue }
            for id in notifications.place(place)?.entries ?? [] {
                let entry = notifications.entries[id]
                guard entry.number > number else { continue }
                views.append(
                    NotificationView(
                        number: entry.number, client: owners.identifier(at: place), user: owner.user,
                        notification: entry.notification, due: entry.due(notifications.clock),
                        presentation: entry.presentation))
            }
        }
        return views.sorted { $0.number < $1.number }
    }
}

extension NotificationEvent {
    /// Whether that wake was told is for the next supervisor to find out again.
    fileprivate var recorded: NotificationEvent {
        var event = self
        if case .repeating(let wakeID) = telling { event.telling = .told(wakeID) }
        return event
    }
}
