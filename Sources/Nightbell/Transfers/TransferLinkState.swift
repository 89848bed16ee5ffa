import LinuxSystem
import TransferWire

/// Something to be handled.
enum TransferEvent {
    case finished(WireTransferFinished, TransferFile?)
    case needsCredentials(WireTransferChallenge)
    case progress(WireTransferProgress)
    case sessionFinished
}

/// The knowledge of a connection that all threads of its session share.
struct TransferLinkState {
    var connection: TransferConnection?
    /// A thread makes a connection.
    var isConnecting = false
    /// A thread has the right to read.
    var isReading = false
    var isClosed = false
    /// A connection is needed, whether there is one or not.
    var isNeeded = true
    /// Requests without an answer.
    var waiting = 0
    var lastNumber: UInt64 = 0
    var answers: [UInt64: WireTransferAnswer] = [:]
    /// Requests that a thread waits for.
    var expected: Set<UInt64> = []
    /// Of those, the ones with a task to be told of after the answer.
    var additions: Set<UInt64> = []
    var events: [TransferEvent] = []
    /// Results that were handled, until their release is certain: by the number of the request.
    var releases: [UInt64: Int64] = [:]
    var handled: Set<Int64> = []
    /// A report has arrived on the last connection.
    var hasHeard = false
    /// The end of the session was told, and nothing has been told since: the process tells it on each connection.
    var hasToldEnd = false
    /// How many times reports were read.
    var readings = 0
    /// When a wake told of results, or something other than progress has arrived since.
    var busyAt: Int64 = 0

    /// Reports that were not answered on it come again on the next one.
    mutating func dropConnection() {
        connection = nil
        // The process may not have heard of these.
        if !releases.isEmpty { isNeeded = true }
        releases.removeAll()
    }

    /// Whether a connection is needed follows the order in which the process tells of its tasks.
    mutating func take(_ report: WireTransferReport, _ file: TransferFile?) {
        if case .progress? = report.report {} else { busyAt = BootClock.now() }
        switch report.report {
        case .answer(let answer):
            if answer.refusal.isEmpty, additions.contains(answer.number) {
                isNeeded = true
                hasToldEnd = false
            }
            if let task = releases.removeValue(forKey: answer.number) { handled.remove(task) }
            if expected.contains(answer.number) { answers[answer.number] = answer }
        case .finished(let finished):
            events.append(.finished(finished, file))
            if !handled.contains(finished.task) { hasToldEnd = false }
        case .challenge(let challenge):
            events.append(.needsCredentials(challenge))
            hasToldEnd = false
        case .progress(let progress): events.append(.progress(progress))
        case .sessionFinished:
            if !hasToldEnd { events.append(.sessionFinished) }
            hasToldEnd = true
            // If a task needs credentials, its answer needs one again.
            isNeeded = false
        case nil: break  // from a newer process
        }
    }
}
