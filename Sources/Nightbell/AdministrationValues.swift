/// The state of a supervisor.
public struct SupervisorStatus: Sendable, Hashable {
    public var version: String
    public var processID: Int32
    /// The process that holds all sockets while this one is replaced; nil: there is none.
    public var keeperProcessID: Int32?
    /// How often the worker has been replaced.
    public var restarts: Int
    /// Time since the first worker started.
    public var uptime: Duration
    /// How clients are suspended: `cgroup`, `signal` or `none`.
    public var suspension: String
    /// Where the cgroups are, or why they are not used.
    public var suspensionDetail: String
    /// The configuration file that was read; nil if none was.
    public var configurationFile: String?
    /// The number of clients by state; states without a client may be missing.
    public var clientsByState: [String: Int]
    /// Parked sockets.
    public var sockets: Int
    /// Control connections, this one included.
    public var connections: Int
    public var counters: SupervisionCounters
    /// Keep-alives handled for sleeping clients, by the name of the profile, such as `irc`. Profiles without any may
    /// be missing.
    public var offloadByProfile: [String: OffloadCounters]
    /// Memory of sleeping clients that was written to swap, and that of clients that were ended because memory
    /// was short, in bytes, since the supervisor's worker was started.
    public var memoryReclaimedBytes: UInt64
    public var users: [User]
    public var descriptorsOpen: Int
    public var descriptorsLimit: Int
    /// Until the next timer; nil when none is set.
    public var nextDeadline: Duration?
    /// The time that a launched program has to send Hello.
    public var launchBudget: Duration
    /// Whether it is shutting down.
    public var isStopping: Bool
    /// Resident set, in bytes.
    public var memoryBytes: UInt64
    /// Problems of the supervisor as text, for example that it cannot persist which user owns an identifier.
    /// Sent only to root and to its own user.
    public var warnings: [String]
    /// The sources of facts about the machine that clients need at present.
    public var sources: [Source]
    /// The process that observes the machine; nil: it does not run.
    public var monitorProcessID: Int32?
    /// Why the machine does not wake from its sleep for keep-alive handlers; empty: it does, or none needs
    /// it.
    public var alarmProblem: String
    /// Identifiers of declared clients that do not run, and that only a request would launch: they were never
    /// started, have ended well, were quit or were given up. Sorted, at most 100.
    public var notRunning: [String]
    /// How many more than those in `notRunning` there are.
    public var notRunningUnnamed: Int
    /// Where clients reach the push service; empty: nowhere.
    public var pushSocket: String

    /// A source of facts about the machine.
    public struct Source: Sendable, Hashable {
        /// `network`, `power`, `sleep` or `users`.
        public var name: String
        /// Whether it has reported.
        public var isAvailable: Bool
        /// Why it has not; empty if it has.
        public var reason: String
    }

    /// The resources of one user.
    public struct User: Sendable, Hashable {
        public var uid: UInt32
        public var clients: Int
        public var sockets: Int
        public var wakes: Int
    }
}

/// An event of the machine that a client can be tried with.
public enum SimulatedEvent: String, Sendable, Hashable, CaseIterable {
    /// The machine has another network.
    case networkChange = "network-change"
    /// The machine is about to sleep: the client's keep-alive handler runs.
    case sleep
    /// The home of the client's user is there: it is launched, if it has waited for that.
    case unlock
    /// It is a good moment to fetch, for a client that runs in the background or sleeps.
    case fetch
    /// The same for a dormant client, which is launched.
    case fetchLaunch = "fetch-launch"
}

/// The result of reading the configuration and the manifests again: a line of text for each item.
public struct ReloadReport: Sendable, Hashable {
    /// Configuration keys that have a new value, and clients that are newly or differently declared.
    public var changed: [String]
    /// Changes that take effect at the supervisor's next start.
    public var kept: [String]
    /// Manifests that are not used, with the reason, and other warnings.
    public var problems: [String]
}

/// Event counts, of one client or of all clients since the supervisor started.
public struct SupervisionCounters: Sendable, Hashable {
    /// Counts that are not zero, by their names: those of `nightbell status --json`, such as
    /// `suspensions_forced`. The protocol's schema lists them.
    public var counts: [String: Int] = [:]
    /// The time spent suspended.
    public var asleep: Duration = .zero

    /// Zero if nothing was counted by this name.
    public subscript(name: String) -> Int { counts[name, default: 0] }
}

