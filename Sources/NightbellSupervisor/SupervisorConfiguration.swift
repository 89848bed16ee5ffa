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
    /// Where in the cgroup hierarchy clients are put, such as `/nightbell.slice`; below the supervisor's own cgroup
    /// if `nil`.
    public var cgroupParent: String?
    /// Descriptive: shown by `nightbell status`.
    public var version = ""
    /// Descriptive: the file that this configuration was read from; empty if none.
    public var configurationFile = ""

    public init(socketPath: String, runtimeDirectory: String) {
        self.socketPath = socketPath
        self.runtimeDirectory = runtimeDirectory
    }
}
