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
        /// It may run.
        case ready
        /// Until this instant.
        case delayed(until: Int64)
        /// Until there is room on the disk, and not before this instant.
        case waitingForRoom(notBefore: Int64)
        case running
        /// Finished, or it waits for credentials: it has bytes on the disk, and runs no more.
        case resting
    }

    private struct Entry {
        let session: SessionID
        let lane: Lane
        var state: State
        /// Bytes on the disk, or the expected length if that is known.
        var reserved: Int64
    }

    /// Tasks of a session of which either the first one may run, or none.
    private struct Lane: Hashable {
        let host: String
        let isDiscretionary: Bool
    }

    private struct SessionEntry {
        var tasks = 0
        /// In the order of their addition; no lane is empty.
        var ready: [Lane: SortedList<TaskID>] = [:]
        var running = 0
        /// The turn in which a task of it was started last.
        var served: UInt64 = 0
    }

    private struct Delay: Comparable {
        let instant: Int64
        let task: TaskID

        static func < (left: Delay, right: Delay) -> Bool {
            (left.instant, left.task) < (right.instant, right.task)
        }
    }

    package let limits: Limits
    /// Whether discretionary tasks may run.
    package var isGoodMoment = true
    private var entries: [TaskID: Entry] = [:]
    private var sessions: [SessionID: SessionEntry] = [:]
    /// Those with a task that is ready.
    private var candidates: Set<SessionID> = []
    private var delayed = SortedList<Delay>()
    private var withoutRoom: Set<TaskID> = []
    private var hosts: [String: Int] = [:]
    private var running = 0
    /// Tasks that run or wait, and the discretionary ones of them.
    private var active = 0
    private var discretionary = 0
    private var turn: UInt64 = 0
    /// Bytes of all tasks, and of the files that are being copied.
    package private(set) var reserved: Int64 = 0

    package init(_ limits: Limits) { self.limits = limits }

    package var count: Int { entries.count }
    /// Whether nothing runs, and nothing can that waits: until it is added, or until the moment is good.
    package var isIdle: Bool { active == (isGoodMoment ? 0 : discretionary) && running == 0 }
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
            session: session, lane: Lane(host: host, isDiscretionary: isDiscretionary), state: .resting,
            reserved: reserved)
        self.reserved += reserved
        sessions[session, default: SessionEntry()].tasks += 1
        if !rests { enter(id, .ready) }
    }

    /// It has bytes on the disk no more.
    package mutating func remove(_ id: TaskID) {
        enter(id, .resting)
        guard let entry = entries.removeValue(forKey: id) else { return }
        reserved -= entry.reserved
        releaseRoom()
        sessions[entry.session]?.tasks -= 1
        if sessions[entry.session]?.tasks == 0 { sessions[entry.session] = nil }
    }

    /// The attempt has ended, or the task was resting; another attempt follows.
    package mutating func wait(_ id: TaskID, until instant: Int64) {
        enter(id, instant > 0 ? .delayed(until: instant) : .ready)
    }

    /// The attempt has ended because there is no room; another one follows when there is some.
    ///
    /// - Parameter instant: not before that: tasks that do not fit beside each other would begin in turns, and
    ///   end each other's attempts.
    package mutating func waitForRoom(_ id: TaskID, notBefore instant: Int64) {
        enter(id, .waitingForRoom(notBefore: instant))
    }

    package func waitsForRoom(_ id: TaskID) -> Bool { withoutRoom.contains(id) }

    /// It is finished, or waits for credentials.
    package mutating func rest(_ id: TaskID) { enter(id, .resting) }

    private mutating func enter(_ id: TaskID, _ state: State) {
        guard let entry = entries[id] else { return }
        leave(id, entry)
        entries[id]?.state = state
        switch state {
        case .ready: insertReady(id, entry)
        case .delayed(let instant): delayed.insert(Delay(instant: instant, task: id))
        case .waitingForRoom: withoutRoom.insert(id)
        case .running:
            running += 1
            sessions[entry.session]?.running += 1
            hosts[entry.lane.host, default: 0] += 1
        case .resting: return
        }
        active += 1
        if entry.lane.isDiscretionary { discretionary += 1 }
    }

    private mutating func leave(_ id: TaskID, _ entry: Entry) {
        switch entry.state {
        case .ready: removeReady(id, entry)
        case .delayed(let instant): delayed.remove(Delay(instant: instant, task: id))
        case .waitingForRoom: withoutRoom.remove(id)
        case .running:
            running -= 1
            sessions[entry.session]?.running -= 1
            hosts[entry.lane.host, default: 0] -= 1
            if hosts[entry.lane.host] == 0 { hosts[entry.lane.host] = nil }
        case .resting: return
        }
        active -= 1
        if entry.lane.isDiscretionary { discretionary -= 1 }
    }

    private mutating func insertReady(_ id: TaskID, _ entry: Entry) {
        sessions[entry.session]?.ready[entry.lane, default: SortedList()].insert(id)
        candidates.insert(entry.session)
    }

    private mutating func removeReady(_ id: TaskID, _ entry: Entry) {
        sessions[entry.session]?.ready[entry.lane]?.remove(id)
        guard sessions[entry.session]?.ready[entry.lane]?.isEmpty == true else { return }
        sessions[entry.session]?.ready[entry.lane] = nil
        if sessions[entry.session]?.ready.isEmpty == true { candidates.remove(entry.session) }
    }

    // MARK: Turns

    /// Starts tasks until a limit is reached.
    ///
    /// - Returns: the tasks to run, in order.
    package mutating func start(at now: Int64) -> [TaskID] {
        for delay in delayed.removePrefix(where: { $0.instant <= now }) {
            guard let entry = entries[delay.task] else { continue }
            entries[delay.task]?.state = .ready
            insertReady(delay.task, entry)
        }
        var started: [TaskID] = []
        while running < limits.parallel, let (session, id) = next() {
            turn += 1
            sessions[session]?.served = turn
            enter(id, .running)
            started.append(id)
        }
        return started
    }

    private func next() -> (SessionID, TaskID)? {
        var best: (rank: (Int, UInt64, SessionID), task: TaskID)?
        for id in candidates {
            guard let session = sessions[id] else { continue }
            let rank = (session.running, session.served, id)
            if let best, best.rank < rank { continue }
            guard let task = first(of: session) else { continue }
            best = (rank, task)
        }
        return best.map { ($0.rank.2, $0.task) }
    }

    /// The first of its tasks of which the host is not busy.
    private func first(of session: SessionEntry) -> TaskID? {
        session.ready.compactMap { lane, tasks in
            hosts[lane.host, default: 0] < limits.parallelPerHost && (isGoodMoment || !lane.isDiscretionary)
                ? tasks.first : nil
        }.min()
    }

    /// The instant at which the next task can run that waits for another attempt; nil: none does, or it could
    /// not run.
    package func nextDeadline(after now: Int64) -> Int64? {
        guard running < limits.parallel else { return nil }
        return delayed.first { delay in
            delay.instant > now && (isGoodMoment || entries[delay.task]?.lane.isDiscretionary == false)
        }?.instant
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
        for id in withoutRoom {
            guard case .waitingForRoom(let instant) = entries[id]?.state else { continue }
            enter(id, .delayed(until: instant))
        }
    }
}