/// Keep-alives handled for sleeping clients with sockets that have a profile.
public struct OffloadCounters: Sendable, Hashable {
    /// Pings sent for them.
    public var sent = 0
    /// Pings sent that were answered.
    public var confirmed = 0
    /// Pings of peers that the supervisor answered.
    public var answered = 0
    /// Noise that needed no answer.
    public var absorbed = 0
    /// Wakes that the profile avoided.
    public var wakesAvoided = 0
}

extension SupervisorStatus {
    /// Keep-alives handled for sleeping clients, of all profiles together.
    public var offload: OffloadCounters {
        offloadByProfile.values.reduce(into: OffloadCounters()) { sum, counters in
            sum.sent += counters.sent
            sum.confirmed += counters.confirmed
            sum.answered += counters.answered
            sum.absorbed += counters.absorbed
            sum.wakesAvoided += counters.wakesAvoided
        }
    }
}

/// One client, from the supervisor's point of view.
public struct ClientInfo: Sendable, Hashable {
    /// The life-cycle state of a client.
    public enum State: String, Sendable, Hashable, CaseIterable {
        case notRunning, inactive, active, background, suspending, suspended, terminating,
            dormant, launching
        /// A state that this version of the library does not know.
        case unknown
    }

    /// A parked socket.
    public struct Socket: Sendable, Hashable {
        public var token: UInt64
        /// Nil for one that this version of the library does not know.
        public var tag: SocketTag?
        public var name: String
        /// `tcp`, `udp`, `unix stream`, `pipe`, …
        public var kind: String
        public var local: String
        public var peer: String
        /// `held`, `armed`, `fired` or `ended`.
        public var condition: String
        /// Whether it stays parked when the client has no process.
        public var survives: Bool
        /// Nil for a socket without a profile.
        public var offload: Offload?
        /// Its receive buffer while the client sleeps, in bytes, as the client requested; 0: not requested.
        public var receiveBuffer: Int
        /// Datagrams that the kernel has dropped since the socket was made.
        public var dropped: Int
    }

    /// The keep-alive state of a socket.
    public struct Offload: Sendable, Hashable {
        public var profile: String
        /// Whether the supervisor handles them now, because the client sleeps.
        public var isActive: Bool
        public var counters: OffloadCounters
        public var isAwaitingAnswer: Bool
        /// Until the end of the window of the next ping; nil: none is planned.
        public var nextPing: Duration?
    }

    /// How the program was started.
    public struct Launch: Sendable, Hashable {
        public var arguments: [String]
        public var directory: String
        public var environment: [String: String]
    }

    /// A client's fetches.
    public struct Fetch: Sendable, Hashable {
        /// Why no fetch may begin at present.
        public enum Obstacle: String, Sendable, Hashable, CaseIterable {
            case networkDown = "network_down"
            /// Of memory or processors.
            case shortage
            /// The machine is about to sleep.
            case machineSleeps = "machine_sleeps"
            /// As many fetches are going on as may at a time …
            case places
            /// … or as many of its user.
            case placesOfUser = "places_of_user"
        }

        public var minimumInterval: FetchInterval
        /// From 0 to 100: quick fetches raise it, slow, failed and unfinished ones lower it.
        public var score: Int
        /// Until the end of the planned window; nil: none is planned.
        public var next: Duration?
        public var isRunning: Bool
        /// Why the planned fetch could not begin now, even if its moment had come; nil: nothing keeps it
        /// back.
        public var obstacle: Obstacle?
        /// Since the last one began; nil: there was none.
        public var lastAgo: Duration?
        /// From three on, the usual hours count.
        public var observedDays: Int
        /// Hours of today, local time, in which the client is usually brought to the foreground.
        public var usualHours: [Int]
        public var unfinishedInRow: Int
    }

    /// One of a client's observations.
    public struct Observation: Sendable, Hashable {
        public var name: String
        public var subject: Subject
        /// nil: nothing has happened yet.
        public var latest: Occurrence?
        /// The time since then.
        public var latestAgo: Duration?
        /// The client has been told of it, or is being told.
        public var isTold: Bool
        /// Of pushes: why the client has not been told; nil: none wait, or it is told.
        public var pushObstacle: PushObstacle?

