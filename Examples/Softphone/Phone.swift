import Glibc
import Nightbell
import SIPKit

/// A phone: one connection to a SIP server, a user agent, and one loop over `poll` that serves them.
///
/// The code for sleeping is in PhoneSleep.swift. Everything runs on the main thread: the supervisor's
/// connection is one more descriptor of the loop.
@MainActor
final class Phone {
    let account: UserAgent.Configuration
    let eventLog: EventLog
    private let server: SIPAddress
    private let transport: SIPTransport
    private let stopSignals: StopSignals

    /// Nil between two connections.
    private(set) var socket: SIPSocket?
    /// Made with the first connection, since it has to know its own address.
    private(set) var agent: UserAgent?
    /// Set while the registration or the connection is being repaired.
    private var repair: Repair?
    /// When to register again, for a phone without a keep-alive handler.
    private var refreshAt: ContinuousClock.Instant?
    private var state = State.running
    var sleep = SleepState()

    private enum State {
        case running
        case stopping(until: ContinuousClock.Instant)
        case stopped(succeeded: Bool)
    }

    /// Attempts come at growing intervals. A phone that could sleep tries for a minute, then sleeps and tries
    /// again when its keep-alive handler runs.
    private struct Repair {
        var next: ContinuousClock.Instant
        var delay: Duration = .milliseconds(500)
        let until: ContinuousClock.Instant
    }

    init(
        account: UserAgent.Configuration, server: SIPAddress, transport: SIPTransport, eventLog: EventLog
    ) throws {
        self.account = account
        self.server = server
        self.transport = transport
        self.eventLog = eventLog
        stopSignals = try StopSignals()
    }

    // MARK: The loop

    /// Runs until a signal or the supervisor ends it. False: the server refuses this user.
    func run() -> Bool {
        if let socket = takeOverSocket(transport) {
            self.socket = socket
            connected()
        } else {
            connect()
        }
        // Until it is registered it holds a task, and keeps trying.
        beginRepair()
        while true {
            if case .stopped(let succeeded) = state { return succeeded }
            turn()
        }
    }

    private func turn() {
        var entries = [pollfd(fd: stopSignals.descriptor, events: Int16(POLLIN), revents: 0)]
        // A negative descriptor is left out.
        entries.append(pollfd(fd: sleep.client?.fileDescriptor ?? -1, events: Int16(POLLIN), revents: 0))
        let events = POLLIN | (socket?.wantsToWrite == true ? POLLOUT : 0)
        entries.append(pollfd(fd: mayRead ? socket?.descriptor ?? -1 : -1, events: Int16(events), revents: 0))
        let count = poll(&entries, nfds_t(entries.count), millisecondsUntilDeadline())
        if count > 0 {
            if entries[0].revents != 0 {
                stopSignals.take()
                stop()
            }
            if entries[1].revents != 0 { serveSupervisor() }
            // The supervisor's messages may have stopped the reading.
            if entries[2].revents != 0, mayRead { serveSocket() }
        }
        serveTimers(at: .now)
    }

    private func millisecondsUntilDeadline() -> CInt {
        var deadlines = [agent?.nextDeadline, repair?.next, sleep.nextMediaSign]
        if !isWokenForRefresh { deadlines.append(refreshAt) }
        if case .stopping(let until) = state { deadlines.append(until) }
        guard let next = deadlines.compactMap({ $0 }).min() else { return -1 }
        // Rounded up, or the last millisecond would be spent spinning.
        return CInt(clamping: max(0, (next - .now).milliseconds + 1))
    }

    private func serveTimers(at now: ContinuousClock.Instant) {
        perform(agent?.advance(to: now) ?? [])
        tellOfMedia(at: now)
        if let repair, repair.next <= now { attemptRepair(repair, at: now) }
        if !isWokenForRefresh, let refreshAt, refreshAt <= now {
            self.refreshAt = nil
            refresh()
        }
        if case .stopping(let until) = state, until <= now || agent?.isRegistering != true {
            finish(succeeded: true)
        }
    }

    // MARK: The connection

    private func connect() {
        do throws(SIPSocketError) {
            let socket = try SIPSocket.connect(to: server, transport)
            self.socket = socket
            if !socket.isConnecting { connected() }
        } catch {
            connectionFailed(error)
        }
    }

    private func connected() {
        guard let socket, let local = try? socket.localAddress() else { return }
        let endpoint = SIPEndpoint(
            user: account.user, transport: transport, host: local.host, port: local.port)
        if sleep.parked == nil { handOver(socket) }
        if agent == nil {
            agent = UserAgent(account, endpoint: endpoint)
        } else {
            perform(agent?.reconnected(endpoint, at: .now) ?? [])
        }
        refresh()
    }

