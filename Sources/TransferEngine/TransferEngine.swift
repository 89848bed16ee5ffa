package import EventHandlers
import Glibc
package import LinuxSystem
package import TransferModel

/// Moves the files of a user's sessions: decides by `TransferQueue` which task runs, has libcurl run it, and
/// stores what has come of it. Confined to the loop's thread.
///
/// The order of writes makes any death harmless. Bytes are appended to a file, and the file's length tells
/// how many there are. The validator is stored at the end of the turn in which its first bytes were written:
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
        /// The data is written to the disk, and its digest computed.
        var isFinishing = false

        var id: TaskID { record.id }
        var session: SessionID { record.session }
    }

    struct Session {
        let client: String
        let identifier: String
        var seen: Int64
        /// How often all its tasks were finished, or one needed credentials.
        var ends: UInt64 = 0
        var connections = 0
        /// When the end is told again, unless its client has come for the results.
        var remindsAt: Int64?
        /// How often it was told again.
        var reminders = 0
        var tasks: Set<TaskID> = []
        var tags: [String: TaskID] = [:]
    }

    private struct Name: Hashable {
        let client: String
        let identifier: String
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
    private(set) var sessions: [SessionID: Session] = [:]
    private var names: [Name: SessionID] = [:]
    var attempts: [TaskID: Attempt] = [:]
    private var random = SystemRandomNumberGenerator()
    private var elapsedTime = ElapsedTime(after: nil, boot: "", uptime: 0)
    private var queueTimer: LoopTimer?
    private var orphanTimer: LoopTimer?
    var issueTimer: LoopTimer?
    var issues: SubscriptionPlan
    /// Of the last issue of each client.
    var issueFacts: [String: IssueFacts] = [:]
    private var reminderTimer: LoopTimer?
    /// The first pause before an end is told again, which doubles. A client that was told of it may have died
    /// meanwhile, and the supervisor may have heard of the end before it heard of the death.
    private static let firstReminder: Int64 = 10_000_000_000
    /// Something in the queue may have changed since it was asked last.
    var isQueueStale = true
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
        orphanTimer = LoopTimer(loop) { [unowned self] in
            endOldTasks()
            removeOrphans()
        }
        reminderTimer = LoopTimer(loop) { [unowned self] in remind() }
        issueTimer = LoopTimer(loop) { [unowned self] in beginIssues() }
        try load()
        removeOrphans()
    }

    /// In seconds, while the machine runs: see `ElapsedTime`.
    var elapsedSeconds: Int64 { mark.elapsed }

    private var mark: ElapsedTime.Mark { elapsedTime.mark(uptime: Self.uptime) }

    private static var uptime: Int64 { BootClock.now() / 1_000_000_000 }

    private func load() throws(TransferError) {
        let boot: String
        do throws(SystemError) {
            boot = try BootClock.bootID()
        } catch {
            throw .system(error)
        }
        let lastBoot = try store.boot()
        let hasBooted = lastBoot != nil && lastBoot != boot
        elapsedTime = ElapsedTime(
            after: try store.elapsedTime(), boot: boot, uptime: Self.uptime)
        let (stored, records) = try store.load()
        files.sweep(
            keeping: Dictionary(uniqueKeysWithValues: records.map { ($0.id, $0.session) }),
            sessions: Set(stored.map(\.id)))
        for session in stored {
            sessions[session.id] = Session(
                client: session.client, identifier: session.identifier, seen: session.seen,
                ends: session.ends)
            files.make(session.id)
            names[Name(client: session.client, identifier: session.identifier)] = session.id
        }
        for record in records {
            insert(hasBooted ? try checked(record) : record)
        }
        // Together with the states that follow from it: until then the next process checks everything again.
        if lastBoot != boot { store.setBoot(boot) }
        for id in sessions.keys { scheduleReminder(of: id) }
    }

    /// The machine has started anew, perhaps after a loss of power: only durable bytes count. A file that was
    /// handed over, but not released, is continued as one that was not.
    private func checked(_ record: TransferStore.Record) throws(TransferError) -> TransferStore.Record {
        let size = files.size(record.id, of: record.session, .data)
        let kept = min(size, record.durableBytes)
        var record = record
        if case .finished(let outcome) = record.state {
            guard outcome.failure == nil, outcome.bytes > kept else { return record }
            // An upload is not sent again: its file may be gone, and the server has it.
            record.state =
                record.task.kind == .upload
                ? .finished(Outcome(failure: .storage, status: outcome.status)) : .waiting
            try store.setState(record.id, record.state)
        }
        if size > kept { files.truncate(record.id, of: record.session, to: kept) }
        return record
    }

    private func insert(_ record: TransferStore.Record) {
        let bytes = files.size(record.id, of: record.session, .data)
        let bodyBytes = files.size(record.id, of: record.session, .body)
        var task = Task(record: record, bytes: bytes, bodyBytes: bodyBytes)
        task.best = bytes
        tasks[record.id] = task
        sessions[record.session]?.tasks.insert(record.id)
        if !record.tag.isEmpty { sessions[record.session]?.tags[record.tag] = record.id }
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
            for id in ended.sorted() where isWhollySettled(id) || waitsForReleases(id) { noteEnd(of: id) }
            ended.removeAll()
            if isQueueStale {
                isQueueStale = false
                for id in queue.start(at: BootClock.now()) { try begin(id) }
                let now = BootClock.now()
                queueTimer?.deadline = queue.nextDeadline(after: now)
            }
            try store.commit()
            for action in afterCommit { action() }
            afterCommit.removeAll()
        } catch {
            fail(error)
        }
        if let error = multi.failure { fail(.loop(error)) }
    }

    func fail(_ error: TransferError) {
        if failure == nil { failure = error }
        loop.stop()
    }

    /// Whether nothing runs and nothing waits.
    package var isIdle: Bool {
        queue.isIdle && worker.isIdle && flusher.isIdle && copier.isIdle && attempts.isEmpty
    }

    func randomNumber() -> UInt64 { random.next() }

    // MARK: Sessions

    /// A client connects to the session, which is made if there is none.
    package func openSession(client: String, identifier: String) -> SessionID {
        let id = session(client: client, identifier: identifier)
        sessions[id]?.connections += 1
        sessions[id]?.reminders = 0
        return id
    }

    /// nil: there is none.
    func sessionID(client: String, identifier: String) -> SessionID? {
        names[Name(client: client, identifier: identifier)]
    }

    /// The session, which is made if there is none.
    func session(client: String, identifier: String) -> SessionID {
        let name = Name(client: client, identifier: identifier)
        if let id = names[name] { return id }
        let now = elapsedSeconds
        let id = store.addSession(client: client, identifier: identifier, seen: now)
        files.make(id)
        sessions[id] = Session(client: client, identifier: identifier, seen: now)
        names[name] = id
        return id
    }

    /// A connection to the session has ended.
    ///
    /// - Parameter owesResults: results were reported on it, and not released: the client may have died while
    ///   it handled them.
    package func leaveSession(_ id: SessionID, owesResults: Bool) {
        guard let session = sessions[id] else { return }
        sessions[id]?.connections = session.connections - 1
        sessions[id]?.seen = elapsedSeconds
        if !removeIfUnused(id) {
            store.setSeen(id, elapsedSeconds)
            if owesResults, session.connections == 1, isWhollySettled(id) { noteEnd(of: id) }
            scheduleReminder(of: id)
        }
    }

    /// - Returns: whether it had neither a task nor a connection.
    @discardableResult
    func removeIfUnused(_ id: SessionID) -> Bool {
        guard let session = sessions[id], session.tasks.isEmpty, session.connections == 0 else {
            return false
        }
        removeSession(id)
        return true
    }

    private func removeSession(_ id: SessionID) {
        guard let session = sessions[id] else { return }
        for task in session.tasks { removeTask(task) }
        names[Name(client: session.client, identifier: session.identifier)] = nil
        sessions[id] = nil
        store.remove(id)
        afterCommit.append { [files] in files.remove(id) }
    }

    /// Its user has quit a client: its tasks are cancelled, and nothing of them is kept.
    ///
    /// - Returns: its sessions.
    package func removeSessions(of client: String) -> [SessionID] {
        let ids = sessions.filter { $0.value.client == client }.map(\.key).sorted()
        for id in ids { removeSession(id) }
        return ids
    }

    // MARK: Ends

    /// A task has finished, or needs credentials.
    func noteEnd(of task: TaskID) {
        guard let id = tasks[task]?.session else { return }
        if needsCredentials(task) { noteEnd(of: id) } else { ended.insert(id) }
    }

    private func noteEnd(of id: SessionID) {
        guard let session = sessions[id] else { return }
        let ends = session.ends + 1
        sessions[id]?.ends = ends
        store.setEnds(id, ends)
        let end = end(of: id, session, ends)
        afterCommit.append { [unowned self] in onEnd(end) }
        scheduleReminder(of: id)
    }

    private func scheduleReminder(of id: SessionID) {
        guard let session = sessions[id], session.connections == 0, owesEnd(session, id) else { return }
        let pause = Self.firstReminder << Int64(min(session.reminders, 10))
        let due = BootClock.now() + pause
        sessions[id]?.remindsAt = due
        reminderTimer?.deadline = min(reminderTimer?.deadline ?? .max, due)
    }

    private func remind() {
        let now = BootClock.now()
        for (id, session) in sessions {
            guard let due = session.remindsAt, due <= now else { continue }
            sessions[id]?.remindsAt = nil
            guard session.connections == 0, owesEnd(session, id) else { continue }
            sessions[id]?.reminders += 1
            noteEnd(of: id)
        }
        reminderTimer?.deadline = sessions.values.compactMap(\.remindsAt).min()
    }

    /// Whether its client has results to take, or credentials to give.
    private func owesEnd(_ session: Session, _ id: SessionID) -> Bool {
        !session.tasks.isEmpty
            && (isWhollySettled(id) || waitsForReleases(id)
                || session.tasks.contains { needsCredentials($0) })
    }

    /// Whether all tasks of the session that are not finished wait for room, which its client can make: it is told
    /// of the results, and releases them.
    private func waitsForReleases(_ id: SessionID) -> Bool {
        guard let tasks = sessions[id]?.tasks else { return false }
        return tasks.contains { isSettled($0) }
            && tasks.allSatisfy { isSettled($0) || queue.waitsForRoom($0) }
    }

    /// A task waits for room: its client may have to be told of the results that it can release.
    func noteWait(of task: TaskID) {
        guard let id = tasks[task]?.session else { return }
        ended.insert(id)
    }

    /// It grows from one end to the next one, also if the session was removed in between, and was made again:
    /// each has a larger ID than those before.
    private static func number(of id: SessionID, _ ends: UInt64) -> UInt64 {
        UInt64(clamping: id.rawValue) << 32 | ends & 0xFFFF_FFFF
    }

    /// The last ends of all sessions with results that are not released, or with tasks that need credentials.
    package var ends: [TransferEnd] {
        sessions.sorted { $0.key < $1.key }.compactMap { id, session in
            guard session.ends > 0, owesEnd(session, id) else { return nil }
            return end(of: id, session, session.ends)
        }
    }

    private func end(of id: SessionID, _ session: Session, _ ends: UInt64) -> TransferEnd {
        TransferEnd(
            client: session.client, session: session.identifier, number: Self.number(of: id, ends),
            isDiscretionary: session.tasks.allSatisfy { tasks[$0]?.record.task.isDiscretionary ?? false })
    }

    private func needsCredentials(_ id: TaskID) -> Bool { tasks[id]?.record.state == .needsCredentials }

    /// Every hour, and at the start.
    private func removeOrphans() {
        let now = elapsedSeconds
        for (id, session) in sessions where session.connections == 0 {
            guard now - session.seen >= configuration.orphanLifetime else { continue }
            if session.tasks.allSatisfy({ isSettled($0) }) { removeSession(id) }
        }
        store.setElapsedTime(mark)
        let period = min(3_600, max(1, min(configuration.orphanLifetime, configuration.lifetime) / 4))
        orphanTimer?.set(milliseconds: period * 1_000)
    }

    /// Ends tasks that have waited, or run, for too long; those that begin another attempt are ended then.
    private func endOldTasks() {
        let now = elapsedSeconds
        let old = tasks.filter { _, task in
            task.record.state == .waiting && !task.isFinishing
                && now - task.record.created >= configuration.lifetime
        }
        for id in old.keys.sorted() { finish(id, Outcome(failure: .timedOut)) }
    }

    /// Whether the task is finished or waits for credentials.
    package func isSettled(_ id: TaskID) -> Bool {
        switch tasks[id]?.record.state {
        case .finished, .needsCredentials, nil: true
        case .waiting: false
        }
    }

    /// The tasks of the session, in their order.
    package func taskIDs(of session: SessionID) -> [TaskID] { sessions[session]?.tasks.sorted() ?? [] }

    package func isWhollySettled(_ session: SessionID) -> Bool {
        sessions[session]?.tasks.allSatisfy { isSettled($0) } ?? true
    }

    // MARK: Tasks

    package enum Addition: Sendable {
        /// Stored with the end of the turn.
        case added(TaskID)
        case refused(String)
    }

    /// Adds a task, unless there is one with the same tag.
    ///
    /// - Parameters:
    ///   - body: of an upload; it is copied from its beginning.
    ///   - handler: called when the task is there, perhaps before this returns. It is stored with the end of
    ///     that turn.
    package func add(
        _ task: TransferTask, tag: String, to session: SessionID, body: consuming OwnedDescriptor?,
        _ handler: @escaping (Addition) -> Void
    ) {
        if !tag.isEmpty, let id = sessions[session]?.tags[tag] { return handler(.added(id)) }
        if let flaw = task.flaw { return handler(.refused(flaw)) }
        guard queue.hasRoomForTask else { return handler(.refused("there are too many tasks")) }
        let id = store.nextTaskID()
        let record = TransferStore.Record(
            id: id, session: session, tag: tag, task: task, state: .waiting, created: elapsedSeconds,
            wasTried: false, facts: PartialBody(), durableBytes: 0)
        switch task.kind {
        case .download: handler(admit(record))
        case .upload:
            guard let body else { return handler(.refused("an upload needs a file")) }
            copy(OpenFile(body), for: record, handler)
        }
    }

    func admit(_ record: TransferStore.Record) -> Addition {
        // A second request with the same tag may have come while the file was copied.
        if !record.tag.isEmpty, let id = sessions[record.session]?.tags[record.tag] { return .added(id) }
        guard sessions[record.session] != nil else { return .refused("the session is gone") }
        do throws(TransferError) {
            try store.add(record)
        } catch {
            return .refused("\(error)")
        }
        insert(record)
        onChange(record.id, record.session)
        return .added(record.id)
    }

    private func copy(
        _ source: OpenFile, for record: TransferStore.Record, _ handler: @escaping (Addition) -> Void
    ) {
        let target: OpenFile
        let bytes: Int64
        do throws(SystemError) {
            var status = stat()
            _ = try systemCall("fstat") { unsafe fstat(source.rawValue, &status) }
            guard status.st_mode & S_IFMT == S_IFREG else {
                return handler(.refused("only a regular file can be sent"))
            }
            bytes = Int64(status.st_size)
            target = try files.open(record.id, of: record.session, .body)
        } catch {
            return handler(.refused("\(error)"))
        }
        guard files.hasRoom(for: bytes + copying), queue.beginCopy(bytes: bytes) else {
            files.remove(record.id, of: record.session)
            return handler(.refused("there is no room for the file"))
        }
        copying += bytes
        copier.submit(.copy(from: source.rawValue, to: target.rawValue, bytes: bytes)) {
            [unowned self] result in
            // Both files were open until here.
            withExtendedLifetime((source, target)) {}
            copying -= bytes
            queue.endCopy(bytes: bytes)
            var addition: Addition
            switch result {
            case .done: addition = admit(record)
            case .failed(let error): addition = .refused("\(error)")
            }
            if case .added(record.id) = addition {
            } else {
                files.remove(record.id, of: record.session)
            }
            handler(addition)
        }
    }

    /// Ends a task as cancelled; nothing, if it is finished.
    package func cancel(_ id: TaskID) {
        guard let task = tasks[id] else { return }
        if case .finished = task.record.state { return }
        finish(id, Outcome(failure: .cancelled))
    }

    /// Continues a task that needs credentials, with these header fields.
    ///
    /// - Returns: the reason of a refusal.
    package func authorize(_ id: TaskID, _ fields: [HeaderField]) -> String? {
        guard var task = tasks[id], task.record.state == .needsCredentials else {
            return "the task does not need credentials"
        }
        let replaced = Set(fields.map { $0.name.lowercased() })
        task.record.task.fields.removeAll { replaced.contains($0.name.lowercased()) }
        task.record.task.fields += fields
        if let flaw = task.record.task.flaw { return flaw }
        task.record.state = .waiting
        tasks[id] = task
        do throws(TransferError) {
            try store.setTask(id, task.record.task)
            try store.setState(id, .waiting)
        } catch {
            return "\(error)"
        }
        queue.wait(id, until: 0)
        isQueueStale = true
        onChange(id, task.session)
        return nil
    }

    /// Removes a finished task, and its file.
    ///
    /// - Returns: the reason of a refusal.
    package func release(_ id: TaskID) -> String? {
        guard let task = tasks[id] else { return nil }
        guard case .finished(let outcome) = task.record.state else { return "the task is not finished" }
        noteTaken(task, outcome)
        removeTask(id)
        return nil
    }

    func removeTask(_ id: TaskID) {
        guard let task = tasks.removeValue(forKey: id) else { return }
        if let attempt = attempts.removeValue(forKey: id) { multi.stop(attempt.transfer) }
        sessions[task.session]?.tasks.remove(id)
        if !task.record.tag.isEmpty { sessions[task.session]?.tags[task.record.tag] = nil }
        store.remove(id)
        afterCommit.append { [files] in files.remove(id, of: task.session) }
        queue.remove(id)
        isQueueStale = true
    }

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

    /// The task is finished: tells its session, and removes what is not a result.
    func finish(_ id: TaskID, _ outcome: Outcome) {
        guard var task = tasks[id], !endIssue(task, outcome) else { return }
        if let attempt = attempts.removeValue(forKey: id) { multi.stop(attempt.transfer) }
        let wasWaiting = task.record.state == .waiting
        task.record.state = .finished(outcome)
        task.isFinishing = false
        task.bytes = outcome.failure == nil ? outcome.bytes : 0
        tasks[id] = task
        do throws(TransferError) {
            try store.setState(id, task.record.state)
        } catch {
            return fail(error)
        }
        // Its file is removed then: after a loss of power it must not be sent again.
        if task.record.task.kind == .upload { store.makePromise() }
        queue.rest(id)
        queue.shrink(id, to: task.bytes)
        isQueueStale = true
        onChange(id, task.session)
        // A task that needed credentials, and is cancelled, has stopped before.
        if wasWaiting { noteEnd(of: id) }
        // The store first: a file without a record is swept up, a record without its file would be a loss.
        afterCommit.append { [files] in
            files.remove(id, of: task.session, outcome.failure == nil ? [.body] : [.body, .data])
        }
    }

    /// Bytes of the files that are being copied, of which a part may be on the disk already.
    private var copying: Int64 = 0

    // MARK: After the turn

    /// Done when the changes of this turn are stored.
    private var afterCommit: [() -> Void] = []
    /// Sessions of which a task has ended in this turn.
    private var ended: Set<SessionID> = []
}
