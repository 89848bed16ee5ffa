package import EventHandlers
import Glibc
import LinuxSystem
package import TransferModel

/// Moves the files of a user's sessions: decides by `TransferQueue` which task runs, has libcurl run it, and
/// stores what has come of it. Confined to the loop's thread.
///
/// The order of writes makes any death harmless. Bytes are appended to a file, and the file's length tells
/// how many there are. The validator is stored before its first bytes are written:
/// a part without one is fetched anew, and one with a validator of before is refused by the server
/// (`If-Range`). After a start of the machine only bytes count that were written to the disk.
package final class TransferEngine {
    struct Task {
        var record: TransferStore.Record
        /// Of the file with the response.
        var bytes: Int64
        /// Of the file to send.
        let bodyBytes: Int64
        /// Attempts in a row that brought nothing.
        var failures = 0
        /// Responses that contradict others.
        var inconsistencies = 0
        /// The longest part that was there at any time: less is no progress.
        var best: Int64 = 0
        var digestFailures = 0
        /// The file system was full for it, and it has not begun a part since.
        var isShortOfDisk = false
        /// The longest part with which the file system was full.
        var bytesOnFullDisk: Int64 = 0
        /// The data is written to the disk, and its digest computed.
        var isFinishing = false

        var id: TaskID { record.id }
        var session: SessionID { record.session }
    }

    package let configuration: TransferConfiguration
    let loop: HandlerLoop
    let files: SessionFiles
    let store: TransferStore
    let multi: CurlMulti
    /// For work that a result waits for.
    let worker: FileWorker
    /// For work that nothing waits for.
    let flusher: FileWorker
    /// For the files of clients, which may be large, or on a file system that hangs.
    let copier: FileWorker
    var queue: TransferQueue
    var tasks: [TaskID: Task] = [:]
    var sessions = SessionTable()
    var attempts: [TaskID: Attempt] = [:]
    var reminders = EndReminders()
    var reminderTimer: LoopTimer?
    var issues: SubscriptionPlan
    /// Of the last issue of each client.
    var issueFacts: [String: IssueFacts] = [:]
    var issueTimer: LoopTimer?
    /// Of `clockChange`; released first.
    var clockWatch: DescriptorWatch?
    /// Reports that the clock on the wall was set; nil: nothing has needed it yet.
    var clockChange: ClockChangeDescriptor?
    /// Files of uploads that are being copied.
    var copies: [TaskID: BodyCopy] = [:]
    var copyTimer: LoopTimer?
    /// Results that are not written to the disk yet, as far as they are still there.
    var unflushed: [TaskID] = []
    var flushTimer: LoopTimer?
    /// In milliseconds, at most.
    static let flushPause: Int64 = 5_000
    /// Nothing is begun any more: see `endInOrder`.
    var isEnding = false
    var endTimer: LoopTimer?
    /// In milliseconds.
    static let longestEnd: Int64 = 2_000
    /// Something in the queue may have changed since it was asked last.
    var isQueueStale = true
    /// Sessions of which a task has ended in this turn, or has begun to wait for room.
    var ended: Set<SessionID> = []
    private var random = SystemRandomNumberGenerator()
    private var elapsedTime = ElapsedTime(after: nil, boot: "", uptime: 0)
    private var queueTimer: LoopTimer?
    private var ageTimer: LoopTimer?
    private var afterCommit: [() -> Void] = []
    /// A task has finished, or needs credentials, or another was added.
    package var onChange: (TaskID, SessionID) -> Void = { _, _ in }
    /// A session has ended, or a task of it needs credentials: its client is to be woken, once that is
    /// stored.
    package var onEnd: (TransferEnd) -> Void = { _ in }
    private(set) var failure: TransferError?

    package init(_ loop: HandlerLoop, _ configuration: TransferConfiguration) throws(TransferError) {
        self.loop = loop
        self.configuration = configuration
        files = try SessionFiles(directory: configuration.directory)
        store = try TransferStore(path: files.storePath)
        multi = try CurlMulti(loop, connections: configuration.limits.parallel)
        worker = try FileWorker(loop)
        flusher = try FileWorker(loop)
        copier = try FileWorker(loop)
        queue = TransferQueue(configuration.limits)
        let stored = try store.issues()
        issues = SubscriptionPlan(begun: stored.mapValues(\.begun))
        issueFacts = stored.mapValues(\.facts)
        queueTimer = LoopTimer(loop) { [unowned self] in isQueueStale = true }
        ageTimer = LoopTimer(loop) { [unowned self] in endOld() }
        reminderTimer = LoopTimer(loop) { [unowned self] in remind() }
        issueTimer = LoopTimer(loop) { [unowned self] in beginIssues() }
        flushTimer = LoopTimer(loop) { [unowned self] in flushResults() }
        copyTimer = LoopTimer(loop) { [unowned self] in lookAtCopies() }
        endTimer = LoopTimer(loop) { loop.stop() }
        try load()
        endOld()
    }

    /// In seconds, while the machine runs: see `ElapsedTime`.
    var elapsedSeconds: Int64 { elapsedTime.now.elapsed }

    private func load() throws(TransferError) {
        let mark = try store.elapsedTime()
        do throws(SystemError) {
            elapsedTime = try ElapsedTime(after: mark)
        } catch {
            throw .system(error)
        }
        let (lastBoot, boot) = (try store.boot(), elapsedTime.now.boot)
        let hasBooted = lastBoot != nil && lastBoot != boot
        let (stored, records) = try store.load()
        files.sweep(
            keeping: Dictionary(uniqueKeysWithValues: records.map { ($0.id, $0.session) }),
            sessions: Set(stored.map(\.id)))
        for session in stored {
            sessions.insert(
                session.id,
                ClientSession(
                    client: session.client, identifier: session.identifier, seen: session.seen,
                    ends: session.ends))
            files.make(session.id)
        }
        for record in records {
            let checked = hasBooted ? try checked(record) : record
            insert(checked)
            if case .finished(let outcome) = checked.state, outcome.bytes > checked.durableBytes {
                flushLater(record.id)
            }
        }
        for record in records where record.task.url == .refused && !isFinished(record.id) {
            finish(record.id, Outcome(failure: .refused("its address is not permitted any more")))
        }
        // Together with the states that follow from it: until then the next process checks everything again.
        if lastBoot != boot { store.setBoot(boot) }
        // One that had only a connection is made again with the next one.
        for id in sessions.ids where !removeIfUnused(id) { scheduleReminder(of: id) }
    }

    /// The machine has started anew, perhaps after a loss of power: only durable bytes count. A file that was
    /// handed over, but not released, is continued as one that was not.
    private func checked(_ record: TransferStore.Record) throws(TransferError) -> TransferStore.Record {
        let size = files.size(record.id, of: record.session, .data)
        let durable = min(size, record.durableBytes)
        var record = record
        if case .finished(let outcome) = record.state {
            guard outcome.failure == nil, outcome.bytes > durable else { return record }
            // An upload is not sent again: its file may be gone, and the server has it.
            record.state =
                record.task.kind == .upload
                ? .finished(Outcome(failure: .storage, status: outcome.status)) : .waiting
            try store.setState(record.id, record.state)
        }
        if files.isKept(record.id, of: record.session) {
            // The store has lost that the client had it. The task goes on with a file of its own.
            files.remove(record.id, of: record.session, [.data])
            record.facts = PartialBody()
            record.durableBytes = 0
            store.setFacts(record.id, record.facts, durableBytes: 0)
        } else if size > durable {
            files.truncate(record.id, of: record.session, to: durable)
        }
        return record
    }

    /// Takes up a task that is stored, or about to be.
    func insert(_ record: TransferStore.Record) {
        let bytes = files.size(record.id, of: record.session, .data)
        let bodyBytes = files.size(record.id, of: record.session, .body)
        var task = Task(record: record, bytes: bytes, bodyBytes: bodyBytes)
        task.best = bytes
        tasks[record.id] = task
        sessions.change(record.session) { session in
            session.add(record.id, tag: record.tag)
            session.setState(record.id, record.state)
        }
        let rests =
            switch record.state {
            case .waiting: false
            case .needsCredentials, .finished: true
            }
        queue.add(
            record.id, of: record.session, host: record.task.url.host,
            isDiscretionary: record.task.isDiscretionary, reserved: bytes + bodyBytes, rests: rests)
        isQueueStale = true
    }

    // MARK: Turns

    /// Starts what can run, and stores the changes. Call it at the end of each turn, before anything is
    /// answered.
    package func endTurn() {
        do throws(TransferError) {
            // A task that ends instead of beginning lets others run.
            while isQueueStale, !isEnding {
                isQueueStale = false
                for id in queue.start(at: BootClock.now()) { try begin(id) }
                queueTimer?.deadline = queue.nextDeadline(after: BootClock.now())
            }
            noteEnds()
            try store.commit()
            let actions = afterCommit
            afterCommit.removeAll()
            for action in actions { action() }
        } catch {
            fail(error)
        }
        if let error = multi.failure { fail(.loop(error)) }
        if isEnding, worker.isIdle, flusher.isIdle { loop.stop() }
    }

    /// Has this done when the changes of this turn are stored.
    func afterCommit(_ action: @escaping () -> Void) { afterCommit.append(action) }

    func fail(_ error: TransferError) {
        if failure == nil { failure = error }
        loop.stop()
    }

    /// Whether nothing runs, and nothing waits but for a good moment.
    package var isIdle: Bool {
        queue.isIdle && worker.isIdle && flusher.isIdle && copier.isIdle && attempts.isEmpty
            && unflushed.isEmpty
    }

    func randomNumber() -> UInt64 { random.next() }

    /// Whether discretionary tasks may run.
    package var isGoodMoment: Bool {
        get { queue.isGoodMoment }
        set {
            guard newValue != queue.isGoodMoment else { return }
            queue.isGoodMoment = newValue
            isQueueStale = true
            if !newValue { interruptDiscretionary() }
        }
    }

    // MARK: Age

    /// Ends tasks, and removes sessions, for which nothing has happened for too long. At the start, and at least
    /// every hour.
    private func endOld() {
        endOldTasks()
        removeOrphans()
        store.setElapsedTime(elapsedTime.now)
        let period = min(3_600, max(1, min(configuration.orphanLifetime, configuration.lifetime) / 4))
        ageTimer?.set(milliseconds: period * 1_000)
    }

    /// Tasks that have waited, or run, for too long; those that begin another attempt are ended then.
    private func endOldTasks() {
        let now = elapsedSeconds
        let old = tasks.filter { _, task in
            switch task.record.state {
            case .waiting, .needsCredentials:
                !task.isFinishing && now - task.record.created >= configuration.lifetime
            case .finished: false
            }
        }
        for id in old.keys.sorted() { finish(id, Outcome(failure: .timedOut)) }
    }

    private func removeOrphans() {
        let now = elapsedSeconds
        for id in sessions.ids {
            // The time of one that ends in this turn begins with it.
            guard let session = sessions[id], session.connections == 0, session.isWhollySettled,
                !ended.contains(id), !hasCopies(id), now - session.seen >= configuration.orphanLifetime
            else { continue }
            removeSession(id)
        }
    }
}
