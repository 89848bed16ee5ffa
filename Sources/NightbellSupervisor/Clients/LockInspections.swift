import LinuxSystem
import Logging
package import NightbellCore

/// Sleeping clients that are to be checked for file locks, the next one first.
package struct LockInspections {
    /// Clients that have never been checked.
    private var first: [ClientID] = []
    /// Clients that have been checked before.
    private var again: [(client: ClientID, due: Instant)] = []
    /// No check before this time.
    private var pauseEnd = Instant(nanoseconds: .min)

    /// Between checks of one client: a program that falls asleep again and again is not checked each time.
    package static let pauseOfClient: Duration = .seconds(60)
    /// Between checks of any two clients, at least.
    package static let pause: Duration = .milliseconds(10)
    /// After a check that took longer than this, the pause is a hundred times as long as the check, up to
    /// `pauseOfClient`: the kernel lets no other thread run on the processor that goes through thousands of locks.
    package static let slowCheck: Duration = .milliseconds(5)

    package init() {}

    /// When a turn is needed. A client that was checked before waits for one that happens anyway: while all
    /// sleep, nothing may wake the supervisor.
    package var next: Instant? { first.isEmpty ? nil : pauseEnd }

    /// - Parameter last: when it was checked last.
    package mutating func insert(_ client: ClientID, last: Instant?) {
        guard let last else { return first.append(client) }
        let due = last + Self.pauseOfClient
        // Nearly always the end.
        let place = again.lastIndex { $0.due <= due }.map { $0 + 1 } ?? 0
        again.insert((client, due), at: place)
    }

    package mutating func takeNext(at now: Instant) -> ClientID? {
        guard pauseEnd <= now else { return nil }
        if !first.isEmpty { return first.removeFirst() }
        guard let next = again.first, next.due <= now else { return nil }
        return again.removeFirst().client
    }

    /// A check has begun, or has ended after this time.
    package mutating func pause(at now: Instant, after time: Duration = .zero) {
        pauseEnd = now + (time > Self.slowCheck ? min(time * 100, Self.pauseOfClient) : Self.pause)
    }
}

extension Supervisor {
    /// A client that sleeps with a file lock held blocks others for as long as it sleeps; a warning is logged
    /// once.
    ///
    /// A check takes some hundred microseconds of a processor, and with many locks seconds, on a thread of its own. So
    /// it begins at the end of a turn, for one client in ten milliseconds, after slow checks less often, and for each
    /// client at most once a minute: a lock taken after a check is noticed in a later turn in which the client sleeps.
    func scheduleLockInspection(_ client: ClientID) {
        guard let record = connection(of: client)?.client, record.locks == 0, !record.awaitsLookAtLocks
        else { return }
        record.awaitsLookAtLocks = true
        lockInspections.insert(client, last: record.lookedAtLocks)
    }

    /// Begins to check one client, if it is time for one.
    func inspectLocks() {
        while !lockReader.isReading, let client = lockInspections.takeNext(at: now) {
            guard let record = connection(of: client)?.client else { continue }
            record.awaitsLookAtLocks = false
            // A client that is awake is checked when it sleeps again.
            guard ask({ $0.state(of: client) }) == .suspended else { continue }
            record.lookedAtLocks = now
            lockInspections.pause(at: now)
            lockReader.read(client, record.process.pid)
        }
    }

    /// A client has been checked.
    func noteLocks() {
        guard let (client, count, time) = lockReader.take() else { return }
        lockInspections.pause(at: now, after: time)
        guard let locks = count, locks > 0, let record = connection(of: client)?.client else { return }
        record.locks = locks
        log(
            .locks, .warning, of: supervision.user(of: client),
            "\(record.identifier) sleeps with \(locks) file lock\(locks == 1 ? "" : "s") held")
    }
}
