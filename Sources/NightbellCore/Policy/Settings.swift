/// Every number that decides how clients are treated. All of them are configuration keys of `nightbelld` of
/// the same name; the defaults are those of iOS where it had one.
public struct Settings: Sendable, Equatable {
    /// The time limit of each step; a client that exceeds it is suspended or terminated unfinished.
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
        /// The longest accepted timeout: 30 days. A handler that runs less often is no keep-alive.
        public static let maximumTimeout: Duration = .seconds(30 * 86_400)
        /// The width of the window, as a share of the timeout: the handler runs in
        /// [timeout − tolerance, timeout].
        public var tolerance: Double = 0.1
        /// The timer aims this long before the end of a window, so that scheduling delay does not make it late.
        public var lead: Duration = .milliseconds(250)

        public init() {}
    }

    /// When suspension is tried, and when an attempt is given up.
    public struct Suspension: Sendable, Equatable {
        /// How long the kernel has to confirm.
        public var confirmation: Duration = .seconds(1)
        /// The pause after a suspension that failed or was not idle; doubles each time in a row, up to
        /// `retryMaximum`.
        public var retry: Duration = .milliseconds(250)
        public var retryMaximum: Duration = .seconds(60)

        public init() {}
    }

    /// How long a woken client stays awake, and the rate limit of wakes.
    public struct Wakes: Sendable, Equatable {
        /// A client stays awake at least this long after `WakeDone`, so that the peer's reply to its answer is
        /// not another wake.
        public var linger: Duration = .milliseconds(500)
        /// `linger` doubles with each wake over the limit, up to this.
        public var lingerMaximum: Duration = .seconds(60)
        /// The maximum number of wakes within `period`: for one client …
        public var limit: Int = 15
        /// … and for all clients of one uid together.
        public var limitPerUser: Int = 100_000
        public var period: Duration = .seconds(300)

        public init() {}
    }

    /// Launches and relaunches of clients.
    public struct Launches: Sendable, Equatable {
        /// From the launch to `Hello`; a client that has sent it before, but not by then, is killed. After `Hello`, a
        /// client without a wake source is left awake for as long again.
        public var budget: Duration = .seconds(20)
        /// The maximum number of concurrent urgent launches, because of traffic or on request …
        public var concurrent: Int = 32
        /// … of these, the maximum for one uid …
        public var concurrentPerUser: Int = 8
        /// … and the maximum of other launches, with the supervisor or after a failure …
        public var concurrentInBackground: Int = 4
        /// … of these, the maximum for one uid.
        public var concurrentInBackgroundPerUser: Int = 3
        /// The maximum number of consecutive relaunches after a failure.
        public var relaunches: Int = 5
        /// A client that has run this long, or was suspended, counts as launched and resets its crash count.
        public var settled: Duration = .seconds(10)
        /// The pause before a failed client is launched again; doubles with each consecutive failure, up to
        /// `retryMaximum`.
        public var retry: Duration = .milliseconds(250)
        public var retryMaximum: Duration = .seconds(30)

        public init() {}
    }

    /// Measures when memory is short.
    public struct MemoryPressure: Sendable, Equatable {
        /// How many suspended clients are terminated each time, the largest first.
        public var endsAtOnce: Int = 8
        /// Launches that are not urgent are delayed for this long.
        public var pause: Duration = .seconds(30)

        public init() {}
    }

    /// Limits that keep one user from taking other users' resources.
    public struct Quotas: Sendable, Equatable {
        public var clientsPerUser: Int = 4_096
        public var socketsPerClient: Int = 1_024
        public var socketsPerUser: Int = 16_384
        public var backgroundTasksPerClient: Int = 64
        /// The size of the state that a client may leave for its next process …
        public var stateBytesPerClient: Int = 65_536
        /// … and of what all clients of one uid may leave together.
        public var stateBytesPerUser: Int = 67_108_864

        /// The state and the names of surviving sockets go to the next process in one packet, which has room for this many
        /// bytes of them.
        static let bytesForNextProcess = 122_880
        /// The longest name of a socket, and the numbers beside it, in bytes.
        static let bytesPerSurvivor = 84

        public init() {}
    }

    /// Keep-alives handled for suspended clients.
    public struct Offload: Sendable, Equatable {
        /// Size of the per-socket token bucket for absorbed noise; when it is empty, the owner is woken.
        public var noiseBurst: Int = 32
        /// The time in which one token is added.
        public var noiseInterval: Duration = .seconds(1)
        /// How long the rest of a partial noise message may take to arrive before the owner is woken.
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
    /// The uid that the supervisor runs as. Its clients are launched with administrators' limits, as root's are. No
    /// configuration key.
    public var administrator: UserID = 0

    public init() {}

    func isAdministrator(_ user: UserID) -> Bool { user == 0 || user == administrator }
}
