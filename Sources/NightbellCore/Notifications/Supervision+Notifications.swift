/// Local notifications: clients schedule them, and they are shown when their time comes, whether the client
/// runs or not. A client in the foreground is told of it instead.
///
/// They belong to the identifier, as fetches do, and outlive the client, the supervisor and the machine. The
/// monitor of its user's session is asked again and again to show one, until it reports where that is shown:
/// so nothing is lost with a process, and a server that comes later shows what has waited.
extension Supervision {
    // MARK: Requests

    mutating func schedule(
        _ notification: LocalNotification, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) -> Answer {
        passZoneChange(at: now)
        let place = clients[client.id].owner
        let user = clients[client.id].user
        let known = notifications.entry(notification.identifier, at: place)
        guard known != nil || notifications.count(of: user) < settings.quotas.notificationsPerUser else {
            return .refused(.tooManyNotifications)
        }
        // It may have come since, and be over.
        if wasTakenIn(key, of: client) { return .scheduled(dropped: nil) }
        let id: SlotID
        if let known {
            id = known
            notifications.entries[known].notification = notification
            notifications.entries[known].lastLocal = nil
        } else {
            let entry = NotificationEntry(number: notifications.nextNumber(), notification)
            id = notifications.insert(entry, at: place, of: user)
        }
        notifications.entries[id].aim(from: elapsed(at: now), notifications.clock)
        if notification.trigger == .now {
            present(id, of: user, at: now, into: &actions)
        } else {
            notifications.settle(id, of: user)
        }
        let dropped = dropSurplus(at: place, of: user)
        if let dropped { trace(.dropped, dropped, at: place, into: &actions) }
        if notifications.entries.contains(id) { recordNotification(notifications.entries[id].number, place) }
        forgetShown(at: place, of: user)
        return .scheduled(dropped: dropped)
    }

    /// Of more than the limit the soonest are kept; a repeating one counts once.
    ///
    /// - Returns: the identifier of the one that is dropped.
    private mutating func dropSurplus(at place: UInt32, of user: UserID) -> String? {
        let pending = pending(at: place)
        guard pending.count > settings.quotas.notificationsPerClient else { return nil }
        func due(_ id: SlotID) -> Instant {
            let entry = notifications.entries[id]
            if entry.presentation?.isWaiting == true { return Instant(nanoseconds: .min) }
            return entry.due(notifications.clock) ?? Instant(nanoseconds: .max)
        }
        let ordered = pending.enumerated().sorted {
            (due($0.element), $0.offset) < (due($1.element), $1.offset)
        }
        guard
            let last = mutated(.dropsSoonestNotifications) ? ordered.first?.element : ordered.last?.element
        else { return nil }
        let identifier = notifications.entries[last].notification.identifier
        remove(last, at: place, of: user)
        return identifier
    }

    /// The notifications of an identifier that count against the limit, in the order in which they were
    /// scheduled.
    func pending(at place: UInt32) -> [SlotID] {
        notifications.place(place)?.entries.filter { notifications.entries[$0].isPending } ?? []
    }

    /// Of those that are shown already as many are remembered as may be pending: the latest ones, which have the
    /// greatest numbers of a server.
    mutating func forgetShown(at place: UInt32, of user: UserID) {
        guard let entries = notifications.place(place)?.entries else { return }
        func number(_ id: SlotID) -> UInt32 { notifications.entries[id].presentation?.display?.id ?? 0 }
        let shown = entries.filter { !notifications.entries[$0].isPending }.sorted {
            number($0) < number($1)
        }
        for id in shown.dropLast(settings.quotas.notificationsPerClient) {
            notifications.entries[id].presentation?.display = nil
            remove(id, at: place, of: user)
        }
    }

    /// - Parameter identifiers: nil: all of the client's.
    mutating func cancelNotifications(_ identifiers: [String]?, _ client: ClientID) -> Answer {
        let place = clients[client.id].owner
        let user = clients[client.id].user
        guard let entries = notifications.place(place)?.entries else { return .done }
        let wanted = identifiers.map(Set.init)
        // It is not shown instead, if the process ends before it has finished that.
        if !mutated(.postsCancelledNotifications) {
            dropEvents(of: client) {
                !$0.kind.isActivation && wanted?.contains($0.identifier) ?? true
            }
        }
        for id in entries
        where wanted?.contains(notifications.entries[id].notification.identifier) ?? true {
            if mutated(.postsCancelledNotifications), notifications.entries[id].target != nil { continue }
            remove(id, at: place, of: user)
        }
        return .done
    }

