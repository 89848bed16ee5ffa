/// The moment at which a notification is delivered, on the clock that it follows.
package enum NotificationTarget: Sendable, Hashable {
    /// Elapsed time.
    case elapsed(Instant)
    /// In nanoseconds since 1970 (UTC).
    case time(Int64)
    case local(LocalTime)
}

/// A notification of a client: its time is still to come, or it is to be shown, or it is shown.
package struct NotificationEntry: Sendable, Equatable {
    /// Where a notification server shows it.
    package struct Display: Sendable, Hashable {
        /// The server's number.
        package var id: UInt32
        /// Names the server as long as it lives.
        package var server: String
        /// Names the connection that has shown it, and hears what becomes of it: many servers tell no other
        /// one.
        var listener = ""

        package init(id: UInt32, server: String) {
            self.id = id
            self.server = server
        }
    }

    /// A notification that is to be shown, or is shown: its time has come.
    package struct Presentation: Sendable, Equatable {
        /// As it was then.
        package var content: NotificationContent
        /// Another one each time that it is to be shown: a report is about one of them.
        package var revision: UInt64
        /// It is still to be shown.
        package var isWaiting = true
        /// A server was perhaps given it, and has not said so yet. After a recovery that is not known.
        var isGiven = true
        /// Where it, or the one before it, is shown.
        package var display: Display?
        /// It is to be shown once more in its own place, without a sound: another connection listens now.
        package var needsRenewal = false
        /// Attempts that the server has refused in a row.
        package var refusals: UInt8 = 0
        /// After a refusal: not again before then, in elapsed time.
        package var notBefore: Instant?

        package init(_ content: NotificationContent, revision: UInt64) {
            self.content = content
            self.revision = revision
        }
    }

    /// Names it in records and to the monitor.
    package let number: UInt64
    package var notification: LocalNotification
    /// nil: its time does not come any more.
    package var target: NotificationTarget?
    /// The time of its calendar at which it was delivered last.
    package var lastLocal: LocalTime?
    package var presentation: Presentation?

    package init(number: UInt64, _ notification: LocalNotification) {
        self.number = number
        self.notification = notification
    }

    /// As the next supervisor knows it: servers and monitors report anew.
    var recorded: NotificationEntry {
        var entry = self
        guard let presentation else { return entry }
        var known = Presentation(presentation.content, revision: presentation.revision)
        known.isWaiting = presentation.isWaiting
        known.display = presentation.display.map { Display(id: $0.id, server: $0.server) }
        entry.presentation = known
        return entry
    }

    /// It counts against the limit: its time is to come, or it is still to be shown.
    package var isPending: Bool { target != nil || presentation?.isWaiting == true }

    /// Clocks that are set back by no more repeat nothing: this is more than an hour of daylight-saving time.
    private static let smallStep: Int64 = 2 * 3_600 * 1_000_000_000

    /// When its time comes, in elapsed time; nil: never, or the clock that it follows is unknown.
    func due(_ clock: NotificationClock?) -> Instant? {
        switch target {
        case nil: nil
        case .elapsed(let instant): instant
        case .time(let time): clock?.elapsed(at: time)
        case .local(let local): clock?.elapsed(at: local)
        }
    }

    /// Aims at the first moment after it is scheduled.
    mutating func aim(from elapsed: Instant, _ clock: NotificationClock?) {
        switch notification.trigger {
        case .now: target = nil
        case .time(let time): target = .time(time)
        case .interval(let interval, _): target = .elapsed(elapsed + interval)
        case .calendar(let calendar, _):
            // Without a clock it waits for one, which `follow` brings.
            target = .local(
                clock.map { calendar.next(after: $0.local(at: elapsed)) } ?? LocalTime(nanoseconds: .max))
        }
    }

    /// Its time has come: aims at the next one, if it repeats. Those that were missed are left out.
    mutating func aimAgain(after elapsed: Instant, _ clock: NotificationClock?) {
        switch (notification.trigger, target) {
        case (.interval(let interval, repeats: true), .elapsed(let last)):
            let missed = max(0, elapsed.since(last).nanoseconds) / max(1, interval.nanoseconds)
            target = .elapsed(last + interval * Int(missed + 1))
        case (.calendar(let calendar, repeats: true), .local(let last)):
            lastLocal = last
            guard let clock else { return }
            target = .local(calendar.next(after: base(at: elapsed, clock)))
        default:
            target = nil
        }
    }

    /// The clock was set, or the time zone has changed: a time of the calendar may come sooner than it did
    /// before. One that was passed over has come.
    mutating func follow(_ clock: NotificationClock, at elapsed: Instant) {
        guard case .calendar(let calendar, _) = notification.trigger, case .local(let local) = target else {
            return
        }
        let next = calendar.next(after: base(at: elapsed, clock))
        if next.nanoseconds < local.nanoseconds { target = .local(next) }
    }

    private func base(at elapsed: Instant, _ clock: NotificationClock) -> LocalTime {
        let local = clock.local(at: elapsed)
        guard let lastLocal, lastLocal.nanoseconds > local.nanoseconds,
            lastLocal.nanoseconds - local.nanoseconds <= Self.smallStep
        else { return local }
        return lastLocal
    }
}
