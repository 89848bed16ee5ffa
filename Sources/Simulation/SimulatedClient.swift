import NightbellCore

/// A simulated client process: its state as seen from outside, kept apart from the state of the core.
final class SimulatedClient {
    enum Behaviour: CaseIterable {
        /// Answers within milliseconds and reads the sockets that it was woken for.
        case wellBehaved
        /// Takes up to twice its budgets and leaves data unread.
        case slow
        /// Answers nothing.
        case hung
        /// Well-behaved until it ends, at any moment.
        case crashing
        /// Sends messages all the time, also on its way to sleep.
        case chattering
        /// Sends wrong tokens, wrong epochs and floods, and finishes wakes before it is told of them.
        case malicious
    }

    /// A planned step, taken as soon as it is due and the client is not stopped.
    enum Deed {
        case say(ClientMessage)
        case read
        case exit
        /// Identifies itself after it was launched.
        case rejoin
    }

    /// The state of its process in the kernel.
    enum Execution {
        case running
        case stopping
        case stopped
        /// There is no process.
        case absent
    }

    /// The required outcome once its process has ended.
    enum Fate {
        case forgotten
        case parked
    }

    /// The state that it has declared, as long as it has a process that has identified itself.
    enum Stay {
        /// It has not declared itself yet.
        case inactive
        case active
        /// Awake, asleep, or on its way there.
        case background
    }

    /// The time that all its background tasks share.
    struct TaskClock: Equatable {
        var until: Instant
        var isWarned = false
    }

    /// A pending answer to the supervisor, and its deadline.
    struct Obligation {
        var number: UInt64
        var until: Instant
    }

    let id: ClientID
    var registration: Registration
    let behaviour: Behaviour
    var user: UserID { registration.user }
    var name: String { TraceFormat.name(id) }

    var execution = Execution.running
    var isKilled = false
    var isGone = false
    private(set) var agenda: [(due: Instant, deed: Deed)] = []
    private(set) var nextDue = Instant(nanoseconds: .max)
    var sockets: [SimulatedSocket] = []
    var tasks: [UInt64] = []
    var mediaUntil = Instant(nanoseconds: .min)
    /// The reports of its session have named it, and no later one has ended that.
    var hasReportedMedia = false
    var lastEpoch: UInt64 = 0
    /// The attempt in which it reported that all its sockets are idle.
    var vouchedEpoch: UInt64 = 0
    var lastWakeID: UInt64 = 0
    /// It has released a socket since it was told of a wake, which may have been for that socket.
    var hasReleased = false
    /// The step in which its last process was found to have ended.
    var parkedAtStep = 0
    /// An event of this turn concerned it.
    var isTouched = true

    var entering: Obligation?
    var preparing: Obligation?
    var openWake: Obligation?
    var terminating: Obligation?
    /// The attempt to suspend it that is under way: told to prepare, not confirmed.
    var isAttempted = false
    /// The kernel was asked to stop it; the deadline of the confirmation.
    var freezing: Obligation?
    /// The time at which the kernel's confirmation of this attempt was reported.
    var asleepSince: Instant?
    /// The step in which its latest wake was decided; 0 once it has been told of it.
    var wokenAtStep = 0
    /// The step in which it was told of a wake in mid-turn, while more sockets could fire.
    var toldAtStep = 0
    /// The next thaw follows a failed suspension, and is no wake.
    var isFailing = false

    var stay = Stay.inactive
    /// The clock runs from the first task in the background while no media plays; until then the tasks have
    /// all their time.
    var clock: TaskClock?
    var tasksAreOver = false
    /// The time since which its warning or its end was due at the end of the last turn.
    var dueSince: Instant?
    /// The last moment at which it had a reason to be awake, besides lingering.
    var busyAt: Instant
    var wasBusy = true
    /// It must be left awake until then.
    var lingerUntil = Instant(nanoseconds: .min)

    var timeout: Duration?
    var lastRun = Instant(nanoseconds: 0)
    /// The wake with which its keep-alive handler ran last.
    var lastRunWakeID: UInt64 = 0
    var backgroundSince = Instant(nanoseconds: 0)
    /// The window of its next keep-alive run, from the rules and not from the core.
    private(set) var window: (earliest: Instant, latest: Instant)?
    var traffic = TrafficLimit()

