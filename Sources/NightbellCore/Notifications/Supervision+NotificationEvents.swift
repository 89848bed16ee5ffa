/// Telling clients of their notifications: that one's time has come, or that one was activated.
///
/// An event is told in a wake, and is told again until its client has finished that wake: to the same process
/// by the next supervisor, and to the next process of the client.
extension Supervision {
    /// Of one client, unless more of its notifications may be pending. The oldest is dropped, deliveries first.
    private static let mostEvents = 64
    /// In one wake, of the longest contents: they fit into half a packet.
    private static let eventsPerWake = 16

    mutating func add(
        _ kind: NotificationEvent.Kind, _ identifier: String, _ content: NotificationContent,
        at place: UInt32, at now: Instant
    ) {
        let event = NotificationEvent(
            number: notifications.nextNumber(), identifier: identifier, content: content, kind)
        var dropped: UInt64?
        let most = max(Self.mostEvents, settings.quotas.notificationsPerClient)
        notifications.change(place) {
            $0.events.append(event)
            guard $0.events.count > most else { return }
            let oldest = $0.events.firstIndex { !$0.kind.isActivation } ?? 0
            dropped = $0.events.remove(at: oldest).number
        }
        if let dropped { recordNotification(dropped, place) }
        recordNotification(event.number, place)
        tellSoon(place, at: now)
    }

    mutating func tellSoon(_ place: UInt32, at now: Instant) {
        notifications.untold.insert(place)
        notifications.tellDue = elapsed(at: now)
    }

    /// It has another process.
    mutating func tellNotifications(of client: ClientID, at now: Instant) {
        let place = clients[client.id].owner
        if !notifications.isEmpty, notifications.place(place)?.events.isEmpty == false {
            tellSoon(place, at: now)
        }
    }

    /// Ends a turn: wakes or launches the clients that have something to be told.
    mutating func runNotifications(at now: Instant, into actions: inout ActionBuffer) {
        guard !notifications.untold.isEmpty else { return }
        let places = notifications.untold.sorted()
        notifications.untold = []
        notifications.tellDue = nil
        for place in places { tell(place, at: now, into: &actions) }
    }

    private mutating func tell(_ place: UInt32, at now: Instant, into actions: inout ActionBuffer) {
        guard let events = notifications.place(place)?.events.filter(\.telling.isDue), !events.isEmpty,
            let owner = owners[place: place]
        else { return }
        guard let client = owner.client else {
            if events.contains(where: \.kind.isActivation), !notifications.absent.contains(place) {
                notifications.absent.append(place)
            }
            return
        }
        catchUp(client, at: now, into: &actions)
        guard clients.contains(client.id) else { return }
        if clients[client.id].pendingWake == .repeated {
            // A client that knows that wake ignores it.
            return tellSoon(place, at: now)
        }
        if clients[client.id].lifecycle.isDormant {
            guard clients[client.id].isLaunchable else { return }
            setQuit(false, owners.identifier(at: place))
            clients[client.id].launches.isLeft = false
        }
        wake(client, .notification, at: now, into: &actions)
        suspendIfIdle(client, at: now, into: &actions)
    }

    /// Identifiers with an activated notification that no client uses, with their users. The edge launches
    /// those that are declared.
    package mutating func takeAbsentActivated() -> [ClientIdentifier] {
        guard !notifications.absent.isEmpty else { return [] }
        defer { notifications.absent = [] }
        return notifications.absent.map { owners.identifier(at: $0) }
    }

    /// The events of which a wake tells.
    ///
    /// - Returns: a range of `ActionBuffer.notified`.
    mutating func takeNotificationEvents(
        of client: ClientID, isRepeated: Bool, into actions: inout ActionBuffer
    ) -> Range<Int> {
        let start = actions.notified.count
        let place = clients[client.id].owner
        guard !notifications.isEmpty, let events = notifications.place(place)?.events else {
            return start..<start
        }
        let wakeID = clients[client.id].lastWakeID
        for index in events.indices
        where isRepeated ? events[index].telling.isRepeating : events[index].telling.isDue {
            guard actions.notified.count - start < Self.eventsPerWake else {
                notifications.untold.insert(place)
                notifications.tellDue = clients[client.id].enteredStateAt
                break
            }
            notifications.change(place) { $0.events[index].telling = .told(wakeID) }
            recordNotification(events[index].number, place)
            actions.notified.append(events[index])
        }
        return start..<actions.notified.count
    }

    /// The client has finished a wake, and all before it.
    mutating func finishEvents(_ client: ClientID, wakeID: UInt64) {
        let place = clients[client.id].owner
        guard !notifications.isEmpty, let events = notifications.place(place)?.events else { return }
        for event in events {
            guard case .told(let told) = event.telling, told <= wakeID else { continue }
            notifications.change(place) { $0.events.removeAll { $0.number == event.number } }
            recordNotification(event.number, place)
        }
    }

    /// The process that was, or should have been, told has ended. A delivery that it has not finished is shown;
    /// the next process is told of an activation.
    mutating func retractEvents(of client: ClientID) {
        let place = clients[client.id].owner
        guard !notifications.isEmpty, let events = notifications.place(place)?.events, !events.isEmpty else {
            return
        }
        retract(events, at: place, of: clients[client.id].user)
    }

    /// Whether a client has been activated, and has not finished that.
    func hasActivations(_ client: ClientID) -> Bool {
        guard !notifications.isEmpty else { return false }
        return notifications.place(clients[client.id].owner)?.events.contains(where: \.kind.isActivation)
            ?? false
    }

