import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import TransferWire

/// The connection of a session to the transfer process, and the thread that runs its handlers.
///
/// There is a connection while the session has tasks, or a request is made: without any the process can end.
/// A thread that waits for an answer reads, unless another one does. Whatever ends, what was not answered is
/// asked again.
final class TransferLink: Sendable {
    /// Something to be handled.
    private enum Event {
        case finished(WireTransferFinished, TransferFile?)
        case needsCredentials(WireTransferChallenge)
        case progress(WireTransferProgress)
        case sessionFinished
    }

    private struct Core {
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
        var events: [Event] = []
        /// Results that were handled, until their release is certain: by the number of the request.
        var releases: [UInt64: Int64] = [:]
        var handled: Set<Int64> = []
        /// A report has arrived on the last connection.
        var hasHeard = false
        /// When a wake told of results, or something other than progress has arrived since.
        var busyAt: Int64 = 0

        /// Reports that were not answered on it come again on the next one.
        mutating func dropConnection() {
            connection = nil
            releases.removeAll()
        }
    }

    private let core = Monitor(Core())
    private let session: Session
    private let identifier: String
    private let handlers: TransferSession.Handlers
    private let hold: TransferHold

    /// How long the client is held awake without anything to do: results follow each other.
    private static let idleHold: Int64 = 2_000_000_000
    private static let firstPause: Int64 = 50_000_000
    private static let longestPause: Int64 = 5_000_000_000

    init(_ session: Session, _ identifier: String, _ handlers: TransferSession.Handlers) {
        self.session = session
        self.identifier = identifier
        self.handlers = handlers
        hold = TransferHold(session, identifier)
    }

    /// Connects, and starts the thread.
    func start() throws(NightbellError) {
        var patience = Patience(session.requestTimeout, from: BootClock.now())
        while try !connect(), let slice = patience.next(at: BootClock.now()) {
            pause(min(slice, Self.firstPause))
        }
        guard core.withLock({ $0.connection != nil }) else {
            throw NightbellError(.requestTimedOut, "no transfer process has answered")
        }
        let code = Thread.start { [self] in run() }
        guard code == 0 else {
            throw NightbellError(.system, SystemError(code: code, call: "pthread_create"))
        }
    }

    /// Ends the thread, and the connection.
    func close() {
        let connection = core.withLock { core in
            core.isClosed = true
            core.isNeeded = false
            return core.connection
        }
        connection?.shutDown()
        core.changed()
        hold.close()
    }

    // MARK: The connection

    /// False: try again later.
    private func connect() throws(NightbellError) -> Bool {
        let mayConnect = core.withLock { core in
            guard core.connection == nil, !core.isConnecting, !core.isClosed else { return false }
            core.isConnecting = true
            return true
        }
        guard mayConnect else { return core.withLock { $0.connection != nil } }
        let opened: (connection: TransferConnection, answer: WireTransferAnswer)?
        do throws(NightbellError) {
            opened = try open()
        } catch {
            core.withLock { $0.isConnecting = false }
            core.changed()
            throw error
        }
        // Before the client can be suspended: the results that are there have to be handled.
        if let opened, opened.answer.settled > 0 { expectResults() }
        core.withLock { core in
            core.isConnecting = false
            guard let opened, !core.isClosed else { return }
            core.connection = opened.connection
            if opened.answer.settled + opened.answer.unsettled > 0 {
                core.isNeeded = true
            } else if core.waiting == 0 {
                core.isNeeded = false
            }
        }
        core.changed()
        return opened != nil
    }

    private func open() throws(NightbellError) -> (TransferConnection, WireTransferAnswer)? {
        let (path, client) = session.core.withLock {
            ($0.state.welcome.transferSocket, $0.state.hello.identifier)
        }
        guard !path.isEmpty else {
            guard session.core.withLock({ $0.state.isConnected }) else { return nil }
            throw NightbellError(.transfersUnavailable, "")
        }
        // A new supervisor has another socket of the same name, or none yet; a process that ends leaves the
        // connection at its end.
        guard let socket = try? SeqPacketSocket.connect(path: path) else { return nil }
        let connection = TransferConnection(socket)
        let request = WireTransferRequest.with {
            $0.number = UInt64.max
            $0.open.client = client
            $0.open.identifier = identifier
        }
        guard (try? connection.send(request, [])) == true else { return nil }
        var patience = Patience(session.requestTimeout, from: BootClock.now())
        while let slice = patience.next(at: BootClock.now()), !core.withLock({ $0.isClosed }) {
            connection.wait(milliseconds: CInt(clamping: slice / 1_000_000 + 1))
            guard let reports = connection.receive(atMost: 1) else { return nil }
            // It comes before all other reports.
            if case .answer(let answer)? = reports.first?.report.report { return (connection, answer) }
        }
        return nil
    }

