import CCurl
import Glibc
import LinuxSystem
import TransferModel

/// The attempts: the request of a task, and the judgement of its response.
extension TransferEngine {
    // MARK: The request

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

    func judge(_ attempt: Attempt) {
        guard attempt.decision == nil, let head = attempt.transfer.head else { return }
        let decision = attempt.facts.decide(head, asked: attempt.asked)
        attempt.decision = decision
        switch decision {
        case .append(let facts):
            attempt.facts = facts
            findRoom(attempt, facts.total)
            store.setFacts(attempt.id, facts, durableBytes: tasks[attempt.id]?.record.durableBytes ?? 0)
            tasks[attempt.id]?.record.facts = facts
        case .replace(let facts):
            findRoom(attempt, facts.total)
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
    func setFacts(_ id: TaskID, _ facts: PartialBody, bytes: Int64) {
        let had = tasks[id]?.record.facts.validator != nil
        tasks[id]?.record.facts = facts
        tasks[id]?.record.durableBytes = 0
        tasks[id]?.bytes = bytes
        guard had || facts.validator != nil else { return store.setFacts(id, facts, durableBytes: 0) }
        // libcurl may receive a whole file before the turn ends. If the process is killed then, what it has received is of
        // use only with its validator. And the validator of the former part must not be found with bytes of this one.
        do throws(TransferError) {
            try store.setFactsAtOnce(id, facts, durableBytes: 0, isPromise: had)
        } catch {
            fail(error)
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
            guard hasRoom(for: bytes.count, of: attempt) else {
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

    /// The bytes of a task, received and sent, and those expected; nil: it does not run.
    func progress(_ id: TaskID) -> (received: Int64, sent: Int64, total: Int64?)? {
        guard let attempt = attempts[id] else { return nil }
        return (attempt.facts.bytes, attempt.transfer.sentBytes, attempt.facts.total)
    }
}