    /// Its activations are no reason to launch it any more.
    mutating func dropActivations(of client: ClientID) { dropEvents(of: client, where: \.kind.isActivation) }

    /// It has handled what it was told.
    mutating func dropToldEvents(of client: ClientID) {
        dropEvents(of: client) { $0.telling != .pending }
    }

    mutating func dropEvents(of client: ClientID, where isDropped: (NotificationEvent) -> Bool) {
        dropEvents(at: clients[client.id].owner, where: isDropped)
    }

    mutating func dropEvents(at place: UInt32, where isDropped: (NotificationEvent) -> Bool) {
        guard !notifications.isEmpty, let events = notifications.place(place)?.events else { return }
        for event in events where isDropped(event) {
            notifications.change(place) { $0.events.removeAll { $0.number == event.number } }
            recordNotification(event.number, place)
        }
    }

    private mutating func retract(_ events: [NotificationEvent], at place: UInt32, of user: UserID) {
        for event in events {
            switch event.kind {
            case .delivered:
                notifications.change(place) { $0.events.removeAll { $0.number == event.number } }
                showAfterAll(event, at: place, of: user)
            case .activated:
                notifications.change(place) { place in
                    guard let index = place.events.firstIndex(where: { $0.number == event.number }) else {
                        return
                    }
                    place.events[index].telling = .pending
                }
            }
            recordNotification(event.number, place)
        }
    }

    private mutating func showAfterAll(_ event: NotificationEvent, at place: UInt32, of user: UserID) {
        let id: SlotID
        if let known = notifications.entry(event.identifier, at: place) {
            id = known
        } else {
            let notification = LocalNotification(event.identifier, event.content, .now)
            id = notifications.insert(
                NotificationEntry(number: notifications.nextNumber(), notification), at: place, of: user)
        }
        show(id, event.content, of: user)
        notifications.settle(id, of: user)
        recordNotification(notifications.entries[id].number, place)
    }

    // MARK: Clients that are kept for their notifications

    /// Whether a client without a process is kept, so that the activation of a notification can launch it.
    func staysForNotifications(_ client: ClientID) -> Bool {
        guard !notifications.isEmpty, clients[client.id].isLaunchable, !isStopping else { return false }
        return notifications.places.contains(clients[client.id].owner)
    }

    /// A client that is kept for its notifications alone is forgotten after the last of them.
    func isKeptInVain(_ client: ClientID) -> Bool {
        guard case .dormant(.resting) = clients[client.id].lifecycle.stage else { return false }
        return clients[client.id].launches.isLeft && !staysForNotifications(client)
            && !staysAsDeclared(client) && !(isQuit(client) && staysForLocation(client))
    }

    mutating func settleLeft(_ place: UInt32, at now: Instant, into actions: inout ActionBuffer) {
        guard let client = owners[place: place]?.client, isKeptInVain(client) else { return }
        forget(client, at: now, into: &actions)
    }

    // MARK: Recovery

    /// Restores the notifications of all identifiers that have an owner.
    mutating func restoreNotifications(_ old: [RecoverySnapshot.Notification]) {
        guard !old.isEmpty, !mutated(.restoresWithoutNotifications) else { return }
        var places: [UInt64: UInt32] = [:]
        for identifier in owners.keys {
            guard let place = owners.place(of: identifier), let owner = owners[place: place] else { continue }
            places[owner.number] = place
        }
        for record in old.sorted(by: { $0.number < $1.number }) {
            guard let place = places[record.ownership], let user = owners[place: place]?.user else {
                continue
            }
            switch record.item {
            case .entry(let entry): _ = notifications.insert(entry, at: place, of: user)
            case .event(let event): notifications.restore(event, at: place)
            case .close(let close):
                guard !mutated(.restoresWithoutCloses) else { continue }
                notifications.restore(close, at: place, of: user)
            case .badge(let badge): notifications.set(badge, at: place, of: user)
            }
        }
    }

    /// Call it once the client's wakes are as they were, or are being repeated.
    mutating func resumeEvents(_ old: RecoverySnapshot.Client, at now: Instant) {
        let place = clients[old.id.id].owner
        guard let events = notifications.place(place)?.events, !events.isEmpty else { return }
        if clients[old.id.id].lifecycle.isDormant {
            retractEvents(of: old.id)
            return tellSoon(place, at: now)
        }
        let isRepeated =
            clients[old.id.id].pendingWake != nil || clients[old.id.id].launches.mayHaveBeenTold
        for index in events.indices {
            guard case .told(let wakeID) = events[index].telling, wakeID > old.toldWakeID else { continue }
            let telling: Observation.Telling = isRepeated ? .repeating(wakeID) : .pending
            notifications.change(place) { $0.events[index].telling = telling }
        }
        tellSoon(place, at: now)
    }

    /// Call it once all clients are resumed: others have no client.
    package mutating func resumeAbsentEvents(at now: Instant) {
        for place in notifications.places.slots where owners[place: place]?.client == nil {
            guard let events = notifications.place(place)?.events, !events.isEmpty,
                let user = owners[place: place]?.user
            else { continue }
            retract(events, at: place, of: user)
            tellSoon(place, at: now)
        }
    }
}

extension NotificationEvent.Kind {
    package var isActivation: Bool {
        switch self {
        case .delivered: false
        case .activated: true
        }
    }
}
