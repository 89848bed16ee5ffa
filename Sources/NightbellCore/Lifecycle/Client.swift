/// The core's record of one client.
struct Client: Sendable, Equatable {
    let user: UserID
    /// The index of its identifier in `Supervision.owners`.
    var owner: UInt32
    var modes: Modes
    var wakeLimitPolicy: WakeLimitPolicy
    var isLaunchable: Bool
    var isDeclared: Bool
    var exitsOnSuspend: Bool
    var wantsNetworkChanges: Bool
    var waitsForUnlock: Bool
    /// As its latest process was registered.
    var wasRegisteredUnmodified: Bool
    var registeredAt: Instant

    // Ordered for the least padding.
    var lifecycle = Lifecycle()
    /// It asked to be terminated instead of suspended.
    var hibernates = false
    /// It is in `Supervision.changes`.
    var isTouched = false
    var pathInspection = PathInspection.none
    /// It is, or was last, told of sockets that cannot work over the present network.
    var hasLostPaths = false
    /// Some of its sockets have a keep-alive profile.
    var hasProfiles = false
    /// A wake decided in this turn. It is delivered at the turn's end, so that all events of a turn make one
    /// wake.
    var pendingWake: PendingWake?
    /// The reasons of the latest wake, delivered or not.
    var lastWakeReasons: WakeReasons = []
    /// In elapsed time.
    var enteredStateAt: Instant
    /// When it last left the foreground, in elapsed time.
    var backgroundSince: Instant
    var sockets = TokenList()
    /// Sockets to arm at the next suspension; may include sockets released since.
    var unarmed: [SocketToken] = []
    var activity = ActivityState()
    var packedCounters = PackedCounters()
    var lastEpoch: UInt64 = 0
    var lastWakeID: UInt64 = 0
    /// The number of its latest accepted request.
    var lastRequest: UInt64 = 0
    var launches = Launches()

    struct KeepAlive: Sendable, Equatable {
        var timeout: Duration
        /// The last run, or when the timeout was set, in elapsed time.
        var base: Instant

        /// The window of the next run. A window that ended while the client was in the foreground is served
        /// as soon as the client leaves it. It begins after the last run whatever the settings say, so that
        /// no handler runs twice at one instant.
        func window(backgroundSince: Instant, _ settings: Settings.KeepAlive) -> Window {
            let lead = min(settings.lead, timeout / 2)
            let latest = max(base + timeout, backgroundSince + lead)
            let tolerance = settings.tolerance > 0 ? min(settings.tolerance, 1) : 0
            let share = Int64(min(Double(timeout.nanoseconds) * tolerance, 0x1p62))
            let earliest = latest - max(.nanoseconds(share), lead)
            return Window(earliest: max(earliest, base + .nanoseconds(1)), latest: latest)
        }
    }

    /// The launch state of a client.
    struct Launches: Sendable, Equatable {
        /// A process has identified itself as this client.
        var isRejoined = true
        /// It was declared, and no process has identified itself as this client yet.
        var neverSpoke = false
        /// Why it is to be launched, or is being launched.
        var reasons: WakeReasons = []
        /// A previous supervisor process may have delivered its first wake already.
        var mayHaveBeenTold = false
        /// The class of launches in which it is queued or counted.
        var kind = LaunchQueue.Kind()
        /// Its process was launched in the background, and has not left it since.
        var isInBackground = false
        /// It has been suspended since, which counts as a successful launch.
        var hasSettled = false
        /// It has ended well, or was given up or quit: only its notifications, a request or, if it is
        /// declared, what comes for it launch it.
        var isLeft = false
        /// Consecutive launches after a failure.
        var inRow: UInt8 = 0
        /// Consecutive failures soon after the start.
        var failuresAtStart: UInt8 = 0
        /// Consecutive launches without its program, up to `Supervision.mostMisses`.
        var misses: UInt8 = 0
        /// The size of its saved state.
        var stateBytes: Int32 = 0
    }

    /// Its process knows nothing of the supervisor, and another one speaks for it. The next process may be of
    /// another kind.
    var isUnmodified: Bool { wasRegisteredUnmodified && launches.isRejoined }

    var counters: Counters { packedCounters.counters }

    /// The form in which the counters are persisted.
    var counterWords: ClientStatistics.CounterWords { packedCounters.words }

    enum PendingWake: Sendable {
        case new
        /// A previous supervisor process decided it and may have delivered it.
        case repeated
    }

    init(_ registration: Registration, owner: UInt32, at now: Instant, elapsed: Instant) {
        user = registration.user
        self.owner = owner
        modes = registration.modes
        wakeLimitPolicy = registration.wakeLimitPolicy
        isLaunchable = registration.isLaunchable
        isDeclared = registration.isDeclared
        exitsOnSuspend = registration.exitsOnSuspend
        wantsNetworkChanges = registration.wantsNetworkChanges
        waitsForUnlock = registration.waitsForUnlock
        wasRegisteredUnmodified = registration.isUnmodified
        registeredAt = now
        enteredStateAt = elapsed
        backgroundSince = elapsed
        keepAlive = registration.keepAliveTimeout.map { KeepAlive(timeout: $0, base: elapsed) }
    }

    /// A new process takes over the state kept from the previous one.
    mutating func takeOver(_ registration: Registration, at now: Instant, elapsed: Instant) {
        modes = registration.modes
        wakeLimitPolicy = registration.wakeLimitPolicy
        isLaunchable = registration.isLaunchable
        isDeclared = registration.isDeclared
        exitsOnSuspend = registration.exitsOnSuspend
        wantsNetworkChanges = registration.wantsNetworkChanges
        waitsForUnlock = registration.waitsForUnlock
        wasRegisteredUnmodified = registration.isUnmodified
        hibernates = false
        launches.isRejoined = true
        launches.neverSpoke = false
        launches.isLeft = false
        launches.misses = 0
        registeredAt = now
        backgroundSince = elapsed
        keepAlive = registration.keepAliveTimeout.map { KeepAlive(timeout: $0, base: elapsed) }
        backoff.reset()
    }

    /// When this client's timer must fire. Its keep-alive window is in the schedule instead.
    func nextDeadline(_ budgets: Settings.Budgets) -> Instant? {
        let own = lifecycle.nextDeadline
        switch lifecycle.stage {
        case .background:
            return earlier(own, assertions.nextDeadline(notice: budgets.expirationNotice))
        case .notRunning, .inactive, .active, .suspending, .suspended, .terminating, .dormant, .launching:
            return own
        }
    }
}