    private func pause(_ nanoseconds: Int64) {
        var hasWaited = false
        core.turn { core in
            defer { hasWaited = true }
            return hasWaited || core.isClosed ? .done(()) : .wait(nanoseconds)
        }
    }

    /// Reads what has arrived, and gives up the right to read.
    private func read(_ connection: TransferConnection) {
        let reports = connection.receive(atMost: 32)
        core.withLock { core in
            core.isReading = false
            guard core.connection === connection else { return }
            guard let reports else { return core.dropConnection() }
            if !reports.isEmpty { core.hasHeard = true }
            for report in reports { take(report.report, report.file, &core) }
        }
        core.changed()
    }

    /// Whether a connection is needed follows the order in which the process tells of its tasks.
    private func take(_ report: WireTransferReport, _ file: TransferFile?, _ core: inout Core) {
        if case .progress? = report.report {} else { core.busyAt = BootClock.now() }
        switch report.report {
        case .answer(let answer):
            if answer.refusal.isEmpty, core.additions.contains(answer.number) { core.isNeeded = true }
            if let task = core.releases.removeValue(forKey: answer.number) { core.handled.remove(task) }
            if core.expected.contains(answer.number) { core.answers[answer.number] = answer }
        case .finished(let finished): core.events.append(.finished(finished, file))
        case .challenge(let challenge): core.events.append(.needsCredentials(challenge))
        case .progress(let progress): core.events.append(.progress(progress))
        case .sessionFinished:
            core.events.append(.sessionFinished)
            // If a task needs credentials, its answer needs one again.
            core.isNeeded = false
        case nil: break  // from a newer process
        }
    }

    /// The connection has ended.
    private func lose(_ connection: TransferConnection) {
        core.withLock { core in
            guard core.connection === connection else { return }
            core.dropConnection()
        }
        core.changed()
    }

    // MARK: Requests

    /// Makes a request, on another connection again if one ends before the answer. The client is not suspended
    /// meanwhile: what it begins could be lost with it.
    ///
    /// - Parameter isAddition: there is a task to be told of afterwards.
    func request(
        descriptors: [CInt] = [], isAddition: Bool = false, _ change: (inout WireTransferRequest) -> Void
    ) throws(NightbellError) -> WireTransferAnswer {
        hold.beginCall()
        defer { hold.endCall() }
        var request = WireTransferRequest()
        change(&request)
        let number = try core.withLock { core throws(NightbellError) in
            guard !core.isClosed else { throw NightbellError(.closed, "") }
            core.lastNumber += 1
            core.waiting += 1
            core.expected.insert(core.lastNumber)
            if isAddition { core.additions.insert(core.lastNumber) }
            return core.lastNumber
        }
        defer {
            core.withLock { core in
                core.waiting -= 1
                core.expected.remove(number)
                core.additions.remove(number)
                core.answers[number] = nil
            }
            // The thread may have nothing to wait for any more.
            core.changed()
        }
        request.number = number
        var patience = Patience(session.requestTimeout, from: BootClock.now())
        var sentOn: TransferConnection?
        while let slice = patience.next(at: BootClock.now()) {
            if let answer = core.withLock({ $0.answers.removeValue(forKey: number) }) {
                guard answer.refusal.isEmpty else { throw NightbellError(.transferRefused, answer.refusal) }
                return answer
            }
            guard let connection = core.withLock({ $0.connection }) else {
                guard !core.withLock({ $0.isClosed }) else { throw NightbellError(.closed, "") }
                if try !connect() { pause(min(slice, Self.firstPause)) }
                continue
            }
            if sentOn !== connection {
                do throws(SystemError) {
                    guard try connection.send(request, descriptors) else {
                        // It waits for this end to read.
                        readOrWait(connection, min(slice, 10_000_000))
                        continue
                    }
                    sentOn = connection
                } catch {
                    guard error.code == EPIPE || error.code == ECONNRESET else {
                        throw NightbellError(.system, error)
                    }
                    lose(connection)
                    continue
                }
            }
            readOrWait(connection, slice)
        }
        try? askForProcess()
        throw NightbellError(.requestTimedOut, "the transfer process does not answer")
    }

    /// Has the supervisor look after the process, which it replaces if that hangs.
    func askForProcess() throws(NightbellError) {
        let name = TransferSession.observation(identifier)
        _ = try session.request(.observe(name, .transfers(session: identifier)))
    }

