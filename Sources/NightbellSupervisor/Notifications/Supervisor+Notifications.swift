import EventLoop
import Glibc
import LinuxSystem
import Logging
import NightbellCore
import NightbellWire
import SwiftProtobuf

/// The edge's part of notifications: the time of day, and a file that outlives the machine.
struct NotificationCare: ~Copyable {
    /// Of `clockChange`; released first.
    var watch: Watch?
    /// Reports that the clock was set; nil: nothing has needed it yet.
    var clockChange: ClockChangeDescriptor?
    /// Of `zoneChange`; released first.
    var zoneWatch: Watch?
    /// Reports that the time zone's file was replaced; nil: nothing has needed it yet, or it cannot be watched.
    var zoneChange: EntryWatch?
    var hasTriedToWatchZone = false
    /// The time of day that the core knows.
    var clock: NotificationClock?
    /// The next look at the time zone, in running time; nil: with the next turn.
    var nextLook: Instant?
    /// The file is not written again before that, in running time.
    var nextWrite = Instant(nanoseconds: .min)
    /// The file lags behind.
    var isChanged = false
    /// When a turn is needed for the file or the time zone.
    var due: Instant? {
        guard isChanged else { return zoneDue }
        return zoneDue.map { min($0, nextWrite) } ?? nextWrite
    }
    /// When an idle supervisor looks at the time zone; nil: there is no notification.
    var zoneDue: Instant?
}

extension Supervisor {
    private static let writeInterval = Duration.seconds(1)
    /// Between two looks at the time zone's file, in turns that there are anyway.
    private static let zoneInterval = Duration.seconds(1)
    /// Between two looks of an idle supervisor.
    private static let idleInterval = Duration.seconds(900)

    // MARK: The time of day

    /// Tells the core of the time of day, if notifications need it, when it is set or the time zone changes. A
    /// change of the zone that is known in advance has a turn of its own: see `NotificationClock`.
    func lookAtClock(isNeeded: Bool = false) {
        writeNotificationsInTime()
        guard isNeeded || ask({ !$0.notifications.isEmpty }) else {
            notificationCare.zoneDue = nil
            return
        }
        watchClock()
        watchZone()
        let isPretended = configuration.pretendedClock != nil
        guard isPretended || notificationCare.nextLook.map({ $0 <= now }) ?? true else { return }
        notificationCare.nextLook = now + Self.zoneInterval
        notificationCare.zoneDue = now + Self.idleInterval
        let clock = configuration.pretendedClock?() ?? ClockLook.now(after: notificationCare.clock)
        guard clock != notificationCare.clock else { return }
        notificationCare.clock = clock
        feed(.fact(.clock(clock)))
        // The file has wall-clock times.
        if durable.notifications != nil { notificationCare.isChanged = true }
    }

    /// Has `clockWasSet` called when the clock is set.
    func watchClock() {
        guard notificationCare.watch == nil else { return }
        do {
            let descriptor = try ClockChangeDescriptor()
            let watch = try loop.watch(
                descriptor.rawValue, .read, .persistent,
                token: WatchToken(.timer, id: WatchToken.clock).rawValue)
            try watch.arm()
            notificationCare.clockChange = consume descriptor
            notificationCare.watch = consume watch
        } catch {
            log(.monitor, .warning, "changes of the clock are noticed late: \(error)")
        }
    }

    func clockWasSet() {
        do throws(SystemError) {
            guard try notificationCare.clockChange?.takeChange() == true else { return }
        } catch {
            log(.monitor, .warning, "changes of the clock are noticed late: \(error)")
            notificationCare.watch = nil
            notificationCare.clockChange = nil
        }
        notificationCare.nextLook = nil
        notificationCare.clock = nil
        startForIssues()
    }

    /// Has `zoneMayHaveChanged` called when the time zone's file is replaced. Where there is none, as in a container
    /// without a directory for it, the looks of an idle supervisor are left.
    private func watchZone() {
        guard !notificationCare.hasTriedToWatchZone, let file = configuration.zoneFile else { return }
        notificationCare.hasTriedToWatchZone = true
        do {
            let change = try EntryWatch(path: file)
            let watch = try loop.watch(
                change.rawValue, .read, .persistent,
                token: WatchToken(.timer, id: WatchToken.zone).rawValue)
            try watch.arm()
            notificationCare.zoneChange = consume change
            notificationCare.zoneWatch = consume watch
        } catch {
            log(.monitor, .notice, "changes of the time zone are noticed late: \(error)")
        }
    }

