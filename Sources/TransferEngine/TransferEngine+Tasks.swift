import LinuxSystem
import TransferModel

/// The tasks: how they are added, and end.
extension TransferEngine {
    enum Addition: Sendable {
        /// Stored with the end of the turn.
        case added(TaskID)
        case refused(String)
    }

    /// Adds a task, unless there is one with the same tag.
    ///
    /// - Parameters:
    ///   - body: of an upload; it is copied from its beginning, unless it is being copied for the same tag already.
    ///   - handler: called when the task is there, perhaps before this returns. It is stored with the end of
    ///     that turn.
    func add(
        _ task: TransferTask, tag: String, to session: SessionID, body: consuming OwnedDescriptor?,
        _ handler: @escaping (Addition) -> Void
    ) {
        let body = ClientFile(body, copier)
        if !tag.isEmpty, let id = sessions[session]?.task(tagged: tag) { return handler(.added(id)) }
        if joinCopy(tagged: tag, of: session, handler) { return }
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
            beginCopy(body, for: record, handler)
        }
    }

    func admit(_ record: TransferStore.Record) -> Addition {
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

    /// Ends a task as cancelled; nothing, if it is finished.
    func cancel(_ id: TaskID) {
        guard tasks[id] != nil, !isFinished(id) else { return }
        finish(id, Outcome(failure: .cancelled))
    }

    /// Continues a task that needs credentials, with these header fields.
    ///
    /// - Returns: the reason of a refusal.
    func authorize(_ id: TaskID, _ fields: [HeaderField]) -> String? {
        guard var task = tasks[id], task.record.state == .needsCredentials else {
            return "the task does not need credentials"
        }
        let replaced = Set(fields.map { $0.name.lowercased() })
        task.record.task.fields.removeAll { replaced.contains($0.name.lowercased()) }
        task.record.task.fields += fields
        if let flaw = task.record.task.flaw { return flaw }
        tasks[id] = task
        do throws(TransferError) {
            try store.setTask(id, task.record.task)
            try setState(id, .waiting)
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
    func release(_ id: TaskID) -> String? {
        guard let task = tasks[id] else { return nil }
        guard case .finished(let outcome) = task.record.state else { return "the task is not finished" }
        noteTaken(task, outcome)
        removeTask(id)
        return nil
    }

    func removeTask(_ id: TaskID) {
        guard let task = tasks.removeValue(forKey: id) else { return }
        if let attempt = attempts.removeValue(forKey: id) { multi.stop(attempt.transfer) }
        sessions.change(task.session) { $0.remove(id, tag: task.record.tag) }
        store.remove(id)
        afterCommit { [files] in files.remove(id, of: task.session) }
        queue.remove(id)
        isQueueStale = true
    }

    /// Whether the task is finished or waits for credentials.
    func isSettled(_ id: TaskID) -> Bool {
        switch tasks[id]?.record.state {
        case .finished, .needsCredentials, nil: true
        case .waiting: false
        }
    }

    func isFinished(_ id: TaskID) -> Bool {
        if case .finished = tasks[id]?.record.state { true } else { false }
    }

    func setState(_ id: TaskID, _ state: TaskState) throws(TransferError) {
        guard let session = tasks[id]?.session else { return }
        tasks[id]?.record.state = state
        sessions.change(session) { $0.setState(id, state) }
        try store.setState(id, state)
    }

    /// The task is finished: tells its session, and removes what is not a result.
    func finish(_ id: TaskID, _ outcome: Outcome) {
        guard var task = tasks[id], !endIssue(task, outcome) else { return }
        if let attempt = attempts.removeValue(forKey: id) { multi.stop(attempt.transfer) }
        let wasWaiting = task.record.state == .waiting
        task.isFinishing = false
        task.bytes = outcome.failure == nil ? outcome.bytes : 0
        tasks[id] = task
        do throws(TransferError) {
            try setState(id, .finished(outcome))
        } catch {
            return fail(error)
        }
        // Its file is removed then: after a loss of power it must not be sent again.
        if task.record.task.kind == .upload { store.makePromise() }
        queue.rest(id)
        queue.shrink(id, to: task.bytes)
        isQueueStale = true
        onChange(id, task.session)
        // A client that cancels a task which needs credentials knows of its stop.
        if wasWaiting || outcome.failure == .timedOut { noteEnd(of: id) }
        // The store first: a file without a record is swept up, a record without its file would be a loss.
        afterCommit { [files] in
            files.remove(id, of: task.session, outcome.failure == nil ? [.body] : [.body, .data])
        }
    }
}
