/// Every number that decides how clients are treated. All of them are configuration keys of `nightbelld` of
/// the same name; the defaults are those of iOS where it had one.
public struct Settings: Sendable, Equatable {
    /// What a client may take for each step before it is suspended or terminated without having finished.
    public struct Budgets: Sendable, Equatable {
        /// From `DidEnterBackground` to `BackgroundEntered`.
        public var enteringBackground: Duration = .seconds(5)
        /// From `PrepareToSuspend` to `ReadyToSuspend`.
        public var prepareToSuspend: Duration = .seconds(5)
        /// From `Wake` to `WakeDone`, for traffic and keep-alive handlers alike.
        public var wake: Duration = .seconds(10)
        /// All background tasks of one client together, from the first one until it is suspended again.
        public var backgroundTasks: Duration = .seconds(180)
        /// How long before the end of `backgroundTasks` the client is told.
        public var expirationNotice: Duration = .seconds(5)
        /// From `WillTerminate` to the kill.
        public var termination: Duration = .seconds(5)
        /// How long media counts as playing after its last sign.
        public var mediaLapse: Duration = .seconds(5)

        public init() {}
    }

    /// Keep-alive handlers.
    public struct KeepAlive: Sendable, Equatable {
        /// The shortest timeout that is accepted.
        public var minimumTimeout: Duration = .seconds(600)
        /// The longest: 30 days. What is to run more seldom than that is no keep-alive.
        public static let maximumTimeout: Duration = .seconds(30 * 86_400)
        /// The width of the window, as a share of the timeout: the handler runs in
        /// [timeout − tolerance, timeout].
        public var tolerance: Double = 0.1
        /// The timer aims this long before the end of a window, so that scheduling delay does not make it late.
        public var lead: Duration = .milliseconds(250)

        public init() {}
    }

    /// Suspension: when it is tried, and when it is given up for now.
    public struct Suspension: Sendable, Equatable {
        /// How long the kernel has to confirm.
        public var confirmation: Duration = .seconds(1)
        /// The pause after a suspension that failed or was not idle; doubles each time in a row, up to
        /// `retryMaximum`.
        public var retry: Duration = .milliseconds(250)
        public var retryMaximum: Duration = .seconds(60)

        public init() {}
    }

    /// How long a woken client stays awake, and what too many wakes mean.
    public struct Wakes: Sendable, Equatable {
        /// A client stays awake at least this long after `WakeDone`, so that the answer to its own answer is
        /// not another wake.
        public var linger: Duration = .milliseconds(500)
        /// `linger` doubles with each wake over the limit, up to this.
        public var lingerMaximum: Duration = .seconds(60)
        /// More wakes than this within `period` are too many: for one client …
        public var limit: Int = 15
        /// … and for all clients of one uid together.
        public var limitPerUser: Int = 100_000
        public var period: Duration = .seconds(300)

        public init() {}
    }

    /// Launching clients, and launching them again.
    public struct Launches: Sendable, Equatable {
        /// From the launch to `Hello`; a client that has said it before, and has not by then, is killed. After it, a client that nothing could wake
        /// yet is left awake for as long again.
        public var budget: Duration = .seconds(20)
        /// So many at a time that somebody waits for: because of traffic, or on request …
        public var concurrent: Int = 32
        /// … of which so many may be of one uid …
        public var concurrentPerUser: Int = 8
        /// … and so many others: with the supervisor, or because they ended badly …
        public var concurrentInBackground: Int = 4
        /// … of which so many may be of one uid.
        public var concurrentInBackgroundPerUser: Int = 3
        /// How often in a row a client is launched again because it ended badly.
        public var relaunches: Int = 5
        /// Who has run this long, or has been suspended, has been launched with success.
        public var settled: Duration = .seconds(10)
        /// The pause before a client that ended badly is launched again; doubles each time in a row, up to
        /// `retryMaximum`.
        public var retry: Duration = .milliseconds(250)
        public var retryMaximum: Duration = .seconds(30)

        public init() {}
    }

    /// What is done when memory is short.
    public struct MemoryPressure: Sendable, Equatable {
        /// So many suspended clients are ended each time, the largest first.
        public var endsAtOnce: Int = 8
        /// For this long nobody is launched that nobody waits for.
        public var pause: Duration = .seconds(30)

        public init() {}
    }

    /// Limits that keep one user from taking what others need.
    public struct Quotas: Sendable, Equatable {
        public var clientsPerUser: Int = 4_096
        public var socketsPerClient: Int = 1_024
        public var socketsPerUser: Int = 16_384
        public var backgroundTasksPerClient: Int = 64
        /// The size of the state that a client may leave for its next process …
        public var stateBytesPerClient: Int = 65_536
        /// … and of what all clients of one uid may leave together.
        public var stateBytesPerUser: Int = 67_108_864

        public init() {}
    }

    /// Keep-alives that are dealt with for sleepers.
    public struct Offload: Sendable, Equatable {
        /// So many pieces of noise in a row are dealt with on one socket; after that its owner is woken …
        public var noiseBurst: Int = 32
        /// … unless there is at least this time between them.
        public var noiseInterval: Duration = .seconds(1)
        /// How long the rest of what began like noise may take to arrive, before the owner is woken.
        public var partialTimeout: Duration = .seconds(5)

        public init() {}
    }

    public var budgets = Budgets()
    public var keepAlive = KeepAlive()
    public var offload = Offload()
    public var suspension = Suspension()
    public var wakes = Wakes()
    public var launches = Launches()
    public var memoryPressure = MemoryPressure()
    public var quotas = Quotas()
    /// Whoever the supervisor runs as: beside root, the one whose clients have room for launches of their own. No
    /// configuration key.
    public var administrator: UserID = 0

    public init() {}

    func isAdministrator(_ user: UserID) -> Bool { user == 0 || user == administrator }
}