    func zoneMayHaveChanged() {
        do throws(SystemError) {
            guard try notificationCare.zoneChange?.takeChange() == true else { return }
        } catch {
            log(.monitor, .warning, "changes of the time zone are noticed late: \(error)")
            notificationCare.zoneWatch = nil
            notificationCare.zoneChange = nil
        }
        notificationCare.nextLook = nil
    }

    // MARK: Activation

    /// A notification was activated of a client that has no record: one that is declared is launched. Any other
    /// is told when its user starts it.
    ///
    /// - Returns: whether there may be more to do in this turn.
    func launchActivated() -> Bool {
        let activated = supervision.takeAbsentActivated()
        for identifier in activated {
            guard let user = supervision.ownership(of: identifier)?.user,
                let declaration = absentDeclaration(of: identifier, user)
            else { continue }
            supervision.takeBackQuit(of: identifier)
            launchAbsent(declaration, isRequested: true)
        }
        return !activated.isEmpty
    }

    // MARK: Lists

    /// Of one part of a list: with the rest of the packet, no more than 65,536.
    private static let listBytes = 60_000

    func list(
        _ message: WireListNotifications, of client: ClientID, _ connection: Connection, _ request: UInt64
    ) {
        guard let identifier = supervision.identifier(of: client) else { return }
        let views = ask { $0.notificationViews(after: message.after, of: identifier) { _ in true } }
        answer(connection, request, .notificationList(list(views, hidesPayload: false)))
    }

    func show(_ message: WireShowNotifications, _ connection: Connection, _ request: UInt64) {
        var identifier: ClientIdentifier?
        if !message.identifier.isEmpty {
            identifier = ClientIdentifier(message.identifier)
            guard let identifier, let owner = supervision.ownership(of: identifier),
                maySeeNotifications(of: owner.user, connection)
            else { return answer(connection, request, .error(WireError(.noSuchClient))) }
        }
        let views = ask {
            $0.notificationViews(after: message.after, of: identifier) { user in
                maySeeNotifications(of: user, connection)
            }
        }
        answer(connection, request, .notificationList(list(views, hidesPayload: true)))
    }

    /// Their texts are for their user, and not for the gateway.
    private func maySeeNotifications(of user: UserID, _ connection: Connection) -> Bool {
        isAdministrator(connection) || user == connection.credentials.uid
    }

    private func list(_ views: [NotificationView], hidesPayload: Bool) -> WireNotificationList {
        var list = WireNotificationList()
        var bytes = 0
        for view in views {
            let info = WireNotificationInfo(view, at: elapsedNow, hidesPayload: hidesPayload)
            bytes += info.record.count
            guard bytes <= Self.listBytes else {
                list.hasMore_p = true
                break
            }
            list.notifications.append(info)
        }
        return list
    }

    // MARK: The file

    func noteChangedNotifications() {
        guard ask({ $0.hasChangedNotifications }), durable.notifications != nil else { return }
        notificationCare.isChanged = true
    }

    private func writeNotificationsInTime() {
        if notificationCare.isChanged, now >= notificationCare.nextWrite { writeNotifications() }
    }

    /// Has the file replaced, if it lags behind.
    func writeNotifications() {
        guard notificationCare.isChanged, let store = durable.notifications else { return }
        notificationCare.isChanged = false
        notificationCare.nextWrite = now + Self.writeInterval
        let shift = Duration.nanoseconds(MachineLook.realOffset())
        let notifications = ask { supervision in
            supervision.notificationSnapshots.map { owner, snapshot in
                var stored = StoredNotification(snapshot.item, shift: shift)
                stored.identifier = owner.0.description
                stored.user = owner.1
                stored.number = snapshot.number
                return stored
            }
        }
        store.write(notifications)
    }

    /// Restores what an earlier supervisor knew. Later workers have it from the keeper.
    func recallNotifications() {
        guard let store = durable.notifications else { return }
        let shift = Duration.nanoseconds(MachineLook.realOffset())
        do throws(SystemError) {
            for stored in try store.read() {
                guard let identifier = ClientIdentifier(stored.identifier),
                    supervision.ownership(of: identifier)?.user == stored.user,
                    let item = stored.item(number: stored.number, shift: shift)
                else { continue }
                supervision.remember(item, of: identifier, at: now)
            }
        } catch {
            logger.error("the notifications of clients are not known any more: \(error)")
        }
        supervision.resumeAbsentEvents(at: now)
    }
}
