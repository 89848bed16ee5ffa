import Glibc
import LinuxSystem
import NightbellWire

/// Performs the decisions of `SessionState`: owns the connection, the lock and the right to read and to run
/// handlers.
///
/// A thread that waits for an answer reads, unless another thread already reads: then it waits for that one.
/// So requests can be made from every thread and from inside handlers, without a thread of the library's own.
final class Session: Sendable {
    struct Core {
        var state: SessionState
        var acknowledgements = WakeAcknowledgements()
        var early = EarlyWakes()
        var wakeWord: WakeWord?
        var link: Link?
        /// Messages that the supervisor's full queue did not take yet.
        var outbox: [(message: WireClientMessage, descriptors: [CInt])] = []
        var watchesWritable = false
        /// Events for the handlers, in order.
        var notices: [SessionState.Notice] = []
        /// A thread has the right to read from the link.
        var isReading = false
        var isFlagRaised = false
        /// A thread runs handlers.
        var isRunning = false
        /// The epoch for which `prepareToSuspend` has run, until it is over.
        var preparedEpoch: UInt64?
        /// The time that the timer is set to.
        var armed: Int64?
        /// The waiting consumer of the sequence.
        var consumer: CheckedContinuation<Wake?, Never>?
    }

    let core: Monitor<Core>
    let watcher: Watcher
    let handlers: Client.Handlers
    let path: String
    private let identifier: String
    /// The client is an unmodified program, which nothing is announced to.
    let isForProgram: Bool
    let requestTimeout: Int64
    /// By their identifiers.
    let transfers = Monitor<[String: WeakTransferLink]>([:])
    /// The process was woken for sessions that it has yet to make: it is not to be suspended before, by their
    /// identifiers.
    let awaitedTransfers = Monitor<[String: BackgroundTask]>([:])
    private let forkMark: ForkMark

    init(_ configuration: Client.Configuration, _ handlers: Client.Handlers) throws(NightbellError) {
        let timeout = configuration.requestTimeout.wholeNanoseconds
        let state = SessionState(
            hello: try configuration.hello(wantsNetworkChanges: handlers.networkChanged != nil),
            reconnects: configuration.reconnects, requestTimeout: timeout,
            requiresSupervisor: configuration.requiresSupervisor)
        core = Monitor(Core(state: state))
        do {
            // All or nothing: the compiler cannot undo half of it.
            let watcher = try Watcher()
            forkMark = try ForkMark()
            self.watcher = watcher
        } catch {
            throw NightbellError(.system, error)
        }
        self.handlers = handlers
        identifier = configuration.identifier
        isForProgram = configuration.program != nil
        path = configuration.socketPath ?? Environment.socketPath()
        requestTimeout = timeout
    }

    /// A child of fork(2) shares the connection with its parent, which owns it.
    var isForked: Bool { forkMark.isForked }

    // MARK: Connecting

    /// The first connection: made by the calling thread, which waits for it.
    func register() throws(NightbellError) {
        var patience = Patience(requestTimeout, from: BootClock.now())
        var made = InheritedDescriptors.connection(for: identifier)
        while true {
            let link: Link
            if let inherited = made.take() {
                link = inherited
            } else {
                do throws(NightbellError) {
                    link = try connect(&patience)
                } catch {
                    guard error.code == .cannotConnect, !core.withLock({ $0.state.requiresSupervisor }) else {
                        throw error
                    }
                    return startAlone()
                }
            }
            let now = BootClock.now()
            core.withLock { core in
                attach(link, to: &core)
                perform(core.state.connectionMade(at: now), on: &core)
            }
            let registered = try pump(&patience) { core throws(NightbellError) -> Bool? in
                if let error = core.state.closure { throw error }
                if core.link == nil { return false }
                return core.state.isConnected ? true : nil
            }
            switch registered {
            case true?: return
            case false?: continue
            case nil:
                close()
                throw NightbellError(.requestTimedOut, "while registering")
            }
        }
    }

    private func startAlone() {
        core.withLock { core in
            core.state.startAlone(at: BootClock.now())
            perform([], on: &core)
        }
    }

    /// Waits while the listen queue is full, as when very many clients start at once.
    private func connect(_ patience: inout Patience) throws(NightbellError) -> Link {
        while true {
            do throws(NightbellError) {
                return try Link.connect(path: path)
            } catch {
                guard error.errorNumber == EAGAIN, patience.next(at: BootClock.now()) != nil else {
                    throw error
                }
            }
            var waited = false
            core.turn { _ in
                defer { waited = true }
                return waited ? .done(()) : .wait(20_000_000)
            }
        }
    }