        /// Why a client is not told of pushes that wait for it.
        public enum PushObstacle: String, Sendable, Hashable, CaseIterable {
            /// It is handling others.
            case underWay = "under-way"
            /// It has failed to handle them a moment ago.
            case failed
            /// It was told so often in the last hour as it may be.
            case tooMany = "too-many"
            /// Their urgency asks for power, for a battery that is not low, or for a network that is not metered.
            case conditions
        }
    }

    /// Why a client runs.
    public enum AwakeCause: String, Sendable, Hashable, CaseIterable {
        /// In use, as it says.
        case foreground
        /// It is being launched, is setting up, or enters the background.
        case starting
        /// Background tasks.
        case assertion
        case media
        case fetch
        /// It handles messages of the push service.
        case push
        /// It handles a wake.
        case traffic
        /// It has handled a wake: more may follow.
        case lingering
        /// It is being suspended, or ends.
        case ending
        /// A cause of none of these kinds, or that this version of the library does not know.
        case other
    }

    /// How much of a sleeping program's memory was written to swap.
    public struct PagedOut: Sendable, Hashable {
        /// The bytes that it has given back in its last such sleep.
        public var bytes: UInt64
        /// In all of its sleeps.
        public var totalBytes: UInt64
        /// Why not all of it, or nothing, can be written, for people; may be empty.
        public var limit: String

        package init(bytes: UInt64, totalBytes: UInt64, limit: String) {
            self.bytes = bytes
            self.totalBytes = totalBytes
            self.limit = limit
        }
    }

    public var identifier: String
    public var clientID: String
    public var processID: Int32
    public var uid: UInt32
    public var state: State
    /// More about the state, for people; may be empty.
    public var stateDetail: String
    /// How long it has been in this state.
    public var inState: Duration
    /// How long its process has been connected; zero without one.
    public var connected: Duration
    /// How long it has slept since then. The counters also have the sleep of its earlier processes.
    public var asleepSinceConnected: Duration
    public var modes: Set<Mode>
    public var socketCount: Int
    /// Only from ``Administration/show(_:)``.
    public var sockets: [Socket]
    /// The longest time between two runs of the keep-alive handler; nil when none is set.
    public var keepAliveTimeout: Duration?
    /// Until the end of the window in which the handler runs next; nil in the foreground.
    public var keepAliveDueIn: Duration?
    /// The names of the open background tasks.
    public var backgroundTasks: [String]
    public var isMediaActive: Bool
    public var counters: SupervisionCounters
    /// Totals of all its sockets with a profile; nil if it has none.
    public var offload: OffloadCounters?
    /// Only from ``Administration/show(_:)``, and only if the client sent it.
    public var launch: Launch?
    /// How it is suspended: `cgroup`, `signal`, `systemd` or `none`.
    public var suspension: String
    /// Unusual conditions of the client as text, for example that it holds file locks while asleep.
    public var warnings: [String]
    /// Whether the supervisor can start its program again.
    public var canLaunch: Bool
    /// The size of the state saved by ``Client/saveState(_:)``.
    public var stateBytes: Int
    /// How often in a row it was relaunched after abnormal exits.
    public var launchesInRow: Int
    /// Whether it is woken when the machine has another network.
    public var wantsNetworkChanges: Bool
    /// Local notifications that are still to be shown.
    public var pendingNotifications = 0
    /// Whether it is a program that knows nothing of Nightbell (`nightbell run --unmodified`).
    public var isUnmodified: Bool
    /// How much memory sleeping has freed (`nightbell run --unmodified --page-out`); nil: nothing is known.
    public var pagedOut: PagedOut?
    /// Its fetches; nil: it has never asked for any.
    public var fetch: Fetch?
    /// Only from ``Administration/show(_:)``.
    public var observations: [Observation]
    /// Why it runs; empty: it sleeps, or has no process.
    public var awakeCauses: [AwakeCause]
}

/// Something that happened to a client.
public struct ClientEvent: Sendable, Hashable {
    /// Wall-clock time: nanoseconds since 1970.
    public var unixNanoseconds: UInt64
    public var identifier: String
    /// `state`, `wake`, `overrun`, `adopted`, `released`, `refused`, `connected`, `gone`, …
    public var kind: String
    /// For people.
    public var detail: String
    /// The client's state afterwards.
    public var state: ClientInfo.State
    /// How many events before this one were lost because they were not read fast enough.
    public var dropped: Int
}