    /// Reads if no other thread does, or waits for that one.
    private func readOrWait(_ connection: TransferConnection, _ nanoseconds: Int64) {
        var hasWaited = false
        let mayRead = core.turn { core -> Monitor<Core>.Turn<Bool> in
            guard core.connection === connection, core.answers.isEmpty else { return .done(false) }
            guard core.isReading else {
                core.isReading = true
                return .done(true)
            }
            defer { hasWaited = true }
            return hasWaited ? .done(false) : .wait(nanoseconds)
        }
        guard mayRead else { return }
        connection.wait(milliseconds: CInt(clamping: nanoseconds / 1_000_000 + 1))
        read(connection)
    }

    // MARK: The thread

    private enum Step {
        case handle(Event)
        case connect
        case read(TransferConnection)
        /// The connection is not needed any more.
        case rest
        case end
    }

    private func run() {
        var failures = 0
        while true {
            let step = core.turn { core -> Monitor<Core>.Turn<Step> in
                if core.isClosed { return .done(.end) }
                if !core.events.isEmpty { return .done(.handle(core.events.removeFirst())) }
                guard let connection = core.connection else {
                    return core.isNeeded && !core.isConnecting ? .done(.connect) : .wait(.max)
                }
                if !core.isNeeded, core.waiting == 0, core.releases.isEmpty, !core.isReading {
                    core.connection = nil
                    return .done(.rest)
                }
                if core.isReading { return .wait(.max) }
                core.isReading = true
                return .done(.read(connection))
            }
            switch step {
            case .end: return
            case .rest: hold.endResults()
            case .connect:
                // A connection that brought nothing counts as none: this process may lack descriptors for the
                // results.
                let hasHeard = core.withLock { core in
                    defer { core.hasHeard = false }
                    return core.hasHeard
                }
                if hasHeard { failures = 0 }
                if failures > 0 {
                    pause(min(Self.firstPause << Int64(min(failures - 1, 10)), Self.longestPause))
                }
                failures += 1
                _ = try? connect()
            case .read(let connection):
                let end = core.withLock { $0.busyAt } + Self.idleHold
                if !hold.isForResults {
                    connection.wait(milliseconds: -1)
                } else if !connection.wait(
                    milliseconds: CInt(clamping: max(0, end - BootClock.now()) / 1_000_000 + 1))
                {
                    hold.endResults()
                }
                read(connection)
            case .handle(let event): handle(event)
            }
        }
    }

    private func handle(_ event: Event) {
        switch event {
        case .finished(let finished, let file):
            // Its release may have been lost with the last connection.
            if !core.withLock({ $0.handled.contains(finished.task) }) {
                handlers.finished(TransferResult(finished, file: file?.rawValue))
            }
            forget(finished.task)
            withExtendedLifetime(file) {}
        case .needsCredentials(let challenge):
            handlers.needsCredentials(TransferTask(number: challenge.task, name: challenge.tag))
        case .progress(let progress): handlers.progress(TransferProgress(progress))
        case .sessionFinished:
            handlers.sessionFinished()
            hold.endResults()
        }
    }

    /// Has the process forget a result. If the connection ends before the answer, the result is reported
    /// again.
    private func forget(_ task: Int64) {
        var request = WireTransferRequest()
        request.release.task = task
        request.number = core.withLock { core in
            core.lastNumber += 1
            core.handled.insert(task)
            core.releases[core.lastNumber] = task
            return core.lastNumber
        }
        while let connection = core.withLock({ $0.isClosed ? nil : $0.connection }) {
            do throws(SystemError) {
                if try connection.send(request, []) { return }
                readOrWait(connection, 10_000_000)
            } catch {
                lose(connection)
            }
        }
        core.withLock { _ = $0.releases.removeValue(forKey: request.number) }
    }

    // MARK: Not being suspended

    /// A wake tells that there are results: the client is not suspended before they are handled.
    func wake() {
        expectResults()
        let connection = core.withLock { core in
            if core.connection == nil { core.isNeeded = true }
            core.lastNumber += 1
            return core.connection.map { ($0, core.lastNumber) }
        }
        core.changed()
        guard let (connection, number) = connection else { return }
        // The thread waits for the process: the answer has it look whether there is still something to do.
        let request = WireTransferRequest.with {
            $0.number = number
            $0.list.after = .max
        }
        if (try? connection.send(request, [])) == nil { lose(connection) }
    }

    private func expectResults() {
        core.withLock { $0.busyAt = BootClock.now() }
        hold.beginResults()
    }

    /// Calls the body, and does not let the client be suspended meanwhile.
    func awake(_ body: () throws(NightbellError) -> Void) throws(NightbellError) {
        hold.beginCall()
        defer { hold.endCall() }
        try body()
    }
}