    /// Makes a later connection.
    func reconnect() {
        let parked = core.withLock { $0.state.holdings.sockets }
        let gone = parked.filter { (try? FileIdentity(of: $0.value.socket.descriptor)) != $0.value.file }
        let result = Result { () throws(NightbellError) in try Link.connect(path: path) }
        let now = BootClock.now()
        core.withLock { core in
            switch result {
            case .success(let link):
                attach(link, to: &core)
                perform(core.state.connectionMade(gone: Array(gone.keys), at: now), on: &core)
            case .failure(let error):
                core.state.connectionFailed(error, at: now)
                perform([], on: &core)
            }
        }
        core.changed()
    }

    private func attach(_ link: Link, to core: inout Core) {
        core.link = link
        do {
            try watcher.add(link.rawValue)
        } catch {
            perform(core.state.lost(NightbellError(.system, error), at: BootClock.now()), on: &core)
        }
    }

    // MARK: Actions

    /// Performs the actions of the state, with the lock held.
    func perform(_ actions: [SessionState.Action], on core: inout Core) {
        var actions = actions[...]
        while let action = actions.popFirst() {
            switch action {
            case .send(let message, let descriptors):
                guard core.link != nil else { continue }
                core.outbox.append((message, descriptors))
                actions += flush(&core)
            case .disconnect:
                disconnect(&core)
            case .notify(let notice):
                actions += enqueue(notice, on: &core)
            case .sendAgain(let repetitions, let last):
                guard core.link != nil else { continue }
                sendAgain(repetitions, then: last, on: &core)
                actions += flush(&core)
            }
        }
        if core.state.closure != nil { core.acknowledgements.close() }
        let deadline = core.state.nextDeadline
        if deadline != core.armed {
            core.armed = deadline
            watcher.setTimer(deadline)
        }
    }

    /// Messages that were never sent are not repeated: they stay queued, behind the repeated ones.
    private func sendAgain(
        _ repetitions: [SessionState.Repetition], then last: WireClientMessage, on core: inout Core
    ) {
        let unsent = Set(core.outbox.map(\.message.request))
        var again = repetitions.filter { $0.message.request == 0 || !unsent.contains($0.message.request) }
            .map { (message: $0.message, descriptors: $0.descriptors) }
        if let done = core.acknowledgements.lastConfirmed { again.append((.wakeDone(done), [])) }
        again.append((last, []))
        core.outbox.insert(contentsOf: again, at: 0)
    }

    /// Sends what the queue takes. The error of one request is thrown to its caller.
    func flush(_ core: inout Core) -> [SessionState.Action] {
        guard let link = core.link, !core.outbox.isEmpty else { return [] }
        while let (message, descriptors) = core.outbox.first {
            do throws(NightbellError) {
                guard try link.send(message, descriptors: descriptors) else {
                    watchWritable(true, link, &core)
                    return []
                }
                core.outbox.removeFirst()
            } catch {
                core.outbox.removeFirst()
                let isOneCallers = core.state.requests.recipient(of: message.request) != nil
                guard error.code != .connectionLost, isOneCallers else {
                    return core.state.lost(error, at: BootClock.now())
                }
                core.state.requests.resolve(message.request, .failure(error))
            }
        }
        watchWritable(false, link, &core)
        return []
    }

    private func watchWritable(_ wanted: Bool, _ link: Link, _ core: inout Core) {
        guard core.watchesWritable != wanted else { return }
        core.watchesWritable = wanted
        watcher.change(link.rawValue, writable: wanted)
    }

    private func disconnect(_ core: inout Core) {
        core.outbox = []
        core.watchesWritable = false
        core.acknowledgements.connectionLost()
        core.early.connectionLost()
        core.wakeWord = nil
        core.preparedEpoch = nil
        guard let link = core.link else { return }
        watcher.remove(link.rawValue)
        link.shutDown()
        core.link = nil
    }

    private func enqueue(
        _ notice: SessionState.Notice, on core: inout Core
    ) -> [SessionState.Action] {
        core.notices.append(notice)
        callForAttention(&core)
        switch notice {
        case .wake:
            core.acknowledgements.woken()
            core.early.suspensionOver()
        case .suspendCancelled:
            core.early.suspensionOver()
            return core.acknowledgements.suspensionCancelled().map { [.send(.wakeDone($0))] } ?? []
        case .keepAlive, .didEnterBackground, .prepareToSuspend, .programSuspended, .backgroundTimeExpiring,
            .taskLost, .willTerminate, .connectionLost, .reconnected, .socketLost, .keepAliveLost, .restored:
            break
        }
        return []
    }

    /// A thread that runs handlers looks at everything before it stops; if there is none, one must be
    /// started.
    private func callForAttention(_ core: inout Core) {
        guard !core.isRunning, !core.isFlagRaised else { return }
        core.isFlagRaised = true
        watcher.raiseFlag()
    }

    // MARK: Reading