    /// The reason for which it is being ended.
    var ending: TerminationReason?
    var fate: Fate?
    var hibernates = false
    /// The step in which it last reported in time that it is ready.
    var readyAtStep = 0
    /// Its process was started and has until then to identify itself.
    var launchUntil: Instant?
    /// No process of it has said Hello yet.
    var neverSpoke = false
    var launchRoom = LaunchRoom()
    /// The reasons for which it must be launched, the earliest time, and the sockets that it must be told of
    /// then.
    var launchReasons: WakeReasons = []
    var launchNotBefore = Instant(nanoseconds: .min)
    var owed: [SocketToken] = []
    /// The reasons of its launch, which it has to be told in this turn.
    var mustHear: WakeReasons = []
    var runsSince: Instant
    /// In elapsed time.
    var launchedAt = Instant(nanoseconds: .min)
    /// It was launched in the background, and has this long to set up something that could wake it.
    var setUpUntil = Instant(nanoseconds: .min)
    /// Its user or an administrator has set its state since it was launched.
    var isSetUp = true
    /// Its sockets are to be inspected for this reason.
    var inspection = PathInspection.none
    /// It was to be launched while its user's home was there.
    var isUnlocked = false
    /// Its keep-alive handler may run before its window: the machine is about to sleep.
    var mayRunEarly = false
    /// … and must, if it would be due soon.
    var mustRunEarly = false
    /// It was woken for that, and has not finished.
    var ranBeforeSleep = false
    /// It was being suspended when the machine was about to sleep: in this epoch.
    var epochBeforeSleep: UInt64?
    /// It ended at its own request, and is launched only for traffic and requests.
    var restsByWish = false
    var hasSettled = false
    var inRow = 0
    var failuresAtStart = 0
    /// Launches in a row that did not find its program.
    var misses = 0
    var stateBytes = 0
    /// It was admitted by a supervisor that died, and reports this to the next one.
    var isToRejoin = false
    /// It has reported that, and repeats its requests after it.
    var hasSaidHelloAgain = false
    var mayHearAgain = false
    /// Its process ended before it could be told again: the next wake, of another process, may have the same
    /// number.
    var mayReuseNumber = false
    /// It was told to drop its state in this turn, and must.
    var mustDropState = false

    /// Another process speaks for it, which always runs.
    var isUnmodified: Bool { registration.isUnmodified }
    /// It can send messages.
    var isHeard: Bool { execution == .running || isUnmodified && execution != .absent }
    /// It is suspended, and whatever speaks for it has not been told in this life of the supervisor.
    var owesSuspended = false
    /// It has a process that has identified itself.
    var hasSpoken: Bool { execution != .absent && launchUntil == nil }
    /// Its program has not said Hello in time, and need not any more.
    var isLeftAlone: Bool { launchUntil == .distantFuture }
    func isBeingLaunched(at now: Instant) -> Bool { !isKilled && launchUntil.map { now < $0 } ?? false }
    var isBeingEnded: Bool { isKilled || terminating != nil }
    var isInBackground: Bool { hasSpoken && !isBeingEnded && stay == .background }
    var hasSurvivors: Bool { sockets.contains { $0.survives } }
    var mustBeReachable: Bool { registration.modes.contains(.voip) }
    /// The launch limits under which its launch counts.
    func wishedRoom(_ settings: Settings) -> LaunchRoom {
        let isDeclared = launchReasons.contains(.launched) && !launchReasons.contains(.relaunched)
        return LaunchRoom(
            isUrgent: wantsUrgently,
            isPrivileged: isDeclared && !wantsUrgently || user == 0 || user == settings.administrator)
    }
    var wantsUrgently: Bool { !launchReasons.isDisjoint(with: [.socket, .request, .unanswered, .pathLost]) }

    /// The counters that it must have.
    var expected = Counters()

    /// The messages that it repeats to the next supervisor.
    var toRepeat: [Repetition] = []
    /// The time at which a supervisor that died decided a wake of which it has not been told.
    var untoldSince: Instant?

    /// A message that the supervisor that died may not have answered.
    struct Repetition {
        var message: ClientMessage
        var request: UInt64
        /// The message was still unread at the death: the next supervisor reads it first.
        var isUnread: Bool
    }

    init(_ id: ClientID, _ registration: Registration, _ behaviour: Behaviour, at now: Instant) {
        self.id = id
        self.registration = registration
        self.behaviour = behaviour
        busyAt = now
        runsSince = now
    }

    func holds(at now: Instant) -> Bool { !tasks.isEmpty || now < mediaUntil }

