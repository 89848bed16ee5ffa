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
    let lockReader: LockReader
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
    var monitor = MonitorService()
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
    var hasBegun = false
    /// A socket of a sleeper has fired in this turn.
    var hasFired = false

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
        durable = try DurableState(configuration, isFirst: isFirst, logger)
        var isListening = false
        do {
            loop = try LoopExecutor()
            parked = ParkedTable(loop: loop)
            timer = try TurnTimer(loop)
            stopRequest = try EventDescriptor()
            memoryRequest = try EventDescriptor()
            configurationReader = try ConfigurationReader()
            lockReader = try LockReader()
            requestWatches = try RequestWatches(
                configuration, stop: stopRequest, memory: memoryRequest,
                reloaded: configurationReader.finished, locks: lockReader.finished, loop)
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
        if !lockReader.isReading, let look = lockInspections.next { deadline = min(deadline ?? look, look) }
        if let patience = connections.hungUp.first?.until { deadline = min(deadline ?? patience, patience) }
        if let due = connections.abandoned.first?.until { deadline = min(deadline ?? due, due) }
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
}