    /// Reads what has arrived and gives up the right to read. False: nothing had arrived.
    @discardableResult func read(_ link: Link) -> Bool {
        var messages: [WireSupervisorMessage] = []
        var failure: NightbellError?
        var wakeWord: WakeWord?
        var previousProcess: (sockets: [(token: UInt64, socket: NewSocket)], message: WirePreviousProcess)?
        do throws(NightbellError) {
            while messages.count < 32, case .message(let message) = try link.receive() {
                messages.append(message)
                if let word = link.takeWakeWord(of: message) { wakeWord = word }
                if case .welcome(let welcome) = message.body, welcome.hasPreviousProcess,
                    let sockets = link.takeSockets(welcome.previousProcess)
                {
                    previousProcess = (sockets, welcome.previousProcess)
                }
                // A wake is handled first; further packets can wait until then.
                if case .wake = message.body { break }
            }
        } catch {
            failure = error
        }
        let now = BootClock.now()
        core.withLock { core in
            core.isReading = false
            // Another thread may have noticed the end of this link first.
            guard core.link === link else { return }
            if let wakeWord { core.wakeWord = wakeWord }
            if let previousProcess { inherit(previousProcess.sockets, previousProcess.message, on: &core) }
            for message in messages { perform(core.state.received(message, at: now), on: &core) }
            if let failure, core.link === link { perform(core.state.lost(failure, at: now), on: &core) }
            perform(flush(&core), on: &core)
        }
        core.changed()
        wakeConsumerIfClosed()
        return !messages.isEmpty || failure != nil
    }

    private func inherit(
        _ sockets: [(token: UInt64, socket: NewSocket)], _ previousProcess: WirePreviousProcess,
        on core: inout Core
    ) {
        let actions = core.state.inherit(
            sockets, state: Array(previousProcess.state), wasLaunched: previousProcess.launched)
        perform(actions, on: &core)
    }

    private enum PumpStep<Found> {
        case found(Found)
        case read(Link, interest: Readiness, nanoseconds: Int64)
        case giveUp
    }

    /// Calls `body` until it finds a value, and reads in between if no other thread does; nil: the time is
    /// over.
    func pump<Found>(
        _ patience: inout Patience, _ look: (inout Core) throws(NightbellError) -> Found?
    ) throws(NightbellError) -> Found? {
        while true {
            let step = try core.turn { core throws(NightbellError) -> Monitor<Core>.Turn<PumpStep<Found>> in
                if let found = try look(&core) { return .done(.found(found)) }
                guard let slice = patience.next(at: BootClock.now()) else { return .done(.giveUp) }
                guard let link = core.link, !core.isReading else { return .wait(slice) }
                core.isReading = true
                let interest: Readiness = core.outbox.isEmpty ? .readable : [.readable, .writable]
                return .done(.read(link, interest: interest, nanoseconds: slice))
            }
            switch step {
            case .found(let found):
                return found
            case .giveUp:
                return nil
            case .read(let link, let interest, let nanoseconds):
                let milliseconds = CInt(clamping: nanoseconds / 1_000_000 + 1)
                _ = Poll.wait(link.rawValue, for: interest, timeoutMilliseconds: milliseconds)
                read(link)
            }
        }
    }

    // MARK: Requests

    func request(_ request: Request) throws(NightbellError) -> Answer {
        if isForked { throw NightbellError(.forked, "") }
        var patience = Patience(requestTimeout, from: BootClock.now())
        var number: UInt64?
        let outcome = try pump(&patience) { core throws(NightbellError) -> Result<Answer, NightbellError>? in
            if let number { return core.state.requests.removeOutcome(of: number) }
            switch try core.state.submit(request, at: BootClock.now()) {
            case .answered(let answer):
                perform([], on: &core)
                return .success(answer)
            case .wait:
                return nil
            case .send(let opened, let message):
                number = opened
                perform([.send(message, descriptors: request.descriptors)], on: &core)
                return core.state.requests.removeOutcome(of: opened)
            }
        }
        if let outcome { return try outcome.get() }
        throw giveUp(number)
    }

    private func giveUp(_ number: UInt64?) -> NightbellError {
        guard let number else { return NightbellError(.disconnected, "the client is reconnecting") }
        core.withLock { core in
            let unsent = core.outbox.firstIndex { $0.message.request == number }
            if let unsent { core.outbox.remove(at: unsent) }
            core.state.requests.abandon(number, wasSent: unsent == nil)
        }
        return NightbellError(.requestTimedOut, "")
    }

    // MARK: Closing

    func close() {
        if isForked { return }
        core.withLock { core in
            perform(core.state.close(), on: &core)
            core.notices = []
            callForAttention(&core)
        }
        core.changed()
        wakeConsumerIfClosed()
    }
}
