import CCurl
import Glibc
import LinuxSystem
import TransferModel

/// The attempts: the request of a task, the judgement of its response, and what follows from its end.
extension TransferEngine {
    // MARK: The begin

    /// Runs a task that the queue has started.
    func begin(_ id: TaskID) throws(TransferError) {
        guard let task = tasks[id] else { return }
        let record = task.record
        if record.wasTried {
            // The process ended in the middle of it: the server may have done what was asked for.
            return finish(id, Outcome(failure: .interrupted))
        }
        if elapsedSeconds - record.created >= configuration.lifetime {
            return finish(id, Outcome(failure: .timedOut))
        }
        let attempt: Attempt
        do throws(SystemError) {
            attempt = try makeAttempt(task)
        } catch  where error.code == ENOENT {
            // The file of an upload is gone.
            return finish(id, Outcome(failure: .storage))
        } catch {
            // Such as a shortage of descriptors.
            return retry(id)
        }
        attempts[id] = attempt
        if attempt.asked == .nothing {
            return conclude(attempt, status: 200)
        }
        if !record.task.isIdempotent { setTried(id, true) }
        // libcurl begins in the next turn, when this is stored.
        multi.start(attempt.transfer)
    }

    private func makeAttempt(_ task: Task) throws(SystemError) -> Attempt {
        let record = task.record
        let file = try files.open(task.id, of: task.session, .data)
        var facts = record.facts
        facts.bytes = try file.size()
        if record.task.kind == .upload { facts = PartialBody() }
        let asked = facts.request
        var fields = record.task.fields
        var start: Int64?
        if case .range(let first, let validator) = asked {
            start = first
            fields.append(HeaderField("If-Range", validator.text))
        }
        var body: OpenFile?
        if record.task.kind == .upload { body = try files.openBody(task.id, of: task.session) }
        let order = CurlTransfer.Order(
            url: record.task.url, method: record.task.method, fields: fields, proxy: record.task.proxy,
            rangeStart: start, body: body.map { ($0.rawValue, task.bodyBytes) },
            authorities: configuration.authorities, stallSeconds: configuration.stallTime,
            connectSeconds: configuration.connectTime, needsNewConnection: !record.task.isIdempotent)
        let transfer: CurlTransfer
        do throws(TransferError) {
            transfer = try CurlTransfer(order)
        } catch {
            throw SystemError(code: ENOMEM, call: "curl_easy_init")
        }
        let attempt = Attempt(task.id, transfer, file: file, body: body, facts: facts, asked: asked)
        unsafe transfer.onData = { [unowned self, unowned attempt] bytes in
            unsafe self.receive(bytes, attempt)
        }
        transfer.onEnd = { [unowned self, unowned attempt] code in end(attempt, code) }
        return attempt
    }

    // MARK: The response

    private func judge(_ attempt: Attempt) {
        guard attempt.decision == nil, let head = attempt.transfer.head else { return }
        let decision = attempt.facts.decide(head, asked: attempt.asked)
        attempt.decision = decision
        switch decision {
        case .append(let facts):
            attempt.facts = facts
            reserve(attempt, facts.total)
            store.setFacts(attempt.id, facts, durableBytes: tasks[attempt.id]?.record.durableBytes ?? 0)
            tasks[attempt.id]?.record.facts = facts
        case .replace(let facts):
            reserve(attempt, facts.total)
            guard attempt.stop == nil else { return }
            do throws(SystemError) {
                try attempt.file.truncate(to: 0)
            } catch {
                attempt.stop = .storage
                return
            }
            attempt.facts = facts
            attempt.checkpoint = 0
            setFacts(attempt.id, facts, bytes: 0)
        case .complete, .startOver, .retry, .needsCredentials, .fail: break
        }
    }

    /// The part that is there is another one now: nothing of it is on the disk for sure.
    private func setFacts(_ id: TaskID, _ facts: PartialBody, bytes: Int64) {
        let had = tasks[id]?.record.facts.validator != nil
        tasks[id]?.record.facts = facts
        tasks[id]?.record.durableBytes = 0
        tasks[id]?.bytes = bytes
        store.setFacts(id, facts, durableBytes: 0)
        guard had else { return }
        // The validator of the former part must not be found with bytes of this one.
        store.makePromise()
        do throws(TransferError) {
            try store.commit()
        } catch {
            fail(error)
        }
    }

    private func reserve(_ attempt: Attempt, _ bytes: Int64?) {
        guard let bytes, let task = tasks[attempt.id] else { return }
        // A server may promise any length.
        let (sum, isTooLarge) = task.bodyBytes.addingReportingOverflow(bytes)
        switch queue.reserve(attempt.id, bytes: isTooLarge ? .max : sum) {
        case .granted: break
        case .later: attempt.stop = .noRoom
        case .never: attempt.stop = .tooLarge
        }
    }

