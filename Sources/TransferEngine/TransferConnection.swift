import DequeModule
import EventHandlers
import EventLoop
import FoundationEssentials
import Glibc
import LinuxSystem
import SwiftProtobuf
import TransferModel
import TransferWire

/// A client's connection, for one session.
final class TransferConnection {
    private let loop: HandlerLoop
    private let engine: TransferEngine
    private let socket: SeqPacketSocket
    /// The process that has connected.
    let process: pid_t
    private var buffer = PacketBuffer(capacity: TransferPacket.maximumBytes)
    private var input: DescriptorWatch?
    private var output: DescriptorWatch?
    private(set) var session: SessionID?
    private(set) var hasEnded = false
    /// Answers that are not sent yet.
    private var answers: [WireTransferReport] = []
    private var isBlocked = false
    /// Tasks that are being added, perhaps with a file that is copied; each has an answer to come.
    private var copies = 0
    /// Settled tasks that are not reported yet, in the order in which they are. Those that are not in
    /// `unreported` any more are passed over.
    private var order = Deque<TaskID>()
    private var unreported: Set<TaskID> = []
    /// Results that are reported, and not released.
    private var held: Set<TaskID> = []
    /// Of those, the ones with a file: each holds a descriptor in the client.
    private var heldFiles: Set<TaskID> = []
    /// Whether the end of the session has to be reported, once all its tasks are.
    private var owesEnd = false
    private var progress: [TaskID: Int64] = [:]
    /// A descriptor could not be sent, or not be opened: that is tried again later.
    private(set) var lacksDescriptors = false

    private static let mostHeldFiles = 64
    /// With the copies. No more requests are read meanwhile.
    private static let mostAnswers = 64
    private static let tasksInList = 100
    private static let mostTurnRequests = 256

    init(
        _ loop: HandlerLoop, _ engine: TransferEngine, _ socket: consuming SeqPacketSocket, of process: pid_t
    ) throws {
        self.loop = loop
        self.engine = engine
        self.socket = socket
        self.process = process
        let rawValue = self.socket.rawValue
        input = try DescriptorWatch(loop, rawValue, .read) { [unowned self] _ in receive() }
        output = try DescriptorWatch(loop, rawValue, .write, isArmed: false) { [unowned self] _ in
            setBlocked(false)
        }
    }

    /// The connection is over.
    func leave() {
        input = nil
        output = nil
        if let session {
            engine.leaveSession(session, owesResults: held.contains { engine.tasks[$0] != nil })
        }
        session = nil
    }

    func end() { hasEnded = true }

    // MARK: Requests

    private var hasRoom: Bool { answers.count + copies < Self.mostAnswers }

    private func receive() {
        do throws(SystemError) {
            for _ in 0..<Self.mostTurnRequests where !hasEnded && !isBlocked {
                guard hasRoom else { return }
                switch try socket.receive(into: &buffer) {
                case .wouldBlock: return
                case .end: return end()
                case .packet(_, let truncated, _):
                    let bytes = buffer.bytes
                    let descriptor = buffer.takeDescriptor()
                    guard !truncated, let request = try? WireTransferRequest(serializedBytes: bytes),
                        request.number != 0
                    else { return end() }
                    handle(request, descriptor)
                }
            }
        } catch {
            end()
        }
    }

    private func handle(_ request: WireTransferRequest, _ descriptor: consuming OwnedDescriptor?) {
        let number = request.number
        if case .open(let open) = request.request { return self.open(number, open) }
        guard let session else { return end() }
        switch request.request {
        case .add(let add): self.add(number, add, session, descriptor)
        case .cancel(let cancel):
            for id in tasks(cancel.task, of: session) { engine.cancel(id) }
            answer(number)
        case .authorize(let authorize):
            let id = TaskID(authorize.task)
            guard owns(id, session) else { return answer(number, refusal: "there is no such task") }
            let fields = authorize.fields.map { HeaderField($0.name, $0.value) }
            answer(number, refusal: engine.authorize(id, fields) ?? "")
        case .release(let release):
            let id = TaskID(release.task)
            // One that was released before, as on another connection, is released.
            let refusal = owns(id, session) ? engine.release(id) : nil
            if refusal == nil { forget(id) }
            answer(number, refusal: refusal ?? "")
        case .list(let list): self.list(number, after: list.after, session)
        case .open, nil: end()
        }
    }

