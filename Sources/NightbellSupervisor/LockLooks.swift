import Descriptors
import Logging
import NightbellCore

/// Clients that have fallen asleep and are still to be looked at for file locks, the next one first.
struct LockLooks {
    private var waiting: [(client: ClientID, due: Instant)] = []
    /// Until then none is looked at.
    var pauseEnd = Instant(nanoseconds: .min)

    /// Of one client: a program that falls asleep again and again is not looked at each time.
    static let pauseOfClient: Duration = .seconds(60)
    /// Of all together.
    static let pause: Duration = .milliseconds(10)

    var next: Instant? { waiting.first.map { max($0.due, pauseEnd) } }

    mutating func insert(_ client: ClientID, due: Instant) {
        // Nearly always the last.
        let place = waiting.lastIndex { $0.due <= due }.map { $0 + 1 } ?? 0
        waiting.insert((client, due), at: place)
    }

    mutating func takeNext(at now: Instant) -> ClientID? {
        guard let next, next <= now else { return nil }
        return waiting.removeFirst().client
    }
}

extension Supervisor {
    /// A client that sleeps with a lock held keeps others waiting for as long as it sleeps, which is warned of once.
    ///
    /// To look takes some hundred microseconds, in which nothing fires. So it is done after everything else in a turn, for
    /// one client in ten milliseconds, and for each at most once in a minute: a lock that a client takes after it was
    /// looked at is noticed by then, if it sleeps, or the next time that it does.
    func scheduleLookAtLocks(_ client: ClientID) {
        guard let record = connection(of: client)?.client, !record.hasWarnedOfLocks, !record.awaitsLookAtLocks
        else { return }
        record.awaitsLookAtLocks = true
        let due = record.lookedAtLocks.map { max(now, $0 + LockLooks.pauseOfClient) } ?? now
        lockLooks.insert(client, due: due)
    }

    /// Looks at one client, if it is time for one.
    func lookAtLocks() {
        while let client = lockLooks.takeNext(at: now) {
            guard let record = connection(of: client)?.client else { continue }
            record.awaitsLookAtLocks = false
            // One that is awake is looked at when it sleeps again.
            guard ask({ $0.state(of: client) }) == .suspended else { continue }
            record.lookedAtLocks = now
            lockLooks.pauseEnd = now + LockLooks.pause
            guard let locks = ProcFS.fileLocksHeld(record.process.pid), locks > 0 else { return }
            record.hasWarnedOfLocks = true
            return log(
                .locks, .warning, of: supervision.user(of: client),
                "\(record.identifier) sleeps with \(locks) file locks held")
        }
    }
}
