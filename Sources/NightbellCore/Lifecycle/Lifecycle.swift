/// Where a client is in its life, with what belongs to each state. Time is a parameter; the caller carries out
/// what a transition asks for.
enum Lifecycle: Sendable, Equatable {
    case notRunning
    case inactive
    case active
    case background(Background)
    case suspending(Suspending)
    /// In elapsed time.
    case suspended(since: Instant)
    case terminating(Terminating)
    case dormant(Dormant)
    /// Its program was started. nil: its time to say Hello is over, and it may be one that never will.
    case launching(until: Instant?)

    /// A client that runs, and what keeps it from being suspended. Assertions are kept beside the life cycle.
    struct Background: Sendable, Equatable {
        // Instants that are there or not, in half the room that optional ones take: every client has it.
        private var entering = Progress.never
        private var wakeID: UInt64 = 0
        private var wakeUntil = Progress.never
        private var hold = Progress.never

        init(enteringUntil: Instant? = nil, wake: OpenWake? = nil, holdUntil: Instant? = nil) {
            self.enteringUntil = enteringUntil
            self.wake = wake
            self.holdUntil = holdUntil
        }

        /// `didEnterBackground` is under way and has until then.
        var enteringUntil: Instant? {
            get { Progress.instant(entering) }
            set { entering = Progress.word(newValue) }
        }

        /// A wake that the client has not finished yet, and until when it may take.
        var wake: OpenWake? {
            get { Progress.instant(wakeUntil).map { OpenWake(wakeID: wakeID, until: $0) } }
            set {
                wakeID = newValue?.wakeID ?? 0
                wakeUntil = Progress.word(newValue?.until)
            }
        }

        /// Lingers, or waits to be suspended another time.
        var holdUntil: Instant? {
            get { Progress.instant(hold) }
            set { hold = Progress.word(newValue) }
        }

        struct OpenWake: Sendable, Equatable {
            var wakeID: UInt64
            var until: Instant
        }

        /// Whether nothing of all this holds off suspension any more.
        func isIdle(at now: Instant) -> Bool {
            enteringUntil == nil && wake == nil && (holdUntil.map { $0 <= now } ?? true)
        }

        var nextDeadline: Instant? {
            earlier(earlier(enteringUntil, wake?.until), holdUntil)
        }
    }

    /// A client on its way to sleep. The epoch tells answers to this attempt from answers to earlier ones.
    struct Suspending: Sendable, Equatable {
        var epoch: UInt64
        var phase: Phase

        enum Phase: Sendable, Equatable {
            /// The client empties its hands.
            case preparing(until: Instant)
            /// Sockets are armed, the kernel was asked. `pause` doubles with each look.
            case freezing(until: Instant, lookAt: Instant, pause: Duration)
        }

        var nextDeadline: Instant {
            switch phase {
            case .preparing(let until): until
            case .freezing(let until, let lookAt, _): min(until, lookAt)
            }
        }
    }

    enum Terminating: Sendable, Equatable {
        /// Told; killed when this is over.
        case noticed(until: Instant, TerminationReason)
        case killed(TerminationReason)

        var reason: TerminationReason {
            switch self {
            case .noticed(_, let reason), .killed(let reason): reason
            }
        }
    }

    /// A client without a process.
    enum Dormant: Sendable, Equatable {
        /// Until something happens to one of its sockets, or somebody asks for it.
        case resting
        /// It has ended badly: if there is a reason to, it is launched then.
        case waiting(until: Instant)
        /// It is launched as soon as there is room.
        case queued
    }

    var state: ClientState {
        switch self {
        case .notRunning: .notRunning
        case .inactive: .inactive
        case .active: .active
        case .background: .background
        case .suspending: .suspending
        case .suspended: .suspended
        case .terminating: .terminating
        case .dormant: .dormant
        case .launching: .launching
        }
    }

    /// Whether a request to enter the background moves it there.
    var isForeground: Bool {
        switch self {
        case .inactive, .active: true
        case .notRunning, .background, .suspending, .suspended, .terminating, .dormant, .launching: false
        }
    }

    /// Whether the client may have been stopped by us: then it must be thawed before it can do anything.
    var mayBeFrozen: Bool {
        switch self {
        case .suspended: true
        case .suspending(let suspending):
            switch suspending.phase {
            case .preparing: false
            case .freezing: true
            }
        case .notRunning, .inactive, .active, .background, .terminating, .dormant, .launching: false
        }
    }

    var isDormant: Bool {
        switch self {
        case .dormant: true
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating, .launching:
            false
        }
    }

    /// Whether the pings of its sockets may be dealt with: nobody runs who could read or write.
    var permitsOffload: Bool {
        switch self {
        case .terminating(let terminating): terminating.reason.isInSleep
        case .suspending, .suspended: mayBeFrozen
        case .dormant: true
        // A process that is launched has its sockets before it says who it is.
        case .notRunning, .inactive, .active, .background, .launching: false
        }
    }

    var nextDeadline: Instant? {
        switch self {
        case .notRunning, .inactive, .active, .suspended: nil
        case .background(let background): background.nextDeadline
        case .suspending(let suspending): suspending.nextDeadline
        case .terminating(.noticed(let until, _)): until
        case .terminating(.killed): nil
        case .dormant(.waiting(let until)): until
        case .dormant(.resting), .dormant(.queued): nil
        case .launching(let until): until
        }
    }
}
