/// A client's life cycle: its state, and a method for each input that changes it. A method checks what the
/// state alone can tell, and returns what the input has led to; the caller checks the rest and carries out
/// the effects. Time is a parameter.
struct Lifecycle: Sendable, Equatable {
    private(set) var stage: Stage

    /// A client without a process, which nothing is known of yet.
    init() { stage = .notRunning }

    /// A client as a previous supervisor process recorded it.
    init(restoring stage: Stage) { self.stage = stage }

    var state: ClientState {
        switch stage {
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
        switch stage {
        case .inactive, .active: true
        case .notRunning, .background, .suspending, .suspended, .terminating, .dormant, .launching: false
        }
    }

    /// Whether the supervisor may have frozen the client: then it must be thawed before it can do anything.
    var mayBeFrozen: Bool {
        switch stage {
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
        switch stage {
        case .dormant: true
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .terminating, .launching:
            false
        }
    }

    /// Whether the supervisor may answer pings on its sockets: no process runs that could read or write.
    var permitsOffload: Bool {
        switch stage {
        case .terminating(let terminating): terminating.reason.isInSleep
        case .suspending, .suspended: mayBeFrozen
        case .dormant: true
        // A launched process has its sockets before it identifies itself.
        case .notRunning, .inactive, .active, .background, .launching: false
        }
    }

    var nextDeadline: Instant? {
        switch stage {
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

    /// Whether it counts as one of the launches that may go on at a time.
    var holdsLaunchSlot: Bool {
        if case .launching(until: .some) = stage { true } else { false }
    }
}

// MARK: Processes come and go

extension Lifecycle {
    /// A process started by its user has identified itself.
    mutating func register() { stage = .inactive }

    /// A launched process has identified itself.
    mutating func rejoin() { stage = .background(Background()) }

    /// Its process is gone, or it was declared and has none yet.
    mutating func becomeDormant(_ dormant: Dormant) { stage = .dormant(dormant) }

    /// It is given up.
    mutating func forget() { stage = .notRunning }

    /// Its program was started, and has until then for its Hello.
    mutating func launch(until: Instant) { stage = .launching(until: until) }

    /// The time for its Hello is over, but it may go on without one.
    mutating func leaveSilent() { stage = .launching(until: nil) }
}

// MARK: Foreground, background and wakes

extension Lifecycle {
    mutating func enterForeground() { stage = .active }

    /// - Parameter wake: decided in the foreground, delivered in the background.
    mutating func enterBackground(enteringUntil: Instant, wake: Background.OpenWake?) {
        stage = .background(Background(enteringUntil: enteringUntil, wake: wake))
    }

    /// Its `didEnterBackground` handler has returned.
    mutating func finishEntering() { changeBackground { $0.enteringUntil = nil } }

    /// A suspended client, one that is being suspended or one in the background is woken.
    mutating func wake(_ wake: Background.OpenWake) {
        guard case .background(var background) = stage else {
            return stage = .background(Background(wake: wake))
        }
        background.wake = wake
        stage = .background(background)
    }

    /// The wake is delivered again, and its time starts again. Without an open wake there is nothing to
    /// repeat.
    mutating func repeatWake(_ wake: Background.OpenWake) {
        changeBackground { if $0.wake != nil { $0.wake = wake } }
    }

    /// The client has finished the wake with this number. False: that one is over already, or was never
    /// delivered.
    mutating func finishWake(_ wakeID: UInt64) -> Bool {
        guard case .background(var background) = stage, let open = background.wake, open.wakeID <= wakeID
        else { return false }
        background.wake = nil
        stage = .background(background)
        return true
    }

    /// It is not suspended before that time.
    mutating func linger(until: Instant) {
        changeBackground { $0.holdUntil = max($0.holdUntil ?? until, until) }
    }

    /// Ends its linger time. False: it has not finished a wake, or its `didEnterBackground` handler.
    mutating func endLinger() -> Bool {
        guard case .background(var background) = stage, background.enteringUntil == nil,
            background.wake == nil
        else { return false }
        background.holdUntil = nil
        stage = .background(background)
        return true
    }

    private mutating func changeBackground(_ change: (inout Background) -> Void) {
        guard case .background(var background) = stage else { return }
        change(&background)
        stage = .background(background)
    }
}

// MARK: Suspension

extension Lifecycle {
    /// The first pause before checking again whether the kernel has confirmed. Freezing a process takes some
    /// 20 µs (measured); the kernel notifies no faster than every 10 ms, so polling is quicker than waiting.
    private static let firstLook: Duration = .microseconds(100)
    private static let longestLook: Duration = .milliseconds(50)

    /// The client is asked to finish its work.
    mutating func prepareToSuspend(epoch: UInt64, until: Instant) {
        stage = .suspending(Suspending(epoch: epoch, phase: .preparing(until: until)))
    }

    /// The kernel is asked to freeze it.
    mutating func freeze(epoch: UInt64, until: Instant) {
        let phase = Suspending.Phase.freezing(until: until, lookAt: until, pause: Self.firstLook)
        stage = .suspending(Suspending(epoch: epoch, phase: phase))
    }

    /// The kernel has not frozen it yet: it is asked again after a pause.
    mutating func waitForFreeze(epoch: UInt64, at now: Instant) {
        guard case .suspending(var suspending) = stage, suspending.epoch == epoch,
            case .freezing(let until, _, let pause) = suspending.phase
        else { return }
        suspending.phase = .freezing(
            until: until, lookAt: now + pause, pause: min(pause * 2, Self.longestLook))
        stage = .suspending(suspending)
    }

    /// The kernel has frozen it.
    mutating func sleep(since: Instant) { stage = .suspended(since: since) }

    /// Whether the kernel was asked to freeze it, in this attempt.
    func isFreezing(epoch: UInt64) -> Bool {
        guard case .suspending(let suspending) = stage, case .freezing = suspending.phase else {
            return false
        }
        return suspending.epoch == epoch
    }

    /// It runs on, and is not suspended before that time.
    mutating func cancelSuspension(holdUntil: Instant) {
        stage = .background(Background(holdUntil: holdUntil))
    }
}

// MARK: Termination

extension Lifecycle {
    mutating func notifyTermination(_ reason: TerminationReason, until: Instant) {
        stage = .terminating(.noticed(until: until, reason))
    }

    mutating func kill(_ reason: TerminationReason) { stage = .terminating(.killed(reason)) }

    /// A client that is being terminated is quit: this replaces any earlier reason, as its user does not want
    /// it back.
    mutating func quitWhileTerminating() {
        switch stage {
        case .terminating(.noticed(let until, _)): stage = .terminating(.noticed(until: until, .quitByUser))
        case .terminating(.killed): stage = .terminating(.killed(.quitByUser))
        case .notRunning, .inactive, .active, .background, .suspending, .suspended, .dormant, .launching:
            break
        }
    }
}

// MARK: Deadlines

extension Lifecycle {
    /// A deadline that has passed, for the caller to act on.
    enum Expiry {
        case nothing
        /// The pause after a failure.
        case pause
        /// The time for the Hello of a launched program.
        case launch
        /// In the background, where any may be over at the same time, even if none of them is.
        case background(entering: Bool, wake: Bool)
        /// The time to finish its work before suspension.
        case preparation(epoch: UInt64)
        /// It is time to check whether it is frozen.
        case look(epoch: UInt64)
        /// The kernel has not confirmed in time.
        case confirmation(epoch: UInt64)
        /// The notice before its termination.
        case notice(TerminationReason)
    }

    mutating func expire(at now: Instant) -> Expiry {
        switch stage {
        case .notRunning, .inactive, .active, .suspended, .terminating(.killed), .dormant(.resting),
            .dormant(.queued), .launching(until: nil):
            return .nothing  // these have none
        case .dormant(.waiting(let until)):
            return now >= until ? .pause : .nothing
        case .launching(let until?):
            return now >= until ? .launch : .nothing
        case .terminating(.noticed(let until, let reason)):
            return now >= until ? .notice(reason) : .nothing
        case .background(var background):
            let isEnteringOver = background.enteringUntil.map { now >= $0 } ?? false
            let isWakeOver = background.wake.map { now >= $0.until } ?? false
            if isEnteringOver { background.enteringUntil = nil }
            if isWakeOver { background.wake = nil }
            if let until = background.holdUntil, now >= until { background.holdUntil = nil }
            stage = .background(background)
            return .background(entering: isEnteringOver, wake: isWakeOver)
        case .suspending(var suspending):
            switch suspending.phase {
            case .preparing(let until):
                return now >= until ? .preparation(epoch: suspending.epoch) : .nothing
            case .freezing(let until, let lookAt, let pause):
                if now >= until { return .confirmation(epoch: suspending.epoch) }
                guard now >= lookAt else { return .nothing }
                suspending.phase = .freezing(until: until, lookAt: until, pause: pause)
                stage = .suspending(suspending)
                return .look(epoch: suspending.epoch)
            }
        }
    }
}