    mutating func remove(_ id: SlotID, at place: UInt32, of user: UserID) {
        let number = notifications.entries[id].number
        if let presentation = notifications.entries[id].presentation {
            if let display = presentation.display { close(number, display, at: place, of: user) }
            if presentation.isWaiting, presentation.isGiven { close(number, nil, at: place, of: user) }
        }
        notifications.remove(id, of: user)
        recordNotification(number, place)
    }

    /// The identifier has no owner any more.
    mutating func removeNotifications(at place: UInt32, of user: UserID) {
        guard let all = notifications.place(place) else { return }
        for id in all.entries { remove(id, at: place, of: user) }
        for event in all.events { recordNotification(event.number, place) }
        notifications.change(place) { $0.events = [] }
        setBadge(0, at: place, of: user)
    }

    // MARK: Their time

    /// Delivers those that are due.
    mutating func reachNotifications(at now: Instant, into actions: inout ActionBuffer) {
        passZoneChange(at: now)
        let elapsed = elapsed(at: now)
        while let id = notifications.popDue(at: elapsed) {
            let place = notifications.place(of: id)
            guard let user = owners[place: place]?.user else { continue }
            if let notBefore = notifications.entries[id].presentation?.notBefore, notBefore <= elapsed {
                notifications.entries[id].presentation?.notBefore = nil
            }
            guard let due = notifications.entries[id].due(notifications.clock), due <= elapsed else {
                notifications.settle(id, of: user)
                continue
            }
            notifications.entries[id].aimAgain(after: elapsed, notifications.clock)
            present(id, of: user, at: now, into: &actions)
            if notifications.entries.contains(id) {
                recordNotification(notifications.entries[id].number, place)
            }
            forgetShown(at: place, of: user)
        }
    }

    /// Its time has come: a client in the foreground is told, otherwise it is to be shown.
    private mutating func present(
        _ id: SlotID, of user: UserID, at now: Instant, into actions: inout ActionBuffer
    ) {
        let place = notifications.place(of: id)
        let notification = notifications.entries[id].notification
        // It takes the place of a delivery that is not finished, and that would be shown otherwise.
        if !mutated(.showsReplacedDeliveries) {
            dropEvents(at: place) { !$0.kind.isActivation && $0.identifier == notification.identifier }
        }
        if isInForeground(place), !mutated(.showsInForeground) {
            add(.delivered, notification.identifier, notification.content, at: place, at: now)
            trace(.delivered, notification.identifier, at: place, into: &actions)
            // One of the same identifier may still be shown, or wait for that.
            if let former = notifications.entries[id].presentation, former.display == nil {
                // A server that is slow has it perhaps, and answers only the next supervisor's monitor.
                if former.isWaiting, former.isGiven {
                    close(notifications.entries[id].number, nil, at: place, of: user)
                }
                notifications.entries[id].presentation = nil
            }
            notifications.entries[id].presentation?.isWaiting = false
            if notifications.entries[id].target == nil, notifications.entries[id].presentation == nil {
                return remove(id, at: place, of: user)
            }
        } else if !mutated(.losesNotificationsWithoutServer) || notifications.servers[user] != nil {
            show(id, notification.content, of: user)
            trace(.due, notification.identifier, at: place, into: &actions)
        }
        notifications.settle(id, of: user)
    }

    /// It is to be shown, in the place of the one before it.
    mutating func show(_ id: SlotID, _ content: NotificationContent, of user: UserID) {
        let number = notifications.entries[id].number
        let former = notifications.entries[id].presentation
        var presentation = NotificationEntry.Presentation(content, revision: notifications.nextNumber())
        presentation.display = former?.display
        let isWithdrawn = notifications.isClosing(number, nil, of: user)
        presentation.isGiven = former?.isGiven == true || isWithdrawn || notifications.servers[user] != nil
        // It takes the place of the one that was to be closed.
        if isWithdrawn { endCloses(of: user) { $0.notification == number && $0.display == nil } }
        notifications.entries[id].presentation = presentation
        if let badge = content.badge { setBadge(badge, at: notifications.place(of: id), of: user) }
    }

    /// Of an identifier without a client nothing is traced.
    func trace(
        _ progress: NotificationProgress, _ identifier: String, at place: UInt32,
        into actions: inout ActionBuffer
    ) {
        guard let client = owners[place: place]?.client else { return }
        actions.append(.trace(client, .notification(identifier, progress)))
    }

    private func isInForeground(_ place: UInt32) -> Bool {
        guard let client = owners[place: place]?.client else { return false }
        return switch clients[client.id].lifecycle.stage {
        case .inactive, .active: true
        case .notRunning, .background, .suspending, .suspended, .terminating, .dormant, .launching: false
        }
    }
}