    private func open(_ number: UInt64, _ open: WireTransferOpen) {
        let names = [open.client, open.identifier]
        guard session == nil,
            names.allSatisfy({
                (1...TransferPacket.maximumNameBytes).contains($0.utf8.count) && TransferPacket.isName($0)
            })
        else { return end() }
        let session = engine.openSession(client: open.client, identifier: open.identifier)
        self.session = session
        let tasks = engine.taskIDs(of: session)
        for id in tasks where engine.isSettled(id) { owe(id) }
        owesEnd = !tasks.isEmpty
        answers.append(
            .with {
                $0.answer.number = number
                $0.answer.settled = UInt32(clamping: unreported.count)
                $0.answer.unsettled = UInt32(clamping: tasks.count - unreported.count)
            })
    }

    private func add(
        _ number: UInt64, _ add: WireTransferAdd, _ session: SessionID,
        _ descriptor: consuming OwnedDescriptor?
    ) {
        guard add.tag.utf8.count <= TransferPacket.maximumNameBytes else {
            return answer(number, refusal: "the tag is longer than \(TransferPacket.maximumNameBytes) bytes")
        }
        guard TransferPacket.isName(add.tag) else {
            return answer(number, refusal: "the tag has control characters")
        }
        guard engine.sessions[session]?.identifier != TransferEngine.newsstand else {
            return answer(number, refusal: "the session \(TransferEngine.newsstand) has only issues")
        }
        guard let task = TransferTask(add.task) else {
            return answer(number, refusal: "the address is not one of http or https")
        }
        copies += 1
        engine.add(task, tag: add.tag, to: session, body: descriptor) { [weak self] addition in
            self?.copies -= 1
            switch addition {
            case .added(let id): self?.answer(number, task: id)
            case .refused(let reason): self?.answer(number, refusal: reason)
            }
        }
    }

    private func list(_ number: UInt64, after: Int64, _ session: SessionID) {
        let ids = engine.taskIDs(of: session).drop { $0.rawValue <= after }
        var answer = WireTransferAnswer()
        answer.number = number
        answer.tasks = ids.prefix(Self.tasksInList).map(status)
        answer.hasMore_p = ids.count > Self.tasksInList
        answers.append(.with { $0.answer = answer })
    }

    private func status(_ id: TaskID) -> WireTransferStatus {
        guard let task = engine.tasks[id] else { return WireTransferStatus() }
        return WireTransferStatus.with {
            $0.task = id.rawValue
            $0.tag = task.record.tag
            $0.receivedBytes = UInt64(clamping: task.bytes)
            if let total = task.record.facts.total { $0.total.bytes = UInt64(clamping: total) }
            switch task.record.state {
            case .waiting: $0.state = engine.attempts[id] == nil ? .waiting : .running
            case .needsCredentials: $0.state = .needsCredentials
            case .finished: $0.state = .finished
            }
        }
    }

    private func owns(_ id: TaskID, _ session: SessionID) -> Bool { engine.tasks[id]?.session == session }

    private func tasks(_ number: Int64, of session: SessionID) -> [TaskID] {
        if number == 0 { return engine.taskIDs(of: session) }
        return owns(TaskID(number), session) ? [TaskID(number)] : []
    }

    private func answer(_ number: UInt64, refusal: String = "", task: TaskID? = nil) {
        answers.append(
            .with {
                $0.answer.number = number
                $0.answer.refusal = refusal
                if let task { $0.answer.task = task.rawValue }
            })
    }

    // MARK: Reports

    /// A task of the session was added, has ended, or needs credentials.
    func note(_ id: TaskID) {
        owesEnd = true
        held.remove(id)
        heldFiles.remove(id)
        guard engine.isSettled(id) else { return }
        owe(id)
    }

    private func owe(_ id: TaskID) {
        if unreported.insert(id).inserted { order.append(id) }
    }

    private func forget(_ id: TaskID) {
        held.remove(id)
        heldFiles.remove(id)
        unreported.remove(id)
        progress[id] = nil
    }

    /// At most once a second. A client that has not read the last report, because it sleeps, gets no other
    /// one.
    func reportProgress() {
        guard let session, !hasEnded, !isBlocked, !SocketTraffic.hasUnsent(socket.rawValue) else { return }
        for (id, attempt) in engine.attempts where owns(id, session) {
            guard let now = engine.progress(id), progress[id] != now.received &+ now.sent else { continue }
            progress[id] = now.received &+ now.sent
            let report = WireTransferReport.with {
                $0.progress.task = attempt.id.rawValue
                $0.progress.receivedBytes = UInt64(clamping: now.received)
                $0.progress.sentBytes = UInt64(clamping: now.sent)
                if let total = now.total { $0.progress.total.bytes = UInt64(clamping: total) }
            }
            guard send(report) else { return }
        }
    }

