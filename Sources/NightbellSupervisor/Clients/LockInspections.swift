import LinuxSystem
import Logging
import NightbellCore

/// Sleeping clients that are to be checked for file locks, the next one first.
struct LockInspections {
    private var waiting: [(client: ClientID, due: Instant)] = []
    /// No check before this time.
    var pauseEnd = Instant(nanoseconds: .min)

    /// Between checks of one client: a program that falls asleep again and again is not checked each time.
    static let pauseOfClient: Duration = .seconds(60)
    /// Between checks of any two clients.
    static let pause: Duration = .milliseconds(10)

    var next: Instant? { waiting.first.map { max($0.due, pauseEnd) } }

    mutating func insert(_ client: ClientID, due: Instant) {
        // Nearly always the end.
        let place = waiting.lastIndex { $0.due <= due }.map { $0 + 1 } ?? 0
        waiting.insert((client, due), at: place)
    }

    mutating func takeNext(at now: Instant) -> ClientID? {
        guard let next, next <= now else { return nil }
        return waiting.removeFirst().client
    }
}

extension Supervisor {
    /// A client that sleeps with a file lock held blocks others for as long as it sleeps; a warning is logged
    /// once.
    ///
    /// A check takes some hundred microseconds, in which no fired socket is served. So it runs at the end of a
    /// turn, for one client in ten milliseconds, and for each client at most once a minute: a lock taken after
    /// a check is noticed at the next one while the client sleeps.
    func scheduleLockInspection(_ client: ClientID) {
        guard let record = connection(of: client)?.client, !record.hasWarnedOfLocks, !record.awaitsLookAtLocks
        else { return }
        record.awaitsLookAtLocks = true
        let due = record.lookedAtLocks.map { max(now, $0 + LockInspections.pauseOfClient) } ?? now
        lockInspections.insert(client, due: due)
    }

    /// Checks one client, if it is time for one.
    func inspectLocks() {
        while let client = lockInspections.takeNext(at: now) {
            guard let record = connection(of: client)?.client else { continue }
            record.awaitsLookAtLocks = false
            // A client that is awake is checked when it sleeps again.
            guard ask({ $0.state(of: client) }) == .suspended else { continue }
            record.lookedAtLocks = now
            lockInspections.pauseEnd = now + LockInspections.pause
            guard let locks = ProcFS.fileLocksHeld(record.process.pid), locks > 0 else { return }
            record.hasWarnedOfLocks = true
            return log(
                .locks, .warning, of: supervision.user(of: client),
                "\(record.identifier) sleeps with \(locks) file lock\(locks == 1 ? "" : "s") held")
        }
    }
}
