/// A client's state machine, with the data of each state. Time is a parameter; the caller carries out the effects of
/// a transition.
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
    /// Its program was started. `nil`: the time for its Hello is over, and it may never send one.
    case launching(until: Instant?)

    /// A running client, and its reasons not to be suspended. Assertions are stored outside the state machine.
    struct Background: Sendable, Equatable {
        // Instants with a sentinel take half the room of optional ones, and every client has them.
        private var entering = ClientStateEncoding.never
        private var wakeID: UInt64 = 0
        private var wakeUntil = ClientStateEncoding.never
        private var hold = ClientStateEncoding.never

        init(enteringUntil: Instant? = nil, wake: OpenWake? = nil, holdUntil: Instant? = nil) {
            self.enteringUntil = enteringUntil
            self.wake = wake
            self.holdUntil = holdUntil
        }

        /// The deadline of a running `didEnterBackground`.
        var enteringUntil: Instant? {
            get { ClientStateEncoding.instant(entering) }
            set { entering = ClientStateEncoding.word(newValue) }
        }

        /// A wake that the client has not finished yet, and its deadline.
        var wake: OpenWake? {
            get { ClientStateEncoding.instant(wakeUntil).map { OpenWake(wakeID: wakeID, until: $0) } }
            set {
                wakeID = newValue?.wakeID ?? 0
                wakeUntil = ClientStateEncoding.word(newValue?.until)
            }
        }

        /// The end of its linger time, or of the pause before the next suspension.
        var holdUntil: Instant? {
            get { ClientStateEncoding.instant(hold) }
            set { hold = ClientStateEncoding.word(newValue) }
        }

        struct OpenWake: Sendable, Equatable {
            var wakeID: UInt64
            var until: Instant
        }

        /// Whether none of these holds off suspension any more.
        func isIdle(at now: Instant) -> Bool {
            enteringUntil == nil && wake == nil && (holdUntil.map { $0 <= now } ?? true)
        }

        var nextDeadline: Instant? {
            earlier(earlier(enteringUntil, wake?.until), holdUntil)
        }
    }

    /// A client that is being suspended. The epoch distinguishes answers to this attempt from those to earlier ones.
    struct Suspending: Sendable, Equatable {
        var epoch: UInt64
        var phase: Phase

        enum Phase: Sendable, Equatable {
            /// The client finishes its work.
            case preparing(until: Instant)
            /// Sockets are armed, and the kernel was asked. `pause` doubles with each check.
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
        /// Notified; killed at the deadline.
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
        /// Waits for an event on one of its sockets, or for a request.
        case resting
        /// It has failed: it is launched at this time if there is a reason to.
        case waiting(until: Instant)
        /// It is launched as soon as a launch slot is free.
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

    /// Whether the supervisor may have frozen the client: then it must be thawed before it can do anything.
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

    /// Whether the supervisor may answer pings on its sockets: no process runs that could read or write.
    var permitsOffload: Bool {
        switch self {
        case .terminating(let terminating): terminating.reason.isInSleep
        case .suspending, .suspended: mayBeFrozen
        case .dormant: true
        // A launched process has its sockets before it identifies itself.
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
