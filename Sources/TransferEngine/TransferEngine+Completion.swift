import EventHandlers
import TransferModel

/// The completion of a task of which all bytes are there.
extension TransferEngine {
    /// All bytes are there. A download is a result now, and is written to the disk later: after a loss of
    /// power it is fetched again, if it is not released. The response to an upload cannot be had again.
    func conclude(_ attempt: Attempt, status: Int) {
        let id = attempt.id
        guard let task = tasks[id] else { return }
        attempts[id] = nil
        tasks[id]?.isFinishing = true
        // Another task may run meanwhile.
        queue.rest(id)
        isQueueStale = true
        let bytes = attempt.facts.bytes
        if task.record.task.kind == .upload {
            worker.submit(.flush(attempt.file.rawValue)) { [unowned self] result in
                guard case .done = result else { return check(result, attempt, status) }
                setDurable(id, bytes)
                digestOrComplete(attempt, status)
            }
        } else {
            digestOrComplete(attempt, status)
        }
    }

    private func digestOrComplete(_ attempt: Attempt, _ status: Int) {
        guard let task = tasks[attempt.id], task.isFinishing else { return }
        guard task.record.task.wantsDigest || task.record.task.expectedDigest != nil else {
            return complete(attempt, status, digest: nil)
        }
        worker.submit(.digest(attempt.file.rawValue, bytes: attempt.facts.bytes)) { [unowned self] result in
            check(result, attempt, status)
        }
    }

    private func check(_ result: FileWorker.Result, _ attempt: Attempt, _ status: Int) {
        guard let task = tasks[attempt.id], task.isFinishing else { return }
        switch result {
        case .failed, .measured: finish(attempt.id, Outcome(failure: .storage, status: status))
        case .done(let digest):
            if let expected = task.record.task.expectedDigest, digest != expected {
                return restart(attempt, status)
            }
            complete(attempt, status, digest: digest)
        }
    }

    private func complete(_ attempt: Attempt, _ status: Int, digest: [UInt8]?) {
        let id = attempt.id
        guard let task = tasks[id] else { return }
        let bytes = attempt.facts.bytes
        finish(id, Outcome(status: status, bytes: bytes, digest: digest))
        if task.record.durableBytes < bytes { flushLater(id) }
    }

    /// Most results are taken, and released, within a moment: writing them to the disk before would slow down the
    /// other transfers for nothing.
    func flushLater(_ id: TaskID) {
        unflushed.append(id)
        if flushTimer?.deadline == nil { flushTimer?.set(milliseconds: Self.flushPause) }
    }

    func flushResults() {
        for id in unflushed {
            guard let task = tasks[id], case .finished(let outcome) = task.record.state else { continue }
            flusher.submit(.flushFile(path: files.path(id, of: task.session, .data))) {
                [unowned self] result in
                if case .done = result { setDurable(id, outcome.bytes) }
            }
        }
        unflushed.removeAll()
    }

    private func setDurable(_ id: TaskID, _ bytes: Int64) {
        guard tasks[id] != nil else { return }
        tasks[id]?.record.durableBytes = bytes
        store.setDurable(id, bytes: bytes)
    }

    /// The digest is wrong: a part may have been damaged, so the whole is fetched once more.
    private func restart(_ attempt: Attempt, _ status: Int) {
        tasks[attempt.id]?.isFinishing = false
        let count = (tasks[attempt.id]?.digestFailures ?? 0) + 1
        tasks[attempt.id]?.digestFailures = count
        guard count < 2, tasks[attempt.id]?.record.task.isIdempotent == true, drop(attempt) else {
            return finish(attempt.id, Outcome(failure: .digest, status: status))
        }
        retry(attempt.id)
    }

    // MARK: An orderly end

    /// Stops all transfers, and ends the loop when the files are on the disk, or the time for that is over: the
    /// machine may be about to end, after which only durable bytes count.
    func endInOrder() {
        isEnding = true
        for attempt in attempts.values { multi.stop(attempt.transfer) }
        attempts.removeAll()
        for task in tasks.values where task.record.task.kind == .download {
            let (id, bytes) = (task.id, task.bytes)
            guard bytes > task.record.durableBytes else { continue }
            flusher.submit(.flushFile(path: files.path(id, of: task.session, .data))) {
                [unowned self] result in
                if case .done = result { setDurable(id, bytes) }
            }
        }
        endTimer?.set(milliseconds: Self.longestEnd)
    }
}
