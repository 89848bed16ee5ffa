/// Facts about notification servers and the time of day, and what a session's monitor is asked.
extension Supervision {
    mutating func learnNotificationClock(
        _ clock: NotificationClock, at now: Instant, into actions: inout ActionBuffer
    ) {
        guard !mutated(.ignoresClockChanges) || notifications.clock == nil else { return }
        var clock = clock
        if mutated(.ignoresZoneChanges) { clock.change = nil }
        // One that comes sooner than before still does if the supervisor dies.
        for id in notifications.set(clock, at: elapsed(at: now)) {
            recordNotification(notifications.entries[id].number, notifications.place(of: id))
        }
        if !isStopping { reachNotifications(at: now, into: &actions) }
    }

    /// A time of the day may come a second time with another time zone: the next one is meant then.
    mutating func passZoneChange(at now: Instant) { notifications.passZoneChange(at: elapsed(at: now)) }

    mutating func learnNotifications(
        _ fact: NotificationFact, of user: UserID, at now: Instant, into actions: inout ActionBuffer
    ) {
        switch fact {
        case .server(let server, let listener): learnServer(server, listener, of: user)
        case .shown(let number, let revision, let display):
            learnShown(number, revision, display, of: user, into: &actions)
        case .refused(let number, let revision): learnRefusal(number, revision, of: user, at: now)
        case .withdrawn(let number):
            endCloses(of: user) { $0.notification == number && $0.display == nil }
        case .closed(let id):
            endCloses(of: user) { $0.display?.id == id }
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
            let display = notifications.entries[entry].presentation?.display
            if let display { close(notifications.entries[entry].number, display, at: place, of: user) }
            endDisplay(entry, of: user, at: now, into: &actions)
        }
    }

    /// Another server shows nothing of what the last one has shown.
    /// Another connection to the same one has them shown anew, in their places.
    private mutating func learnServer(_ server: String?, _ listener: String, of user: UserID) {
        notifications.set(server, listener: listener, of: user)
        guard let server else {
            // Nothing has been heard of these, and there is no server to ask.
            return endCloses(of: user) { $0.display == nil }
        }
        endCloses(of: user) { close in close.display.map { $0.server != server } ?? false }
        for id in notifications.presented(of: user) {
            notifications.entries[id].presentation?.notBefore = nil
            notifications.entries[id].presentation?.refusals = 0
            notifications.entries[id].presentation?.isGiven = true
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
        let revision = notifications.nextNumber()
        notifications.entries[id].presentation?.revision = revision
    }

    private mutating func learnShown(
        _ number: UInt64, _ revision: UInt64, _ display: NotificationEntry.Display, of user: UserID,
        into actions: inout ActionBuffer
    ) {
        guard let id = notifications.id(of: number) else {
            // It was cancelled meanwhile.
            return close(number, display, at: .max, of: user)
        }
        guard owners[place: notifications.place(of: id)]?.user == user else { return }
        guard notifications.entries[id].presentation != nil else {
            // Its client was told of a later one.
            return close(number, display, at: notifications.place(of: id), of: user)
        }
        if let former = notifications.entries[id].presentation?.display, former.id != display.id,
            former.server == display.server
        {
            // It was replaced before the server had said which one it is.
            close(number, former, at: notifications.place(of: id), of: user)
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

    // MARK: The demand

    /// The users with a session that has to be observed, sorted.
    package var sessionUsers: [UserID] {
        let users = notifications.users
        return users.isEmpty ? mediaUsers.sorted() : users.union(mediaUsers).sorted()
    }

    package func needsNotifications(of user: UserID) -> Bool { notifications.needsServer(of: user) }

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
        demand.badges = badges(of: user)
        demand.server = notifications.servers[user]
        for close in notifications.closes(of: user) {
            if close.display == nil {
                demand.withdrawals.append(close.notification)
            } else if let id = close.display?.id, close.display?.server == demand.server {
                demand.closes.append(id)
            }
        }
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
    /// A notification that was to be closed wherever it is shown is not shown, or not any more.
    case withdrawn(UInt64)
    case activated(UInt32, action: String, token: String)
}

package struct NotificationDemand: Sendable, Equatable {
    package struct Badge: Sendable, Equatable {
        package var client: ClientIdentifier
        package var count: UInt32
    }

    package var posts: [NotificationPost] = []
    /// By the server's numbers.
    package var closes: [UInt32] = []
    /// The numbers of notifications that are to be closed wherever they are shown.
    package var withdrawals: [UInt64] = []
    package var badges: [Badge] = []
    /// The server with these numbers; nil: none is known.
    package var server: String?

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
