/// Local notifications: clients schedule them, and they are shown when their time comes, whether the client
/// runs or not. A client in the foreground is told of it instead.
///
/// They belong to the identifier, as fetches do, and outlive the client, the supervisor and the machine. The
/// monitor of its user's session is asked again and again to show it, until the monitor reports where it is shown: so nothing is lost with a process, and a server that comes later shows what has waited.
extension Supervision {
    // MARK: Requests

    mutating func schedule(
        _ notification: LocalNotification, _ client: ClientID, _ key: RequestKey, at now: Instant,
        into actions: inout ActionBuffer
    ) -> Answer {
        let place = clients[client.id].owner
        let user = clients[client.id].user
        let known = notifications.entry(notification.identifier, at: place)
        if let known, wasTakenIn(key, of: client), notifications.entries[known].notification == notification {
            return .scheduled(dropped: nil)
        }
        guard known != nil || notifications.count(of: user) < settings.quotas.notificationsPerUser else {
            return .refused(.tooManyNotifications)
        }
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

    /// Of those that are shown already as many are remembered as may be pending, the latest ones.
    private mutating func forgetShown(at place: UInt32, of user: UserID) {
        guard let entries = notifications.place(place)?.entries else { return }
        let shown = entries.filter { !notifications.entries[$0].isPending }
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
        for id in entries
        where wanted?.contains(notifications.entries[id].notification.identifier) ?? true {
            if mutated(.postsCancelledNotifications), notifications.entries[id].target != nil { continue }
            remove(id, at: place, of: user)
        }
        return .done
    }

    private mutating func remove(_ id: SlotID, at place: UInt32, of user: UserID) {
        let number = notifications.entries[id].number
        notifications.remove(id, of: user)
        recordNotification(number, place)
    }

    /// The identifier has no owner any more.
    mutating func removeNotifications(at place: UInt32, of user: UserID) {
        guard let all = notifications.place(place) else { return }
        for id in all.entries { remove(id, at: place, of: user) }
        for event in all.events { recordNotification(event.number, place) }
        notifications.change(place) { $0.events = [] }
    }

    // MARK: Their time

    /// Delivers those that are due.
    mutating func reachNotifications(at now: Instant, into actions: inout ActionBuffer) {
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
        if isInForeground(place), !mutated(.showsInForeground) {
            add(.delivered, notification.identifier, notification.content, at: place, at: now)
            trace(.delivered, notification.identifier, at: place, into: &actions)
            // One of the same identifier may still be shown, or wait for that.
            if notifications.entries[id].presentation?.display == nil {
                notifications.entries[id].presentation = nil
            }
            notifications.entries[id].presentation?.isWaiting = false
            if notifications.entries[id].target == nil, notifications.entries[id].presentation == nil {
                return remove(id, at: place, of: user)
            }
        } else if !mutated(.losesNotificationsWithoutServer) || notifications.servers[user] != nil {
            show(id, notification.content)
            trace(.due, notification.identifier, at: place, into: &actions)
        }
        notifications.settle(id, of: user)
    }

    /// It is to be shown, in the place of the one before it.
    mutating func show(_ id: SlotID, _ content: NotificationContent) {
        let former = notifications.entries[id].presentation
        var presentation = NotificationEntry.Presentation(content, revision: (former?.revision ?? 0) + 1)
        presentation.display = former?.display
        notifications.entries[id].presentation = presentation
    }

    /// Of an identifier without a client nothing is traced.
    private func trace(
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

    // MARK: Facts

    mutating func learnNotificationClock(
        _ clock: NotificationClock, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard !mutated(.ignoresClockChanges) || notifications.clock == nil else { return }
        // One that comes sooner than before still does if the supervisor dies.
        for id in notifications.set(clock, at: elapsed(at: now)) {
            recordNotification(notifications.entries[id].number, notifications.place(of: id))
        }
        if !isStopping { reachNotifications(at: now, into: &actions) }
    }

    mutating func learnNotifications(
        _ fact: NotificationFact, of user: UserID, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch fact {
        case .server(let server, let listener): learnServer(server, listener, of: user)
        case .shown(let number, let revision, let display):
            learnShown(number, revision, display, of: user, into: &actions)
        case .refused(let number, let revision): learnRefusal(number, revision, of: user, at: now)
        case .closed(let id):
            notifications.noteClosed(id, of: user)
            guard let entry = shownEntry(id, of: user) else { return }
            endDisplay(entry, of: user, at: now, into: &actions)
        case .activated(let id, let action, let token):
            guard let entry = shownEntry(id, of: user),
                let content = notifications.entries[entry].presentation?.content
            else { return }
            let place = notifications.place(of: entry)
            let identifier = notifications.entries[entry].notification.identifier
            add(.activated(action: action, token: token), identifier, content, at: place, at: now)
            trace(.activated(action: action), identifier, at: place, into: &actions)
            // Some servers leave that to the client.
            notifications.close(notifications.entries[entry].presentation?.display, of: user)
            endDisplay(entry, of: user, at: now, into: &actions)
        }
    }

    /// Another server shows nothing of what the last one has shown.
    /// Another connection to the same one has them shown anew, in their places.
    private mutating func learnServer(_ server: String?, _ listener: String, of user: UserID) {
        notifications.set(server, listener: listener, of: user)
        guard let server else { return }
        for id in notifications.presented(of: user) {
            notifications.entries[id].presentation?.notBefore = nil
            notifications.entries[id].presentation?.refusals = 0
            if let display = notifications.entries[id].presentation?.display, display.server != server {
                forgetDisplay(id, of: user)
            } else {
                if let display = notifications.entries[id].presentation?.display, display.listener != listener
                {
                    renew(id)
                }
                notifications.settle(id, of: user)
            }
        }
    }

    private mutating func renew(_ id: SlotID) {
        guard notifications.entries[id].presentation?.isWaiting == false else { return }
        notifications.entries[id].presentation?.needsRenewal = true
        notifications.entries[id].presentation?.revision += 1
    }

    private mutating func learnShown(
        _ number: UInt64, _ revision: UInt64, _ display: NotificationEntry.Display, of user: UserID,
        into actions: inout ActionBuffer
    ) {
        guard let id = notifications.id(of: number),
            owners[place: notifications.place(of: id)]?.user == user,
            notifications.entries[id].presentation != nil
        else {
            // It was cancelled meanwhile.
            return notifications.close(display, of: user)
        }
        var display = display
        display.listener = notifications.listeners[user] ?? ""
        notifications.entries[id].presentation?.display = display
        if notifications.entries[id].presentation?.revision == revision {
            notifications.entries[id].presentation?.isWaiting = false
            notifications.entries[id].presentation?.needsRenewal = false
            notifications.entries[id].presentation?.refusals = 0
        }
        notifications.settle(id, of: user)
        let place = notifications.place(of: id)
        recordNotification(number, place)
        trace(.shown, notifications.entries[id].notification.identifier, at: place, into: &actions)
        forgetShown(at: place, of: user)
    }

    private static let retry = Duration.seconds(10)
    private static let retryMaximum = Duration.seconds(3_600)

    /// The server has not shown it: it is tried again after a while.
    private mutating func learnRefusal(_ number: UInt64, _ revision: UInt64, of user: UserID, at now: Instant)
    {
        guard let id = notifications.id(of: number),
            let presentation = notifications.entries[id].presentation,
            presentation.isWaiting || presentation.needsRenewal,
            presentation.revision == revision, owners[place: notifications.place(of: id)]?.user == user
        else { return }
        let pause = doubled(Self.retry, times: Int(presentation.refusals), maximum: Self.retryMaximum)
        notifications.entries[id].presentation?.refusals = min(presentation.refusals, 254) + 1
        let notBefore = elapsed(at: now) + pause
        notifications.entries[id].presentation?.notBefore = notBefore
        notifications.settle(id, of: user)
    }

    /// The entry that the present server shows under this number.
    private func shownEntry(_ id: UInt32, of user: UserID) -> SlotID? {
        guard let server = notifications.servers[user] else { return nil }
        return notifications.presented(of: user).first {
            guard let display = notifications.entries[$0].presentation?.display else { return false }
            return display.id == id && display.server == server
        }
    }

    /// It is shown no more.
    private mutating func endDisplay(
        _ id: SlotID, of user: UserID, at now: Instant, into actions: inout ActionBuffer
    ) {
        let place = notifications.place(of: id)
        forgetDisplay(id, of: user)
        settleLeft(place, at: now, into: &actions)
    }

    private mutating func forgetDisplay(_ id: SlotID, of user: UserID) {
        let place = notifications.place(of: id)
        let number = notifications.entries[id].number
        notifications.entries[id].presentation?.display = nil
        if notifications.entries[id].presentation?.isWaiting == false {
            notifications.entries[id].presentation = nil
        }
        let entry = notifications.entries[id]
        guard entry.target != nil || entry.presentation != nil else { return remove(id, at: place, of: user) }
        notifications.settle(id, of: user)
        recordNotification(number, place)
    }

    // MARK: What is asked of a session's monitor

    /// The users with a session that has to be observed, sorted.
    package var sessionUsers: [UserID] {
        guard !notifications.isEmpty else { return mediaUsers.sorted() }
        return Set(mediaUsers).union(notifications.users).sorted()
    }

    package func needsNotifications(of user: UserID) -> Bool {
        !notifications.isEmpty && notifications.needsServer(of: user)
            || !notifications.closes(of: user).isEmpty
    }

    /// The notifications to be shown and closed in a user's session.
    package func notificationDemand(of user: UserID) -> NotificationDemand {
        guard !isStopping else { return NotificationDemand() }
        var demand = NotificationDemand()
        for id in notifications.presented(of: user) {
            let entry = notifications.entries[id]
            guard let presentation = entry.presentation,
                presentation.isWaiting || presentation.needsRenewal, presentation.notBefore == nil
            else { continue }
            demand.posts.append(
                NotificationPost(
                    number: entry.number, revision: presentation.revision,
                    client: owners.identifier(at: notifications.place(of: id)),
                    replaces: presentation.display?.id ?? 0, isRenewal: !presentation.isWaiting,
                    content: presentation.content))
            if demand.posts.count == NotificationTable.postsAtOnce { break }
        }
        demand.closes = notifications.closes(of: user)
        return demand
    }
}

/// A report about the notification server of a session.
package enum NotificationFact: Sendable, Hashable {
    /// The server's name, which another one does not have; nil: there is none, or it is unknown. `listener`:
    /// the connection that hears of it.
    case server(String?, listener: String = "")
    case shown(number: UInt64, revision: UInt64, NotificationEntry.Display)
    case refused(number: UInt64, revision: UInt64)
    case closed(UInt32)
    case activated(UInt32, action: String, token: String)
}

package struct NotificationDemand: Sendable, Equatable {
    package var posts: [NotificationPost] = []
    package var closes: [UInt32] = []

    package init() {}
}

/// A notification that is to be shown.
package struct NotificationPost: Sendable, Equatable {
    package var number: UInt64
    package var revision: UInt64
    package var client: ClientIdentifier
    /// The server's number of the one that it replaces; 0: none.
    package var replaces: UInt32
    /// It is that one, without a sound.
    package var isRenewal: Bool
    package var content: NotificationContent
}
