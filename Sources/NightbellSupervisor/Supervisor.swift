import EventLoop
import Glibc
package import Keeper
import LinuxSystem
public import Logging
import NightbellCore
import NightbellParking
import NightbellWire
import Suspension

/// The supervisor: adopts sockets, suspends their owners, and wakes them when something happens.
///
/// It lives on one thread, the one that calls `run()`. That thread's libevent loop is the actor's executor:
/// the loop's reports and calls from other threads never run at the same time. Each turn of the loop is fed
/// to the core as a whole; the core's actions are carried out here.
public actor Supervisor {
    nonisolated let loop: LoopExecutor
    private nonisolated let stopRequest: EventDescriptor
    nonisolated let memoryRequest: EventDescriptor
    let configurationReader: ConfigurationReader
    var configuration: SupervisorConfiguration
    let logger: Logger
    /// In elapsed time.
    let startedAt: Instant
    /// Records everything that must outlive this process; nil: nothing is recorded.
    let journal: Journal?
    /// The previous workers' records, until they are recovered.
    var recovered: RecoveredRecords?
    /// When the previous worker's clients were recovered; nil: there was none.
    var recoveredAt: Instant?
    let mustWait: Bool
    var upgrade = UpgradeState()
    private var keeperWatch: Watch?
    private nonisolated let keeperLink: KeeperLink?

    var supervision: Supervision
    var connections = ConnectionTable()
    var parked: ParkedTable
    var offload = OffloadTable()
    var receiveBuffers = ReceiveBufferTable()
    var engine = OffloadEngine()
    /// Released when `run()` is over, so that the next supervisor need not wait for the end of this value.
    var directory: RuntimeDirectory?
    let runtimeState: RuntimeState
    let suspender: any Suspender
    /// Unsafe: it is confined to the loop's thread, as the actor is.
    nonisolated(unsafe) let earlyWaker: EarlyWaker

    /// Reused for each event.
    var buffer = ActionBuffer()
    /// Outcomes of actions, to be fed in next.
    var followUps: [Event] = []
    /// The packet that was received last, with its descriptors until they are adopted.
    var packet = PacketBuffer(capacity: Supervisor.maximumPacket)
    var launches: LaunchTable
    let durable: DurableState
    var memory: MemoryCare
    var monitor = MachineMonitor()
    /// The monitors of sessions, by user.
    var sessions: [UserID: SessionMonitor] = [:]
    /// `NotificationTable.revision` of what the monitors of sessions are asked.
    var notificationsDemanded: UInt64 = 0
    /// Users with clients that could have media, without a monitor because there are too many.
    var unobservedUsers: Set<UserID> = []
    /// Monitors that were ended and cannot be reaped yet.
    var endingMonitors: [HelperProcess] = []
    /// The number of monitors that were started so far.
    var monitorsStarted: UInt64 = 0
    var transferCare = TransferCare()
    /// The connection that has reported waiting pushes last, while it lasts.
    var pushService: UInt64?
    var alarm = MachineAlarm()
    /// Clients with sockets that are being inspected, because of a change of the network.
    var pathInspections: [ClientID: PathInspectionProgress] = [:]
    var fetchCare = FetchCare()
    var notificationCare = NotificationCare()
    /// Running time; `elapsedNow` is the same moment in elapsed time.
    var now: Instant
    var clocks = ClockPair()
    /// `clocks.nanosecondsSlept` when the core was told; nil: it was not yet.
    var knownSleep: Int64?
    var lockInspections = LockInspections()
    var logLimiter = LogLimiter()
    /// Connections and sockets that are still to be served.
    var backlog = Backlog<PendingWork>()
    var socketQuota = SocketQuota()

    var acceptance: Acceptance
    var timer: TurnTimer
    private let requestWatches: RequestWatches
    var phase = Phase.running
    private(set) var hasBegun = false
    /// A socket of a sleeper has fired in this turn.
    private var hasFired = false

    /// The longest packet of the protocol.
    static let maximumPacket = 131_072

    public nonisolated var unownedExecutor: UnownedSerialExecutor {
        unsafe loop.asUnownedSerialExecutor()
    }

    /// Makes the runtime directory, thaws the processes that an earlier run left frozen, and listens. Clients
    /// that connect are served once `run()` is called.
    ///
    /// - Throws: `SupervisorError`; no cgroup and no socket is left behind then, but the runtime directory
    ///   is.
    public init(_ configuration: SupervisorConfiguration, logger: Logger) throws(SupervisorError) {
        let directory = try RuntimeDirectory(configuration.runtimeDirectory)
        try self.init(configuration, logger, SupervisorStartup(directory: directory))
    }

    /// Makes a worker: a keeper holds what must not be lost, and the worker continues with the previous one's
    /// records.
    ///
    /// - Throws: `SupervisorError`; everything that it has inherited is left as it is then.
    package init(
        _ configuration: SupervisorConfiguration, logger: Logger,
        inheriting startup: consuming WorkerStartup
    ) throws(SupervisorError) {
        let startup = try Self.startup(configuration, startup)
        try self.init(configuration, logger, startup)
    }

    private init(
        _ configuration: SupervisorConfiguration, _ logger: Logger, _ startup: consuming SupervisorStartup
    ) throws(SupervisorError) {
        var configuration = configuration
        configuration.settings.administrator = geteuid()
        self.configuration = configuration
        self.logger = logger
        supervision = Supervision(settings: configuration.settings)
        supervision.notesChanges = startup.journal != nil
        now = Instant(nanoseconds: clocks.read())
        startedAt = startup.journal?.startedAt ?? Instant(nanoseconds: BootClock.now())
        journal = startup.journal
        keeperLink = startup.journal?.link
        let isFirst = startup.isFirst
        (runtimeState, suspender) = try Self.prepareSuspension(configuration, thaws: isFirst, logger)
        unsafe earlyWaker = EarlyWaker()
        directory = startup.directory.take()
        mustWait = startup.mustWait
        launches = LaunchTable(configuration.declarations)
        durable = try DurableState(configuration, logger)
        var isListening = false
        do {
            loop = try LoopExecutor()
            parked = ParkedTable(loop: loop)
            timer = try TurnTimer(loop)
            stopRequest = try EventDescriptor()
            memoryRequest = try EventDescriptor()
            configurationReader = try ConfigurationReader()
            requestWatches = try RequestWatches(
                configuration, stop: stopRequest, memory: memoryRequest,
                reloaded: configurationReader.finished, loop)
            switch startup.listener.take() {
            case .some(let listener):
                acceptance = try Acceptance(listener, loop)
            case .none:
                let listener = try Acceptance.listen(configuration)
                isListening = true
                acceptance = try Acceptance(listener, loop)
            }
            recovered = startup.recovered.take()
            if let journal {
                let watch = try loop.watch(
                    journal.link.rawValue, .read, .persistent, token: WatchToken(.keeper).rawValue)
                try watch.arm()
                keeperWatch = consume watch
            } else {
                keeperWatch = nil
            }
            memory = try MemoryCare(configuration, loop, logger)
            try Self.requireRoomForOne()
        } catch {
            if isFirst { suspender.detachAll() }
            // Before that the path does not exist, or is another supervisor's.
            if isListening { Acceptance.unlink(configuration) }
            switch error {
            case let error as LoopError: throw SupervisorError(error)
            case let error as SystemError: throw SupervisorError(.loop, error, "cannot set up")
            case let error as SupervisorError: throw error
            default: preconditionFailure("\(error)")
            }
        }
    }

    /// The descriptors of a client with one socket: its connection, its process, its wake word, its socket, a
    /// way to stop it, and one to inspect its process. A supervisor without them could serve no client.
    private static func requireRoomForOne() throws(SystemError) {
        var spare = UniqueSlots<EventDescriptor>()
        for _ in 0..<6 { spare.append(try EventDescriptor()) }
    }

    /// Serves on the calling thread until `stop()`, or one of the configured signals. On the way out every
    /// client is thawed and told that the supervisor goes away.
    public nonisolated func run() throws(SupervisorError) {
        guard announce(to: keeperLink) else { return }
        do {
            try loop.own { () throws(LoopError) in try assumeIsolated { $0.runTurns() }.get() }
        } catch {
            throw SupervisorError(error)
        }
    }

    private func runTurns() -> Result<Void, LoopError> {
        Result { () throws(LoopError) in
            try loop.runTurns(
                early: { [earlyWaker = unsafe earlyWaker] ready in earlyWaker.wake(ready) },
                turn: { batch, isWhole in isWhole ? turn(batch) : handlePortion(batch) })
        }
    }

    /// Ends `run()` in an orderly way. Can be called from any thread, and from a signal handler.
    public nonisolated func stop() {
        do {
            try stopRequest.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    /// Reports that memory is short, for callers that learn it by other means than
    /// `SupervisorConfiguration.memoryPressure`. Suspended clients that can be launched again are ended, a
    /// few of the largest each time. Can be called from any thread.
    public nonisolated func memoryIsShort() {
        do {
            try memoryRequest.signal()
        } catch {
            preconditionFailure("an eventfd of our own can be written to: \(error)")
        }
    }

    /// Sets the one timer, for keep-alives, budgets and the end.
    func setTimer() {
        var deadline = ask { $0.nextDeadline }
        if let silence = connections.silent.firstDeadline { deadline = min(deadline ?? silence, silence) }
        if let missing = launches.returning.until { deadline = min(deadline ?? missing, missing) }
        if let kill = launches.nextKill { deadline = min(deadline ?? kill, kill) }
        if let look = nextLookAtMachine { deadline = min(deadline ?? look, look) }
        if let due = notificationCare.due { deadline = min(deadline ?? due, due) }
        if let look = lockInspections.next { deadline = min(deadline ?? look, look) }
        if let again = acceptance.resumesAt { deadline = min(deadline ?? again, again) }
        if let patience = connections.hungUp.first?.until { deadline = min(deadline ?? patience, patience) }
        for session in sessions.values {
            if let due = session.monitor.nextDeadline { deadline = min(deadline ?? due, due) }
        }
        if let due = transferCare.due { deadline = min(deadline ?? due, due) }
        if let due = monitor.nextDeadline { deadline = min(deadline ?? due, due) }
        if case .lameDuck(let until) = phase { deadline = nextLook(until: until) }
        // With work left the next turn begins at once, without the timer's three system calls.
        let isDue = deadline.map { $0 <= now } ?? false
        loop.hasWork =
            isDue || !hasBegun || !backlog.isEmpty || memory.survey != nil || isDemandOutdated
        guard !loop.hasWork else { return }
        // The timer runs on while the machine sleeps, so that no keep-alive is late. For a budget it then
        // fires early, and is set once more.
        timer.set(elapsed(deadline))
        setAlarm()
    }

    func elapsed(_ deadline: Instant?) -> Instant? {
        // A closure of this actor would check each time that it is on the actor's thread.
        guard let deadline else { return nil }
        return deadline.advanced(byNanoseconds: clocks.nanosecondsSlept)
    }

    // MARK: One turn of the loop

    private func turn(_ batch: [Ready]) {
        let isFirst = !hasBegun
        now = Instant(nanoseconds: clocks.read())
        takeOver()
        updateMachineSleep()
        if isInput(batch) {
            guard handleInput(batch) else { return }
        } else {
            dispatch(batch)
        }
        advance()
        housekeep()
        if isFirst, hasBegun { configuration.onStarted() }
    }

    /// Feeds in everything that has happened: fired sockets come before the backlog of the last turn.
    private func dispatch(_ batch: [Ready]) {
        hasFired = false
        socketQuota.beginTurn()
        let isBehind = !backlog.isEmpty
        var inputs: [Ready] = []
        for ready in batch {
            // The first ones of a turn need not wait for their users' turns.
            let isFirst = !isBehind && inputs.count < Self.inspectionsAtOnce
            if isFirst, WatchToken(rawValue: ready.token).kind == .offloadedSocket {
                inputs.append(ready)
            } else {
                handle(ready)
            }
        }
        if hasFired {
            // A backlog may hold these wakes up.
            if isBehind { endTurn() } else { flush() }
        }
        if !inputs.isEmpty { _ = handleInputs(inputs) }
        serveBacklog()
        continueSurvey()
        endFailedLaunches()
    }

    /// Feeds in everything that is due, and lets the core end the turn: afterwards all its actions are
    /// carried out.
    private func advance() {
        acceptAgain()
        if !hasBegun { begin() }
        forgetHungUp()
        launchMissing()
        if let kill = launches.nextKill, kill <= now || supervision.isStopping { killLaunches(dueBy: now) }
        lookAtMachine()
        lookAtClock()
        if let deadline = ask({ $0.nextDeadline }), deadline <= now { feed(.timer) }
        disconnectSilent()
        superviseMonitor()
        superviseTransfers()
        if upgrade.quiesceOrder != nil { supervision.prepareForSilence(of: Self.longestSilence, at: now) }
        endTurn()
        if launchActivated() { endTurn() }
        parked.endTurn()
        suspender.finishDeferredWork()
    }

    /// Does the work that no client waits for, and prepares for the next turn.
    private func housekeep() {
        sendEvents()
        inspectLocks()
        giveMemoryBack()
        if case .lameDuck(let until) = phase, now >= until || isLameDuckOver { finish() }
        setTimer()
        forgetUnusedSettings()
        journal?.link.flush()
        quiesce()
        // The keeper may have ended it meanwhile.
        if case .lameDuck = phase {
            sendEvents()
            setTimer()
        }
    }

    /// The first part of a turn, of which the rest is still to come. Some clients run already while the core
    /// still takes them for asleep: everything else that is due waits until the core has been told.
    private func handlePortion(_ batch: [Ready]) {
        now = Instant(nanoseconds: clocks.read())
        updateMachineSleep()
        // It contains only sockets.
        for ready in batch { handle(ready) }
        feedFollowUps()
        supervision.endPortion(at: now, into: &buffer)
        flush()
        parked.endTurn()
        suspender.finishDeferredWork()
        journal?.link.flush()
    }

    private func endFailedLaunches() {
        for client in launches.takeEnded() {
            // It may have said Hello, which has not been read yet.
            if let attempt = launches.attempt(of: client), let connection = connections[attempt.connection],
                connection.isWaiting
            {
                receiveMessages(connection)
            }
            guard let attempt = launches.attempt(of: client), attempt.process.hasExited else { continue }
            launchEnded(client)
        }
    }

    func handle(_ ready: Ready) {
        let token = WatchToken(rawValue: ready.token)
        switch token.kind {
        case .listener:
            acceptConnections()
        case .timer where token.names(WatchToken.clock):
            clockWasSet()
        case .timer:
            timer.clear()
        case .signal:
            beginLameDuck()
        case .reload:
            reloadUnasked()
        case .reloaded:
            continueReload()
        case .connectionReadable:
            if let connection = connections[token] { connectionReadable(connection) }
        case .connectionWritable:
            if let connection = connections[token] { continueSending(connection) }
        case .processExit:
            guard let connection = connections[token] else { return }
            connection.hasProcessEnded = true
            enqueue(connection)
        case .launchExit:
            if let client = launches.client(for: token) { launches.noteEnd(of: client) }
        case .memoryPressure:
            relieveMemory()
        case .socket:
            if ready.wasHandledEarly, let owner = token.owner, unsafe earlyWaker.hasThawed(owner) {
                suspender.markThawed(slot: owner)
            }
            if let socket = parked.token(for: token) {
                hasFired = true
                socketReady(socket, ready)
            }
        case .offloadedSocket:
            if let socket = parked.token(for: token) { enqueueInspection(socket, ready) }
        case .keeper:
            receiveFromKeeper()
        case .monitor:
            receiveReports(UInt64(token.slot))
        case .monitorExit:
            monitorExited(UInt64(token.slot))
        case .transfers:
            transfersReady(token)
        case nil:
            preconditionFailure("the loop made up a token")
        }
    }

    /// The first turn: it comes as soon as the loop runs.
    private func begin() {
        hasBegun = true
        recallOwnership()
        if journal?.hasBegun != true { launchDeclared() } else { continueWaiting() }
        resumeTransfers()
        journal?.hasBegun = true
    }

    /// Finds out what has happened, without reading or clearing anything, and tells the core. The sockets of
    /// a batch share one `flush`.
    func socketFired(_ token: SocketToken, _ ready: Ready) {
        guard let descriptor = parked.descriptor(of: token) else { return }
        if parked.isArmedPastEnd(token), !SocketTraffic.hasUnread(descriptor) { return }
        parked.noteFired(token)
        let conditions = Conditions(Poll.now(descriptor))
        guard ready.wasHandledEarly else {
            return supervision.handle(.fired(token, conditions), at: now, into: &buffer)
        }
        // The input that its owner was thawed for counts, even if that, or another process that shares the
        // socket, has read it since.
        let seen: Conditions = ready.readable ? .readable : .peerClosed
        supervision.handle(
            .thawedEarly(token, conditions.isEmpty ? seen : conditions), at: now, into: &buffer)
    }

    /// Feeds one event to the core and carries out its actions.
    func feed(_ event: Event) {
        var context = RequestContext()
        feed(event, &context)
    }

    /// Feeds the event of a request, and carries out its actions with the rest of the request.
    func feed(_ event: Event, _ context: inout RequestContext) {
        supervision.handle(event, at: now, into: &buffer)
        flush(&context)
    }

    /// Lets the core end the turn, and feeds in the outcomes of its actions until there are none.
    func endTurn() {
        repeat {
            feedFollowUps()
            supervision.endTurn(at: now, into: &buffer)
            flush()
        } while !followUps.isEmpty
    }

    private func feedFollowUps() {
        while !followUps.isEmpty {
            let events = followUps
            followUps.removeAll(keepingCapacity: true)
            for event in events { feed(event) }
        }
    }
}
