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
    let core = Monitor(TransferLinkState())
    private let session: Session
    private let identifier: String
    let handlers: TransferSession.Handlers
    let hold: TransferHold

    static let firstPause: Int64 = 50_000_000

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
    func connect() throws(NightbellError) -> Bool {
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

    func pause(_ nanoseconds: Int64) {
        var hasWaited = false
        core.turn { core in
            defer { hasWaited = true }
            return hasWaited || core.isClosed ? .done(()) : .wait(nanoseconds)
        }
    }

    /// Reads what has arrived, and gives up the right to read.
    func read(_ connection: TransferConnection) {
        let reports = connection.receive(atMost: 32)
        core.withLock { core in
            core.isReading = false
            guard core.connection === connection else { return }
            guard let reports else { return core.dropConnection() }
            if !reports.isEmpty {
                core.hasHeard = true
                core.readings += 1
            }
            for report in reports { core.take(report.report, report.file) }
        }
        core.changed()
    }

    /// The connection has ended.
    func lose(_ connection: TransferConnection) {
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
    /// - Parameters:
    ///   - descriptors: the file of an upload. The answer takes as long as the copy of it: it is waited for while the
    ///     process answers other requests.
    ///   - isAddition: there is a task to be told of afterwards.
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
        // At the last question whether the process is there.
        var readings: Int?
        while true {
            guard let slice = patience.next(at: BootClock.now()) else {
                try? askForProcess()
                let now = core.withLock { $0.connection === sentOn ? $0.readings : nil }
                guard !descriptors.isEmpty, let sentOn, let now, now != readings else {
                    throw NightbellError(.requestTimedOut, "the transfer process does not answer")
                }
                readings = now
                ask(sentOn)
                patience = Patience(session.requestTimeout, from: BootClock.now())
                continue
            }
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
    }

    /// Asks for something that the process answers at once, also while it copies a file.
    private func ask(_ connection: TransferConnection) {
        let number = core.withLock { core in
            core.lastNumber += 1
            return core.lastNumber
        }
        let request = WireTransferRequest.with {
            $0.number = number
            $0.list.after = .max
        }
        // Whether it could be sent shows when the time for the answer is over.
        _ = try? connection.send(request, [])
    }

    /// Has the supervisor look after the process, which it replaces if that hangs.
    func askForProcess() throws(NightbellError) {
        let name = TransferSession.observation(identifier)
        _ = try session.request(.observe(name, .transfers(session: identifier)))
    }

    /// Reads if no other thread does, or waits for that one.
    func readOrWait(_ connection: TransferConnection, _ nanoseconds: Int64) {
        var hasWaited = false
        let mayRead = core.turn { core -> Monitor<TransferLinkState>.Turn<Bool> in
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

    // MARK: Not being suspended

    func expectResults() {
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