    private func receive(_ bytes: UnsafeRawBufferPointer, _ attempt: Attempt) -> CurlTransfer.Verdict {
        judge(attempt)
        guard attempt.stop == nil else { return .refused }
        guard attempt.stores else {
            attempt.droppedBytes += bytes.count
            guard attempt.droppedBytes <= Attempt.mostDroppedBytes else {
                attempt.stop = .judged
                return .refused
            }
            return .accepted
        }
        let end = attempt.facts.bytes + Int64(bytes.count)
        if let total = attempt.facts.total {
            if end > total { attempt.stop = .tooLong }
        } else {
            reserve(attempt, end)
        }
        guard attempt.stop == nil else { return .refused }
        if end >= attempt.nextLookForRoom {
            guard files.hasRoom(for: max(Int64(bytes.count), files.roomDistance)) else {
                attempt.stop = .diskFull
                return .refused
            }
            attempt.nextLookForRoom = end + files.roomDistance
        }
        do throws(SystemError) {
            try unsafe attempt.file.write(bytes, at: attempt.facts.bytes)
        } catch {
            attempt.stop = error.code == ENOSPC || error.code == EDQUOT ? .diskFull : .storage
            return .refused
        }
        attempt.facts.bytes = end
        tasks[attempt.id]?.bytes = end
        if end - attempt.checkpoint >= Attempt.checkpointDistance { writeToDisk(attempt) }
        return .accepted
    }

    private func writeToDisk(_ attempt: Attempt) {
        let bytes = attempt.facts.bytes
        let validator = attempt.facts.validator
        attempt.checkpoint = bytes
        flusher.submit(.flush(attempt.file.rawValue)) {
            [unowned self, file = attempt.file] result in
            withExtendedLifetime(file) {}
            guard case .done = result, let task = tasks[attempt.id], task.record.facts.validator == validator,
                task.bytes >= bytes, task.record.state == .waiting
            else { return }
            tasks[attempt.id]?.record.durableBytes = bytes
            store.setDurable(attempt.id, bytes: bytes)
        }
    }

    // MARK: The end

    private func end(_ attempt: Attempt, _ code: CURLcode) {
        guard let task = tasks[attempt.id] else { return }
        if code == CURLE_OK { judge(attempt) }
        let status = attempt.transfer.head?.status ?? 0
        // A POST that got no answer is not repeated.
        if attempt.decision == nil, !task.record.task.isIdempotent, attempt.transfer.mayHaveArrived {
            return finish(attempt.id, Outcome(failure: .interrupted))
        }
        if let stop = attempt.stop, stop != .judged { return endStopped(attempt, stop, status) }
        switch attempt.decision {
        case .append, .replace: endBody(attempt, code, status)
        case .complete(let facts):
            attempt.facts = facts
            conclude(attempt, status: status)
        case .startOver: startOver(attempt)
        case .retry(let seconds):
            guard task.record.task.isIdempotent else {
                return finish(attempt.id, Outcome(failure: .status(status), status: status))
            }
            leave(attempt)
            retry(attempt.id, afterSeconds: seconds)
        case .needsCredentials: challenge(attempt)
        case .fail(let failure):
            finish(attempt.id, Outcome(failure: failure, status: status))
        case nil: endWithoutResponse(attempt, code)
        }
    }

    private func endBody(_ attempt: Attempt, _ code: CURLcode, _ status: Int) {
        let isWhole = code == CURLE_OK && attempt.facts.end == .whole
        if !isWhole, tasks[attempt.id]?.record.task.isIdempotent == false {
            // The server has done it, and what it has said about that is lost.
            return finish(attempt.id, Outcome(failure: .interrupted, status: status))
        }
        guard code == CURLE_OK else {
            leave(attempt)
            return retry(attempt.id)
        }
        switch attempt.facts.end {
        case .whole: conclude(attempt, status: status)
        case .cut:
            leave(attempt)
            retry(attempt.id)
        case .tooLong: startOver(attempt)
        }
    }

    private func endStopped(_ attempt: Attempt, _ stop: Attempt.Stop, _ status: Int) {
        if tasks[attempt.id]?.record.task.isIdempotent == false {
            // The server has done it: it is not asked again.
            switch stop {
            case .noRoom, .diskFull:
                return finish(attempt.id, Outcome(failure: .storage, status: status))
            case .tooLong: return finish(attempt.id, Outcome(failure: .interrupted, status: status))
            case .tooLarge, .storage, .judged: break
            }
        }
        switch stop {
        case .noRoom:
            // Two parts that both wait for the room of the other would wait for ever.
            guard drop(attempt) else { return finish(attempt.id, Outcome(failure: .storage)) }
            leave(attempt)
            queue.waitForRoom(attempt.id)
            noteWait(of: attempt.id)
            isQueueStale = true
        case .diskFull:
            leave(attempt)
            retry(attempt.id)
        case .tooLarge: finish(attempt.id, Outcome(failure: .tooLarge))
        case .tooLong: startOver(attempt)
        case .storage: finish(attempt.id, Outcome(failure: .storage))
        case .judged: break
        }
    }

