extension Lifecycle {
    /// A state with its data.
    enum Stage: Sendable, Equatable {
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
    }

    /// A running client, and its reasons not to be suspended. Assertions are stored outside the state
    /// machine.
    struct Background: Sendable, Equatable {
        // They take half the room of optional instants, and every client has them.
        private var entering = StoredInstant(nil)
        private var wakeID: UInt64 = 0
        private var wakeUntil = StoredInstant(nil)
        private var hold = StoredInstant(nil)

        init(enteringUntil: Instant? = nil, wake: OpenWake? = nil, holdUntil: Instant? = nil) {
            self.enteringUntil = enteringUntil
            self.wake = wake
            self.holdUntil = holdUntil
        }

        /// The deadline of a running `didEnterBackground`.
        var enteringUntil: Instant? {
            get { entering.instant }
            set { entering = StoredInstant(newValue) }
        }

        /// A wake that the client has not finished yet, and its deadline.
        var wake: OpenWake? {
            get { wakeUntil.instant.map { OpenWake(wakeID: wakeID, until: $0) } }
            set {
                wakeID = newValue?.wakeID ?? 0
                wakeUntil = StoredInstant(newValue?.until)
            }
        }

        /// The end of its linger time, or of the pause before the next suspension.
        var holdUntil: Instant? {
            get { hold.instant }
            set { hold = StoredInstant(newValue) }
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

    /// A client that is being suspended. The epoch distinguishes answers to this attempt from those to
    /// earlier ones.
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
}
