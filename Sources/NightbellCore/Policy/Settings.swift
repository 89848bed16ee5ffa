/// Every number that decides how clients are treated. All of them are configuration keys of `nightbelld` of
/// the same name; the defaults are those of iOS where it had one.
package struct Settings: Sendable, Equatable {
    /// The time limit of each step; a client that exceeds it is suspended or terminated unfinished.
    package struct Budgets: Sendable, Equatable {
        /// From `DidEnterBackground` to `BackgroundEntered`.
        package var enteringBackground: Duration = .seconds(5)
        /// From `PrepareToSuspend` to `ReadyToSuspend`.
        package var prepareToSuspend: Duration = .seconds(5)
        /// From `Wake` to `WakeDone`, for traffic and keep-alive handlers alike.
        package var wake: Duration = .seconds(10)
        /// All background tasks of one client together, from the first one until it is suspended again.
        package var backgroundTasks: Duration = .seconds(180)
        /// How long before the end of `backgroundTasks` the client is told.
        package var expirationNotice: Duration = .seconds(5)
        /// From `WillTerminate` to the kill.
        package var termination: Duration = .seconds(5)
        /// From the `Wake` with the reason `fetch` to `FetchDone`.
        package var fetch: Duration = .seconds(30)
        /// From the `Wake` with the reason `push` to `PushDone`.
        package var push: Duration = .seconds(30)
        /// How long media counts as playing after its last sign.
        package var mediaLapse: Duration = .seconds(5)
        /// How long media that played counts as playing while nothing is known about it.
        package var mediaHold: Duration = .seconds(30)

        package init() {}
    }

    /// Keep-alive handlers.
    package struct KeepAlive: Sendable, Equatable {
        /// The shortest timeout that is accepted.
        package var minimumTimeout: Duration = .seconds(600)
        /// The longest accepted timeout: 30 days. A handler that runs less often is no keep-alive.
        package static let maximumTimeout: Duration = .seconds(30 * 86_400)
        /// The width of the window, as a share of the timeout: the handler runs in
        /// [timeout − tolerance, timeout].
        package var tolerance: Double = 0.1
        /// The timer aims this long before the end of a window, so that scheduling delay does not make it
        /// late.
        package var lead: Duration = .milliseconds(250)

        package init() {}
    }

    /// Opportunistic fetches.
    package struct Fetch: Sendable, Equatable {
        /// The shortest pause between two fetches of a client, and after its time in the foreground, whatever
        /// the client asks for.
        package var minimumInterval: Duration = .seconds(900)
        /// The maximum number of fetches of a client in a day. A client with a bad score has fewer.
        package var perDay: Int = 24
        /// The maximum number of fetches at a time.
        package var concurrent: Int = 8
        /// How much earlier than planned a fetch may begin, because the machine is awake.
        package var slack: Duration = .seconds(120)
        /// How long data counts as fresh after a fetch.
        package var fresh: Duration = .seconds(1_800)
        /// Fetches wait while processes have waited for a processor for this share of the last ten seconds,
        /// in percent …
        package var processorPressure: Int = 60
        /// … or for memory.
        package var memoryPressure: Int = 10

        package init() {}
    }

    /// Silent pushes.
    package struct Push: Sendable, Equatable {
        /// How often a client in the background is told of pushes within an hour. Further ones wait,
        /// and are told together.
        package var perHour: Int = 9
        /// A client that has not handled its pushes is told again after this.
        package var retry: Duration = .seconds(60)

        package init() {}
    }

    /// Transfers that can wait.
    package struct Discretionary: Sendable, Equatable {
        /// How long a client that sleeps may wait for their end, so that it is told with another wake.
        package var patience: Duration = .seconds(900)

        package init() {}
    }

    /// When suspension is tried, and when an attempt is given up.
    package struct Suspension: Sendable, Equatable {
        /// How long the kernel has to confirm.
        package var confirmation: Duration = .seconds(1)
        /// The pause after a suspension that failed or was not idle; doubles each time in a row, up to
        /// `retryMaximum`.
        package var retry: Duration = .milliseconds(250)
        package var retryMaximum: Duration = .seconds(60)

        package init() {}
    }

    /// How long a woken client stays awake, and the rate limit of wakes.
    package struct Wakes: Sendable, Equatable {
        /// A client stays awake at least this long after `WakeDone`, so that the peer's reply to its answer
        /// is not another wake.
        package var linger: Duration = .milliseconds(500)
        /// `linger` doubles with each wake over the limit, up to this.
        package var lingerMaximum: Duration = .seconds(60)
        /// The maximum number of wakes within `period`: for one client …
        package var limit: Int = 15
        /// … and for all clients of one uid together.
        package var limitPerUser: Int = 100_000
        package var period: Duration = .seconds(300)

        package init() {}
    }

    /// Launches and relaunches of clients.
    package struct Launches: Sendable, Equatable {
        /// From the launch to `Hello`; a client that has sent it before, but not by then, is killed. After
        /// `Hello`, a client without a wake source is left awake for as long again.
        package var budget: Duration = .seconds(20)
        /// The maximum number of concurrent urgent launches, because of traffic or on request …
        package var concurrent: Int = 32
        /// … of these, the maximum for one uid …
        package var concurrentPerUser: Int = 8
        /// … and the maximum of other launches, with the supervisor or after a failure …
        package var concurrentInBackground: Int = 4
        /// … of these, the maximum for one uid.
        package var concurrentInBackgroundPerUser: Int = 3
        /// The maximum number of consecutive relaunches after a failure.
        package var relaunches: Int = 5
        /// A client that has run this long, or was suspended, counts as launched and resets its crash count.
        package var settled: Duration = .seconds(10)
        /// The pause before a failed client is launched again; doubles with each consecutive failure, up to
        /// `retryMaximum`.
        package var retry: Duration = .milliseconds(250)
        package var retryMaximum: Duration = .seconds(30)

        package init() {}
    }

    /// Sleep of the whole machine.
    package struct Sleep: Sendable, Equatable {
        /// Keep-alive handlers that would be due within this time run before the machine sleeps.
        package var horizon: Duration = .seconds(300)
        /// How long the machine's sleep is delayed for that at most. The machine permits 5 s, unless
        /// configured otherwise.
        package var delay: Duration = .seconds(4)

        package init() {}
    }

    /// The measure of a significant change of the machine's location.
    package struct Location: Sendable, Equatable {
        /// Metres from the position that the client was told of last.
        package var significantDistance: Int = 500
        /// The shortest time between two of them.
        package var significantInterval: Duration = .seconds(300)

        package init() {}
    }

    /// Measures when memory is short.
    package struct MemoryPressure: Sendable, Equatable {
        /// How many suspended clients are terminated each time, the largest first.
        package var endsAtOnce: Int = 8
        /// Launches that are not urgent are delayed for this long.
        package var pause: Duration = .seconds(30)

        package init() {}
    }

    /// Limits that keep one user from taking other users' resources.
    package struct Quotas: Sendable, Equatable {
        package var clientsPerUser: Int = 4_096
        package var socketsPerClient: Int = 1_024
        package var socketsPerUser: Int = 16_384
        package var backgroundTasksPerClient: Int = 64
        package var observationsPerClient: Int = 16
        package var observationsPerUser: Int = 64
        /// Pending notifications: the soonest are kept, a repeating one counts once.
        package var notificationsPerClient: Int = 128
        /// Pending and shown ones.
        package var notificationsPerUser: Int = 1_024
        /// The size of the state that a client may leave for its next process …
        package var stateBytesPerClient: Int = 65_536
        /// … and of what all clients of one uid may leave together.
        package var stateBytesPerUser: Int = 67_108_864

        /// The state and the names of surviving sockets go to the next process in one packet, which has room
        /// for this many bytes of them.
        static let bytesForNextProcess = 122_880
        /// The longest name of a socket, and the numbers beside it, in bytes.
        static let bytesPerSurvivor = 84

        package init() {}
    }

    /// Keep-alives handled for suspended clients.
    package struct Offload: Sendable, Equatable {
        /// Size of the per-socket token bucket for absorbed noise; when it is empty, the owner is woken.
        package var noiseBurst: Int = 32
        /// The time in which one token is added.
        package var noiseInterval: Duration = .seconds(1)
        /// How long the rest of a partial noise message may take to arrive before the owner is woken.
        package var partialTimeout: Duration = .seconds(5)

        package init() {}
    }

    package var budgets = Budgets()
    package var keepAlive = KeepAlive()
    package var fetch = Fetch()
    package var push = Push()
    package var discretionary = Discretionary()
    package var offload = Offload()
    package var suspension = Suspension()
    package var wakes = Wakes()
    package var launches = Launches()
    package var memoryPressure = MemoryPressure()
    package var sleep = Sleep()
    package var location = Location()
    package var quotas = Quotas()
    /// The uid that the supervisor runs as. Its clients are launched with administrators' limits, as root's
    /// are. No configuration key.
    package var administrator: UserID = 0

    package init() {}

    func isAdministrator(_ user: UserID) -> Bool { user == 0 || user == administrator }
}
