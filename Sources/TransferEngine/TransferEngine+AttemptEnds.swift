import CCurl
import LinuxSystem
import TransferModel

/// The ends of attempts, and the next step of the task: another attempt, later or at once, or its end.
extension TransferEngine {
    func end(_ attempt: Attempt, _ code: CURLcode) {
        guard let task = tasks[attempt.id] else { return }
        if code == CURLE_OK { judge(attempt) }
        let status = attempt.transfer.head?.status ?? 0
        // A POST that got no answer is not repeated. A redirection may have come after it was carried out.
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
                // The server may have done it, and says so in a response that cannot be used.
                let failure: TransferFailure = status < 300 ? .interrupted : .status(status)
                return finish(attempt.id, Outcome(failure: failure, status: status))
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
        case .noRoom, .diskFull:
            let bytes = attempt.facts.bytes
            // Two parts that both wait for the room of the other would wait for ever.
            guard drop(attempt) else { return finish(attempt.id, Outcome(failure: .storage)) }
            leave(attempt)
            if stop == .noRoom {
                queue.waitForRoom(attempt.id, notBefore: nextAttempt(of: attempt.id))
                noteWait(of: attempt.id)
                isQueueStale = true
            } else {
                waitForDisk(attempt.id, having: bytes)
            }
        case .tooLarge: finish(attempt.id, Outcome(failure: .tooLarge))
        case .tooLong: startOver(attempt)
        case .storage: finish(attempt.id, Outcome(failure: .storage))
        case .judged: break
        }
    }

    private func endWithoutResponse(_ attempt: Attempt, _ code: CURLcode) {
        switch attempt.transfer.failure(code) {
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

    func setTried(_ id: TaskID, _ wasTried: Bool) {
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
        queue.wait(id, until: nextAttempt(of: id, afterSeconds: seconds))
        isQueueStale = true
    }

    /// An attempt has failed.
    ///
    /// - Returns: when the next one may begin, by `BootClock`.
    private func nextAttempt(of id: TaskID, afterSeconds seconds: Int64? = nil) -> Int64 {
        let failures = (tasks[id]?.failures ?? 0) + 1
        tasks[id]?.failures = failures
        return BootClock.now()
            + configuration.retry.delay(failures: failures, random: randomNumber(), askedSeconds: seconds)
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
    func drop(_ attempt: Attempt) -> Bool {
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
        queue.rest(attempt.id)
        isQueueStale = true
        do throws(TransferError) {
            try setState(attempt.id, .needsCredentials)
        } catch {
            return fail(error)
        }
        if let session = tasks[attempt.id]?.session { onChange(attempt.id, session) }
        noteEnd(of: attempt.id)
    }
}
