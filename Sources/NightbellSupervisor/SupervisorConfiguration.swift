public import NightbellCore

/// How a supervisor is set up.
public struct SupervisorConfiguration: Sendable {
    /// How client processes are stopped.
    public enum Suspension: String, Sendable, Hashable, CaseIterable {
        /// `cgroup` where it works, else `signal`.
        case auto
        /// The freezer of cgroup v2.
        case cgroup
        /// `SIGSTOP` and `SIGCONT`.
        case signal
        /// Not at all: clients stop reading when they are told, and run on.
        case none
    }

    /// Memory is short when processes have lost this much time within a window because they waited for it.
    public struct MemoryPressureTrigger: Sendable, Hashable {
        /// `/proc/pressure/memory`, or `memory.pressure` of a cgroup.
        public var file = "/proc/pressure/memory"
        /// Whether all processes must have waited at the same time, or only some.
        public var isFull = false
        public var stall: Duration = .milliseconds(200)
        /// 500 ms to 10 s, and whole multiples of 2 s for a supervisor without `CAP_SYS_RESOURCE`.
        public var window: Duration = .seconds(2)

        public init() {}
    }

    /// The path of the control socket. A socket that nobody listens on any more is replaced.
    public var socketPath: String
    /// A directory for what must survive a crash of the supervisor, but no restart of the machine.
    public var runtimeDirectory: String
    /// Permission bits of the control socket. Clients are told apart by their uid, whoever may connect.
    public var socketMode: UInt32 = 0o666
    public var suspension = Suspension.auto
    /// The numbers of behaviour.
    public var settings = Settings()
    /// How many messages of one connection are handled in one turn of the loop; the rest waits for the next, so
    /// that a flood delays nobody else.
    public var messagesPerTurn = 32
    /// How long a new connection may take to say something: Hello, or a request of an administrator's.
    public var helloTimeout: Duration = .seconds(10)
    /// Connections of one uid at a time, clients and administration together.
    public var connectionsPerUser = 4_352
    /// Bytes of messages that wait for a client that does not read. More, and its connection is closed.
    public var outgoingBytesPerConnection = 256 * 1024
    /// Signals, such as `SIGTERM`, that end `run()` like `stop()` does. Only one supervisor of a process can have
    /// any.
    public var stopSignals: [Int32] = []
    /// Called on the supervisor's thread when it begins to stop, for whatever reason.
    public var onStopping: @Sendable () -> Void = {}
    /// Where in the cgroup hierarchy all clients are put, such as `/nightbell.slice`, whose limits then count for them;
    /// if `nil`, below the cgroup that each is in, whose limits count as before.
    public var cgroupParent: String?
    /// A directory for the little that must survive a restart of the machine: whom identifiers belong to, and which
    /// clients were quit by their users. Nothing is kept if `nil`.
    public var stateDirectory: String?
    /// When memory counts as short; never if `nil`.
    public var memoryPressure: MemoryPressureTrigger?
    /// Whether the memory of a client that is suspended is written to swap at once (`MADV_PAGEOUT`), where there is
    /// any.
    public var pagesOut = false
    /// Signals, such as `SIGHUP`, at which `reload` is called as well.
    package var reloadSignals: [Int32] = []
    /// Reads the configuration again; nil: it comes from nowhere that could be read again.
    package var reload: (@Sendable () -> Reloaded)?
    /// Clients that are known before they say so themselves.
    package var declarations: [Declaration] = []
    /// For tests: sleep of the machine on top of what it has really slept, all in all. It is asked in each turn.
    package var pretendedSleep: @Sendable () -> Duration = { .zero }
    /// Descriptive: shown by `nightbell status`.
    public var version = ""
    /// Descriptive: the file that this configuration was read from; empty if none.
    public var configurationFile = ""

    /// What was read again.
    package struct Reloaded: Sendable {
        /// Nil: it cannot be used, for the first of the problems.
        package var configuration: SupervisorConfiguration?
        /// Keys that have another value in it.
        package var changed: [String] = []
        /// Keys that are written otherwise, and have their old value in it.
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