    private func endWithoutResponse(_ attempt: Attempt, _ code: CURLcode) {
        switch CurlFailure(code) {
        case .passing:
            // libcurl has no error of its own for a proxy that refuses the tunnel.
            if let response = attempt.transfer.tunnelResponse, response.status >= 400, !response.isPassing {
                return finish(
                    attempt.id, Outcome(failure: .status(response.status), status: response.status))
            }
            leave(attempt)
            retry(attempt.id)
        case .lasting(let text): finish(attempt.id, Outcome(failure: .refused(text)))
        }
    }

    private func setTried(_ id: TaskID, _ wasTried: Bool) {
        tasks[id]?.record.wasTried = wasTried
        store.setTried(id, wasTried)
    }

    /// The attempt is over; the part that it leaves is continued by the next one.
    func leave(_ attempt: Attempt) {
        attempts[attempt.id] = nil
        let bytes = attempt.facts.bytes
        guard let task = tasks[attempt.id] else { return }
        if bytes > task.best {
            tasks[attempt.id]?.best = bytes
            tasks[attempt.id]?.failures = 0
        }
        if task.record.wasTried { setTried(attempt.id, false) }
        // Later attempts may wait for long, and others need the room.
        queue.shrink(attempt.id, to: task.bodyBytes + bytes)
    }

    /// The moment is not good any more. Downloads are continued in the next one; uploads, which would begin
    /// anew, go on.
    func interruptDiscretionary() {
        for attempt in attempts.values {
            guard let task = tasks[attempt.id]?.record.task, task.isDiscretionary, task.kind == .download
            else { continue }
            multi.stop(attempt.transfer)
            leave(attempt)
            queue.wait(attempt.id, until: 0)
        }
    }

    func retry(_ id: TaskID, afterSeconds seconds: Int64? = nil) {
        guard let task = tasks[id] else { return }
        let failures = task.failures + 1
        tasks[id]?.failures = failures
        let delay = configuration.retry.delay(
            failures: failures, random: randomNumber(), askedSeconds: seconds)
        queue.wait(id, until: BootClock.now() + delay)
        isQueueStale = true
    }

    private func startOver(_ attempt: Attempt) {
        guard let task = tasks[attempt.id] else { return }
        let count = task.inconsistencies + 1
        tasks[attempt.id]?.inconsistencies = count
        guard count < configuration.retry.inconsistencies else {
            return finish(attempt.id, Outcome(failure: .inconsistent))
        }
        guard drop(attempt) else { return finish(attempt.id, Outcome(failure: .storage)) }
        leave(attempt)
        if count == 1 {
            queue.wait(attempt.id, until: 0)
            isQueueStale = true
        } else {
            retry(attempt.id)
        }
    }

    /// Drops the part that is there. False: the file system has failed.
    private func drop(_ attempt: Attempt) -> Bool {
        do throws(SystemError) {
            try attempt.file.truncate(to: 0)
        } catch {
            return false
        }
        attempt.facts = PartialBody()
        setFacts(attempt.id, PartialBody(), bytes: 0)
        return true
    }

    private func challenge(_ attempt: Attempt) {
        if let task = tasks[attempt.id], isIssue(task) {
            // Its client cannot be asked before it runs.
            return finish(attempt.id, Outcome(failure: .status(401), status: 401))
        }
        leave(attempt)
        tasks[attempt.id]?.record.state = .needsCredentials
        queue.rest(attempt.id)
        isQueueStale = true
        do throws(TransferError) {
            try store.setState(attempt.id, .needsCredentials)
        } catch {
            return fail(error)
        }
        if let session = tasks[attempt.id]?.session { onChange(attempt.id, session) }
        noteEnd(of: attempt.id)
    }

    /// All bytes are there. A download is a result now, and is written to the disk later: after a loss of
    /// power it is fetched again, if it is not released. The response to an upload cannot be had again.
    private func conclude(_ attempt: Attempt, status: Int) {
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
        case .failed: finish(attempt.id, Outcome(failure: .storage, status: status))
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
        guard task.record.durableBytes < bytes else { return }
        flusher.submit(.flushFile(path: files.path(id, of: task.session, .data))) { [unowned self] result in
            if case .done = result { setDurable(id, bytes) }
        }
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

    /// The bytes of a task, received and sent, and those expected; nil: it does not run.
    func progress(_ id: TaskID) -> (received: Int64, sent: Int64, total: Int64?)? {
        guard let attempt = attempts[id] else { return nil }
        return (attempt.facts.bytes, attempt.transfer.sentBytes, attempt.facts.total)
    }
}