    /// The number of results with files that the client has not released.
    var heldFileCount: Int { heldFiles.count }

    /// Sends what there is to say, as far as the client reads. Call it when the changes are stored.
    ///
    /// - Parameter room: how many more files may be on their way to clients, or held by them. One of each client may be
    ///   so in any case.
    func flush(_ room: inout Int) {
        guard !hasEnded else { return }
        lacksDescriptors = false
        var sent = 0
        while !isBlocked, sent < answers.count, send(answers[sent]) { sent += 1 }
        answers.removeFirst(sent)
        // Another connection of the session may have released them.
        if !order.isEmpty, room <= 0 || heldFiles.count >= Self.mostHeldFiles {
            held = held.filter { engine.tasks[$0] != nil }
            heldFiles.formIntersection(held)
        }
        while !isBlocked, answers.isEmpty, let id = order.first {
            let mayHold = heldFiles.isEmpty || room > 0 && heldFiles.count < Self.mostHeldFiles
            guard mayHold || !hasFile(id) else { break }
            let before = heldFiles.count
            guard !unreported.contains(id) || reportEnd(of: id) else { break }
            room -= heldFiles.count - before
            unreported.remove(id)
            order.removeFirst()
        }
        if !isBlocked, owesEnd, answers.isEmpty, unreported.isEmpty, let session,
            engine.isWhollySettled(session),
            send(.with { $0.sessionFinished = WireTransferSessionFinished() })
        {
            owesEnd = false
        }
        updateWatches()
    }

    private func hasFile(_ id: TaskID) -> Bool {
        if case .finished(let outcome)? = engine.tasks[id]?.record.state {
            outcome.failure == nil
        } else {
            false
        }
    }

    /// False: not now.
    private func reportEnd(of id: TaskID) -> Bool {
        guard let task = engine.tasks[id] else { return true }
        progress[id] = nil
        switch task.record.state {
        case .waiting: return true
        case .needsCredentials:
            return send(
                .with {
                    $0.challenge.task = id.rawValue
                    $0.challenge.tag = task.record.tag
                })
        case .finished(let outcome):
            var finished = WireTransferFinished()
            finished.task = id.rawValue
            finished.tag = task.record.tag
            finished.failure = WireTransferFailureKind(outcome.failure)
            if case .refused(let text) = outcome.failure { finished.reason = text }
            finished.status = UInt32(clamping: outcome.status)
            finished.bytes = UInt64(clamping: outcome.bytes)
            if let digest = outcome.digest { finished.digest = Data(digest) }
            var file: OpenFile?
            if outcome.failure == nil {
                do throws(SystemError) {
                    file = try engine.files.openResult(id, of: task.session)
                } catch  where error.code == EMFILE || error.code == ENFILE {
                    lacksDescriptors = true
                    return false
                } catch {
                    finished.failure = .storage
                }
            }
            guard send(.with { $0.finished = finished }, file) else { return false }
            held.insert(id)
            if file != nil { heldFiles.insert(id) }
            return true
        }
    }

    /// False: the client has to read first, or the connection has ended.
    private func send(_ report: WireTransferReport, _ file: OpenFile? = nil) -> Bool {
        do {
            let bytes: [UInt8] = try report.serializedBytes()
            let descriptors = file.map { [$0.rawValue] } ?? []
            guard try socket.send(bytes, descriptors: descriptors) else {
                setBlocked(true)
                return false
            }
            return true
        } catch let error as SystemError where error.code == ETOOMANYREFS {
            // Too many descriptors of the user are on their way. The socket can be written to all the while.
            lacksDescriptors = true
            return false
        } catch {
            end()
            return false
        }
    }

    private func setBlocked(_ isBlocked: Bool) {
        self.isBlocked = isBlocked
        updateWatches()
    }

    private func updateWatches() {
        do throws(LoopError) {
            try output?.setArmed(isBlocked)
            // A client that does not read is not read from; its end is seen when it is written to.
            try input?.setArmed(!isBlocked && hasRoom)
        } catch {
            end()
        }
    }
}
