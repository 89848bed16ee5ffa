package import Launching
package import NightbellCore

/// The configuration of a supervisor.
public struct SupervisorConfiguration: Sendable {
    /// How client processes are stopped.
    public enum Suspension: String, Sendable, Hashable, CaseIterable {
        /// `cgroup` where it works, else `signal`.
        case auto
        /// The freezer of cgroup v2.
        case cgroup
        /// `SIGSTOP` and `SIGCONT`.
        case signal
        /// No suspension: clients stop reading when they are told, and run on.
        case none
    }

    /// Memory counts as short when processes have been stalled for this long within a window because they
    /// waited for it; that of the machine only while less than a fifth of it is available.
    public struct MemoryPressureTrigger: Sendable, Hashable {
        /// `/proc/pressure/memory`, or `memory.pressure` of a cgroup.
        public var file = "/proc/pressure/memory"
        /// Whether all processes must have been stalled at the same time, or only some.
        public var isFull = false
        public var stall: Duration = .milliseconds(200)
        /// 500 ms to 10 s; multiples of 2 s for a supervisor without `CAP_SYS_RESOURCE`.
        public var window: Duration = .seconds(2)

        public init() {}
    }

    /// The path of the control socket. A stale socket that has no listener is replaced.
    public var socketPath: String
    /// A directory for state that must survive a crash of the supervisor, but no restart of the machine.
    public var runtimeDirectory: String
    /// Permission bits of the control socket. Clients are told apart by their uid, even if all users may
    /// connect.
    public var socketMode: UInt32 = 0o666
    public var suspension = Suspension.auto
    /// Numbers that govern behaviour.
    package var settings = Settings()
    /// The most messages of one connection that are handled in one turn of the loop; the rest waits for the
    /// next, so that a flood delays no other client.
    public var messagesPerTurn = 32
    /// The time limit for a new connection's first message: Hello, or an administrator's request.
    public var helloTimeout: Duration = .seconds(10)
    /// The most connections of one uid, clients and administration together.
    public var connectionsPerUser = 4_352
    /// The most bytes queued for a client that does not read. With more its connection is closed.
    public var outgoingBytesPerConnection = 256 * 1024
    /// Signals, such as `SIGTERM`, that end `run()` like `stop()` does. Only one supervisor of a process can
    /// have any.
    public var stopSignals: [Int32] = []
    /// Called on the supervisor's thread when it begins to stop, for any reason.
    public var onStopping: @Sendable () -> Void = {}
    /// Called on the thread of `run()` after the first turn, to release what only the start and the recovery
    /// needed.
    package var onStarted: @Sendable () -> Void = {}
    /// The parent cgroup of all clients, such as `/nightbell.slice`: its limits then apply to them; if `nil`,
    /// each stays below the cgroup that it is in, with its limits as before.
    public var cgroupParent: String?
    /// A directory for the little that must survive a restart of the machine: the owners of identifiers, and
    /// which clients were quit by their users. Nothing is stored if `nil`.
    public var stateDirectory: String?
    /// When memory counts as short; never if `nil`.
    public var memoryPressure: MemoryPressureTrigger?
    /// Whether the memory of a suspended client is written to swap at once (`MADV_PAGEOUT`), if there is
    /// swap.
    public var pagesOut = false
    /// Signals, such as `SIGHUP`, that call `reload`.
    package var reloadSignals: [Int32] = []
    /// Reads the configuration again, on any thread, one call at a time; nil: it has no source to read again.
    package var reload: (@Sendable () -> Reloaded)?
    /// Clients that are known before they connect.
    package var declarations: [Declaration] = []
    /// The program that observes the machine; nil: the machine is not observed.
    package var monitor: HelperProgram?
    /// The program that moves users' files; nil: there are no transfers. They need a `stateDirectory`.
    package var transfers: TransferProgram?
    /// How long a monitor may be silent before it is asked for an answer, if there is another reason to run
    /// or something is held up by what it has said.
    package var monitorSilence: Duration = .seconds(20)
    /// The number of sessions that are observed at most: each needs a process.
    package var observedSessions = 16
    /// With it, launches take the same time however many descriptors are open.
    package var launchSlots: LaunchSlots?
    /// The rights of the user of `nightbell-gateway`; nil: there is no gateway.
    package var gateway: GatewayRights?
    /// Where clients reach the push service; nil: nowhere.
    package var pushSocket: String?
    /// For tests: total sleep of the machine to be added to the real one. Called in each turn.
    package var pretendedSleep: (@Sendable () -> Duration)?
    /// For tests: where the kernel tells how long processes have waited for processors and memory, and how
    /// often that is read.
    package var pressure = (directory: "/proc/pressure", interval: Duration.seconds(60))
    /// For tests: the time of day, instead of the machine's. Read in each turn.
    package var pretendedClock: (@Sendable () -> NotificationClock)?
    /// The file that is replaced when another time zone is set; nil: the time zone is fixed.
    package var zoneFile = ClockLook.zoneFile
    /// Descriptive: shown by `nightbell status`.
    public var version = ""
    /// Descriptive: the file that this configuration was read from; empty if none.
    public var configurationFile = ""

    /// The result of reading the configuration again.
    package struct Reloaded: Sendable {
        /// nil: it cannot be used, because of the first problem.
        package var configuration: SupervisorConfiguration?
        /// Keys that have a new value in it.
        package var changed: [String] = []
        /// Keys that were changed in the file, but keep their old value in it.
        package var kept: [String] = []
        package var problems: [String] = []

        package init(_ configuration: SupervisorConfiguration?, problems: [String]) {
            self.configuration = configuration
            self.problems = problems
        }
    }

    public init(socketPath: String, runtimeDirectory: String) {
        self.socketPath = socketPath
        self.runtimeDirectory = runtimeDirectory
    }
}