    /// Whether anything but lingering keeps it awake in the background.
    func isBusy(at now: Instant) -> Bool { entering != nil || openWake != nil || holds(at: now) }

    /// Whether it would be less reachable without its process.
    var losesReach: Bool {
        timeout != nil || sockets.contains { !$0.survives } || sockets.isEmpty && mustBeReachable
    }
    /// Whether anything but a request can wake it once it sleeps.
    var canBeWoken: Bool { timeout != nil || sockets.contains { !$0.isEnded || $0.isDevice } }

    /// Its state, from the messages and actions so far.
    var state: ClientState {
        if execution == .absent { return .dormant }
        if isBeingEnded { return .terminating }
        if launchUntil != nil { return .launching }
        if asleepSince != nil { return .suspended }
        if isAttempted || freezing != nil { return .suspending }
        return switch stay {
        case .inactive: .inactive
        case .active: .active
        case .background: .background
        }
    }

    func setWindow(_ parameters: WorldParameters) {
        guard let timeout else { return window = nil }
        let lead = min(parameters.settings.keepAlive.lead, timeout / 2)
        let latest = max(lastRun + timeout, backgroundSince + lead)
        let width = max(.nanoseconds(timeout.nanoseconds / 100 * parameters.tolerance), lead)
        window = (max(latest - width, lastRun + .nanoseconds(1)), latest)
    }

    // MARK: Planned steps

    func dropPlans() {
        agenda.removeAll()
        nextDue = Instant(nanoseconds: .max)
    }

    func plan(_ deed: Deed, at due: Instant) {
        agenda.append((due, deed))
        nextDue = min(nextDue, due)
    }

    /// Takes out the steps that are due, if `isChosen`.
    func takeDue(at now: Instant, where isChosen: () -> Bool, _ carryOut: (Deed) -> Void) {
        guard nextDue <= now else { return }
        nextDue = Instant(nanoseconds: .max)
        var index = 0
        while index < agenda.count {
            if agenda[index].due <= now, isChosen() {
                carryOut(agenda.remove(at: index).deed)
            } else {
                nextDue = min(nextDue, agenda[index].due)
                index += 1
            }
        }
    }
}

/// The limits under which a launch counts, by the rules.
struct LaunchRoom: Hashable {
    var isUrgent = false
    var isPrivileged = false

    func size(_ settings: Settings.Launches) -> Int {
        isUrgent ? settings.concurrent : settings.concurrentInBackground
    }

    func share(of user: UserID, _ settings: Settings) -> Int {
        let launches = settings.launches
        let share = isUrgent ? launches.concurrentPerUser : launches.concurrentInBackgroundPerUser
        return user == 0 || user == settings.administrator ? size(launches) : share
    }
}

/// The wakes by traffic of one client, counted by the rules.
struct TrafficLimit {
    private var wakes: [Instant] = []
    private var excess = 0

    init() {}

    /// Continues from the supervisor's figures.
    init(_ statistics: ClientStatistics, excess: Int, _ settings: Settings.Wakes) {
        wakes = Array(statistics.latestWakes.sorted().suffix(settings.limit))
        self.excess = excess
    }

    /// Counts one; returns whether there were more than `limit` within `period`.
    mutating func note(at now: Instant, isUserOverLimit: Bool, _ settings: Settings.Wakes) -> Bool {
        let isOverLimit = wakes.count >= settings.limit && now.since(wakes[0]) < settings.period
        wakes.append(now)
        if wakes.count > settings.limit { wakes.removeFirst() }
        if !isOverLimit, !isUserOverLimit {
            excess = max(0, excess - 1)
        } else if linger(settings) < settings.lingerMaximum {
            excess += 1
        }
        return isOverLimit
    }

    func linger(_ settings: Settings.Wakes) -> Duration {
        var linger = settings.linger
        for _ in 0..<excess { linger = min(linger * 2, max(settings.lingerMaximum, settings.linger)) }
        return linger
    }
}

/// The wakes by traffic of all clients of one uid.
struct UserTraffic {
    private var until = Instant(nanoseconds: .min)
    private var wakes = 0

    mutating func note(at now: Instant, _ settings: Settings.Wakes) -> Bool {
        if now >= until {
            until = now + settings.period
            wakes = 0
        }
        wakes += 1
        return wakes > settings.limitPerUser
    }
}

extension Instant {
    /// A time that is never reached.
    static let distantFuture = Instant(nanoseconds: .max)
}
