/// Decides which task runs next, and how much each may store.
///
/// Sessions take turns: the one with the fewest running tasks is next, then the one that was not served for
/// longest. The tasks of a session run in the order in which they were added, unless their host is busy or
/// they wait for another attempt.
package struct TransferQueue: Sendable {
    package struct Limits: Hashable, Sendable {
        package static let mostParallel = 256

        /// Tasks that run at the same time.
        package var parallel: Int
        /// Of those, with the same host.
        package var parallelPerHost: Int
        /// Bytes on the disk, of all tasks together.
        package var diskBytes: Int64
        /// Tasks that are not released.
        package var tasks: Int

        package init(
            parallel: Int = 16, parallelPerHost: Int = 8, diskBytes: Int64 = 16 << 30, tasks: Int = 10_000
        ) {
            self.parallel = parallel
            self.parallelPerHost = parallelPerHost
            self.diskBytes = diskBytes
            self.tasks = tasks
        }
    }

    private enum State: Hashable {
        /// Until this instant; 0: since ever.
        case waiting(until: Int64)
        /// Until there is room on the disk.
        case waitingForRoom
        case running
        /// Finished, or it waits for credentials: it has bytes on the disk, and runs no more.
        case resting
    }

    private struct Entry {
        let session: SessionID
        let host: String
        let isDiscretionary: Bool
        var state: State
        /// Bytes on the disk, or the expected length if that is known.
        var reserved: Int64
    }

    private struct SessionEntry {
        /// In the order of their addition.
        var waiting: [TaskID] = []
        var running = 0
        /// The turn in which a task of it was started last.
        var served: UInt64 = 0
    }

    package let limits: Limits
    /// Whether discretionary tasks may run.
    package var isGoodMoment = true
    private var entries: [TaskID: Entry] = [:]
    private var sessions: [SessionID: SessionEntry] = [:]
    private var hosts: [String: Int] = [:]
    private var running = 0
    /// Discretionary tasks that run or wait.
    private var discretionary = 0
    private var turn: UInt64 = 0
    /// Bytes of all tasks, and of the files that are being copied.
    package private(set) var reserved: Int64 = 0
    /// Tasks that wait for room.
    private var withoutRoom = 0

    package init(_ limits: Limits) { self.limits = limits }

    package var count: Int { entries.count }
    package var isIdle: Bool { running == 0 && sessions.values.allSatisfy(\.waiting.isEmpty) }
    /// Whether tasks run, or wait, that may run in good moments only.
    package var hasDiscretionary: Bool { discretionary > 0 }
    package var hasRoomForTask: Bool { entries.count < limits.tasks }

    // MARK: Tasks

    /// - Parameters:
    ///   - reserved: bytes that it has on the disk already.
    ///   - rests: it is finished, or waits for credentials.
    package mutating func add(
        _ id: TaskID, of session: SessionID, host: String, isDiscretionary: Bool = false, reserved: Int64 = 0,
        rests: Bool = false
    ) {
        guard entries[id] == nil else { return }
        entries[id] = Entry(
            session: session, host: host, isDiscretionary: isDiscretionary,
            state: rests ? .resting : .waiting(until: 0), reserved: reserved)
        self.reserved += reserved
        guard !rests else { return }
        insertWaiting(id, of: session)
        if isDiscretionary { discretionary += 1 }
    }

    /// It has bytes on the disk no more.
    package mutating func remove(_ id: TaskID) {
        leave(id)
        guard let entry = entries.removeValue(forKey: id) else { return }
        reserved -= entry.reserved
        releaseRoom()
        if let session = sessions[entry.session], session.waiting.isEmpty, session.running == 0 {
            sessions[entry.session] = nil
        }
    }

    /// The attempt has ended, or the task was resting; another attempt follows.
    package mutating func wait(_ id: TaskID, until instant: Int64) { enter(id, .waiting(until: instant)) }

    /// The attempt has ended because there is no room; another one follows when there is some.
    package mutating func waitForRoom(_ id: TaskID) { enter(id, .waitingForRoom) }

    package func waitsForRoom(_ id: TaskID) -> Bool { entries[id]?.state == .waitingForRoom }

    /// It is finished, or waits for credentials.
    package mutating func rest(_ id: TaskID) { enter(id, .resting) }

    private mutating func enter(_ id: TaskID, _ state: State) {
        leave(id)
        guard let entry = entries[id] else { return }
        entries[id]?.state = state
        guard state != .resting else { return }
        insertWaiting(id, of: entry.session)
        if state == .waitingForRoom { withoutRoom += 1 }
        if entry.isDiscretionary { discretionary += 1 }
    }

    private mutating func leave(_ id: TaskID) {
        guard let entry = entries[id] else { return }
        switch entry.state {
        case .running:
            running -= 1
            sessions[entry.session]?.running -= 1
            hosts[entry.host, default: 0] -= 1
            if hosts[entry.host] == 0 { hosts[entry.host] = nil }
        case .waiting, .waitingForRoom:
            removeWaiting(id, of: entry.session)
            if entry.state == .waitingForRoom { withoutRoom -= 1 }
        case .resting: return
        }
        entries[id]?.state = .resting
        if entry.isDiscretionary { discretionary -= 1 }
    }

    private mutating func insertWaiting(_ id: TaskID, of session: SessionID) {
        let index = position(of: id, in: session)
        sessions[session, default: SessionEntry()].waiting.insert(id, at: index)
    }

    private mutating func removeWaiting(_ id: TaskID, of session: SessionID) {
        let index = position(of: id, in: session)
        guard let waiting = sessions[session]?.waiting, index < waiting.count, waiting[index] == id else {
            return
        }
        sessions[session]?.waiting.remove(at: index)
    }

    /// Of the first waiting task that is not before this one.
    private func position(of id: TaskID, in session: SessionID) -> Int {
        guard let waiting = sessions[session]?.waiting else { return 0 }
        var range = 0..<waiting.count
        while !range.isEmpty {
            let middle = range.lowerBound + range.count / 2
            range = waiting[middle] < id ? middle + 1..<range.upperBound : range.lowerBound..<middle
        }
        return range.lowerBound
    }

    // MARK: Turns

    /// Starts tasks until a limit is reached.
    ///
    /// - Returns: the tasks to run, in order.
    package mutating func start(at now: Int64) -> [TaskID] {
        var started: [TaskID] = []
        while running < limits.parallel, let id = next(at: now), let entry = entries[id] {
            removeWaiting(id, of: entry.session)
            turn += 1
            sessions[entry.session]?.served = turn
            sessions[entry.session]?.running += 1
            hosts[entry.host, default: 0] += 1
            running += 1
            entries[id]?.state = .running
            started.append(id)
        }
        return started
    }

    private func next(at now: Int64) -> TaskID? {
        let order = sessions.sorted { left, right in
            (left.value.running, left.value.served, left.key) < (
                right.value.running, right.value.served, right.key
            )
        }
        for (_, session) in order {
            if let id = session.waiting.first(where: { isReady($0, at: now) }) { return id }
        }
        return nil
    }

    private func isReady(_ id: TaskID, at now: Int64) -> Bool {
        guard let entry = entries[id], case .waiting(let instant) = entry.state, instant <= now else {
            return false
        }
        return hosts[entry.host, default: 0] < limits.parallelPerHost
            && (isGoodMoment || !entry.isDiscretionary)
    }

    /// The instant at which the next task can run that waits for another attempt; nil: none does, or it could
    /// not run.
    package func nextDeadline(after now: Int64) -> Int64? {
        guard running < limits.parallel else { return nil }
        var next: Int64?
        for session in sessions.values {
            for id in session.waiting {
                guard let entry = entries[id], case .waiting(let instant) = entry.state, instant > now,
                    isGoodMoment || !entry.isDiscretionary
                else { continue }
                next = min(next ?? instant, instant)
            }
        }
        return next
    }

    // MARK: Room

    package enum Room: Hashable, Sendable {
        case granted
        /// There will be room when others are released.
        case later
        /// There will never be: it alone is larger than the limit.
        case never
    }

    /// The task has, or will have, so many bytes.
    package mutating func reserve(_ id: TaskID, bytes: Int64) -> Room {
        guard let entry = entries[id] else { return .never }
        guard bytes > entry.reserved else { return .granted }
        if bytes > limits.diskBytes { return .never }
        guard bytes <= limits.diskBytes - (reserved - entry.reserved) else { return .later }
        reserved += bytes - entry.reserved
        entries[id]?.reserved = bytes
        return .granted
    }

    /// A file of so many bytes is about to be copied. False: there is no room.
    package mutating func beginCopy(bytes: Int64) -> Bool {
        guard bytes <= limits.diskBytes - reserved else { return false }
        reserved += bytes
        return true
    }

    /// The copy has become a task, which is added then, or was removed.
    package mutating func endCopy(bytes: Int64) {
        reserved -= bytes
        releaseRoom()
    }

    /// The task has this many bytes, and reserves no more.
    package mutating func shrink(_ id: TaskID, to bytes: Int64) {
        guard let entry = entries[id], bytes < entry.reserved else { return }
        reserved -= entry.reserved - bytes
        entries[id]?.reserved = bytes
        releaseRoom()
    }

    /// Those that wait for room may try again.
    private mutating func releaseRoom() {
        guard withoutRoom > 0 else { return }
        withoutRoom = 0
        for session in sessions.values {
            for id in session.waiting where entries[id]?.state == .waitingForRoom {
                entries[id]?.state = .waiting(until: 0)
            }
        }
    }
}
