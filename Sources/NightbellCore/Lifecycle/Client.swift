/// What the core knows of one client.
struct Client: Sendable, Equatable {
    let user: UserID
    /// Where its identifier is, in `Supervision.owners`.
    var owner: UInt32
    var modes: Modes
    var wakeLimitPolicy: WakeLimitPolicy
    var isLaunchable: Bool
    var exitsOnSuspend: Bool
    var registeredAt: Instant

    // In this order there is hardly any room between them.
    var lifecycle = Lifecycle.notRunning
    /// It wants to be ended instead of suspended.
    var hibernates = false
    /// It is in `Supervision.touched`.
    var isTouched = false
    /// Some of its sockets have a keep-alive profile.
    var hasProfiles = false
    /// That wake was decided in this turn and is told at its end, so that all events of a turn make one wake.
    var pendingWake: PendingWake?
    /// What the wake with the last number was decided for, told or not.
    var lastWakeReasons: WakeReasons = []
    /// In elapsed time.
    var enteredStateAt: Instant
    /// When it last left the foreground, in elapsed time.
    var backgroundSince: Instant
    var sockets = TokenList()
    /// Those that are to be armed at the next suspension. May name sockets released since.
    var unarmed: [SocketToken] = []
    var doings = Doings()
    private var packedCounters = PackedCounters()
    var lastEpoch: UInt64 = 0
    var lastWakeID: UInt64 = 0
    /// The number of its latest request that was taken in.
    var lastRequest: UInt64 = 0
    var launches = Launches()

    struct KeepAlive: Sendable, Equatable {
        var timeout: Duration
        /// The last run, or when the timeout was set, in elapsed time.
        var base: Instant

        /// The window of the next run. One that ended while the client was in the foreground is served as soon as
        /// it has left it. It begins after the last run whatever the settings say, so that no handler runs twice
        /// at one instant.
        func window(backgroundSince: Instant, _ settings: Settings.KeepAlive) -> Window {
            let lead = min(settings.lead, timeout / 2)
            let latest = max(base + timeout, backgroundSince + lead)
            let tolerance = settings.tolerance > 0 ? min(settings.tolerance, 1) : 0
            let share = Int64(min(Double(timeout.nanoseconds) * tolerance, 0x1p62))
            let earliest = latest - max(.nanoseconds(share), lead)
            return Window(earliest: max(earliest, base + .nanoseconds(1)), latest: latest)
        }
    }

    /// What concerns its being launched again.
    struct Launches: Sendable, Equatable {
        /// There is a process that has said that it is this client.
        var isRejoined = true
        /// It was declared, and no process has said yet that it is this client.
        var neverSpoke = false
        /// Why it is to be launched, or is being launched.
        var reasons: WakeReasons = []
        /// What it is told as its first wake may have been told already, by somebody who is gone.
        var mayHaveBeenTold = false
        /// Where it waits to be launched, or whose room its launch takes.
        var kind = LaunchQueue.Kind()
        /// Its process was launched in the background, and has not left it since.
        var isInBackground = false
        /// It has slept since: it was sound enough for that.
        var hasSettled = false
        /// How often in a row it has been launched because it had ended badly.
        var inRow: UInt8 = 0
        /// How often in a row it has ended badly soon after its start.
        var failuresAtStart: UInt8 = 0
        /// The size of the state that is kept for it.
        var stateBytes: Int32 = 0
    }

    var counters: Counters {
        get { packedCounters.counters }
        set { packedCounters.counters = newValue }
    }

    /// As they are noted outside.
    var counterWords: Progress.CounterWords { packedCounters.words }

    enum PendingWake: Sendable {
        case new
        /// Whoever decided it is gone, and may have told it.
        case repeated
    }

    init(_ registration: Registration, owner: UInt32, at now: Instant, elapsed: Instant) {
        user = registration.user
        self.owner = owner
        modes = registration.modes
        wakeLimitPolicy = registration.wakeLimitPolicy
        isLaunchable = registration.isLaunchable
        exitsOnSuspend = registration.exitsOnSuspend
        registeredAt = now
        enteredStateAt = elapsed
        backgroundSince = elapsed
        keepAlive = registration.keepAliveTimeout.map { KeepAlive(timeout: $0, base: elapsed) }
    }

    /// Another process takes over what was kept of the last one's.
    mutating func takeOver(_ registration: Registration, at now: Instant, elapsed: Instant) {
        modes = registration.modes
        wakeLimitPolicy = registration.wakeLimitPolicy
        isLaunchable = registration.isLaunchable
        exitsOnSuspend = registration.exitsOnSuspend
        hibernates = false
        launches.isRejoined = true
        launches.neverSpoke = false
        registeredAt = now
        backgroundSince = elapsed
        assertions = Assertions()
        keepAlive = registration.keepAliveTimeout.map { KeepAlive(timeout: $0, base: elapsed) }
        backoff.reset()
    }

    /// When this client's timer must fire; its keep-alive window is kept in the schedule.
    func nextDeadline(_ budgets: Settings.Budgets) -> Instant? {
        let own = lifecycle.nextDeadline
        switch lifecycle {
        case .background:
            return earlier(own, assertions.nextDeadline(notice: budgets.expirationNotice))
        case .notRunning, .inactive, .active, .suspending, .suspended, .terminating, .dormant, .launching:
            return own
        }
    }
}