    /// Reads all pending data. Returns the number of bytes.
    @discardableResult
    func serveSocket() -> Int {
        guard let socket else { return 0 }
        do throws(SIPSocketError) {
            let wasConnecting = socket.isConnecting
            try socket.flush()
            if socket.isConnecting { return 0 }
            if wasConnecting { connected() }
        } catch {
            connectionFailed(error)
            return 0
        }
        let reception = socket.receive()
        for message in reception.messages { perform(agent?.receive(message, at: .now) ?? []) }
        if let end = reception.end { connectionFailed(end) }
        return reception.bytes
    }

    private func connectionFailed(_ error: SIPSocketError) {
        eventLog.write("connection_lost", ["reason": .text(error.description)])
        release()
        socket = nil
        beginRepair()
    }

    // MARK: The registration

    /// Registers again, or first connects again if there is no connection.
    func refresh() {
        guard socket?.isConnecting == false else { return beginRepair() }
        perform(agent?.register(at: .now) ?? [])
        holdAwakeForRegistration()
    }

    private func registered(for granted: Duration) {
        eventLog.write("registered", ["expires_ms": .number(granted.milliseconds)])
        repair = nil
        if case .running = state {
            refreshAt = .now + granted / 2
            sleepBetweenRefreshes(granted)
        }
        // Last, because the phone may sleep from here on.
        endRegistrationTask()
    }

    private func registrationFailed(_ failure: RegistrationFailure) {
        eventLog.write("registration_failed", ["reason": .text(failure.description)])
        if case .refused(401...404, _) = failure, !sleep.isInBackground, !sleep.isInForegroundForCall {
            complain("\(account.user) cannot register: \(failure)")
            return finish(succeeded: false)
        }
        // A stream without an answer may be dead unnoticed.
        if failure == .timedOut, transport == .tcp {
            connectionFailed(.ended)
        } else {
            beginRepair()
        }
    }

    private func beginRepair() {
        guard repair == nil, case .running = state else { return }
        let now = ContinuousClock.now
        repair = Repair(next: now + .milliseconds(500), until: now + .seconds(60))
        holdAwakeForRegistration()
    }

    private func attemptRepair(_ repair: Repair, at now: ContinuousClock.Instant) {
        guard now < repair.until || !isWokenForRefresh else { return postponeRepair() }
        var later = repair
        later.delay = min(repair.delay * 2, .seconds(16))
        later.next = now + later.delay
        self.repair = later
        if socket?.isConnecting == false {
            if agent?.isRegistering == false { refresh() }
        } else {
            // An attempt to connect that is still under way has had its time.
            socket = nil
            connect()
        }
    }

    /// The keep-alive handler tries again.
    func postponeRepair() {
        guard repair != nil else { return }
        repair = nil
        eventLog.write("repair_postponed")
        sleepUnregistered()
    }

    // MARK: Actions of the user agent

    func perform(_ actions: [UserAgent.Action]) {
        for action in actions {
            switch action {
            case .send(let message): send(message)
            case .registered(let granted): registered(for: granted)
            case .registrationFailed(let failure): registrationFailed(failure)
            case .callStarted(let callID):
                holdAwake(forCall: callID)
                eventLog.write("call", ["call_id": .text(callID)])
            case .callAnswered(let callID):
                callAnswered(callID)
                eventLog.write("answered", ["call_id": .text(callID)])
            case .callEnded(let callID, let end):
                eventLog.write("ended", ["call_id": .text(callID), "by": .text(end.rawValue)])
                callEnded(callID)
            }
        }
    }

    private func send(_ message: SIPMessage) {
        do throws(SIPSocketError) {
            try socket?.send(message)
        } catch {
            connectionFailed(error)
        }
    }

    func hangUp() {
        perform(agent?.hangUp(at: .now) ?? [])
    }

    // MARK: The end

    /// Hangs up, removes the registration, and ends: within two seconds, even without an answer of the
    /// server, and at once when asked a second time.
    func stop() {
        guard case .running = state else { return finish(succeeded: true) }
        state = .stopping(until: .now + .seconds(2))
        repair = nil
        hangUp()
        perform(agent?.register(removing: true, at: .now) ?? [])
    }

    /// Another process is this phone now, and has a registration of its own.
    func end(because error: NightbellError) {
        complain("\(account.user) ends: \(error)")
        finish(succeeded: true)
    }

    private func finish(succeeded: Bool) {
        eventLog.write("stopped")
        release()
        sleep.client?.close()
        state = .stopped(succeeded: succeeded)
    }

    func complain(_ text: String) {
        let line = "nightbell-softphone: \(text)\n"
        _ = Array(line.utf8).withUnsafeBytes { write(STDERR_FILENO, $0.baseAddress, $0.count) }
    }
}
