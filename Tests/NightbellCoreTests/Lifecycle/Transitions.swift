/// The expected outcome of every event in every phase. It begins with the new state (`=`: unchanged),
/// followed by the actions for the edge, in order. See `outcome(of:before:in:)`.
enum Transitions {
    /// Runs, and was not asked to sleep.
    static let runs: [Phase] = [
        .inactive, .active, .entering, .openWake, .lingering, .heldByTask, .heldByMedia,
    ]
    /// May be stopped.
    static let asleep: [Phase] = [.freezing, .suspended]
    static let ending: [Phase] = [.noticed, .killed]
    /// Without a process, or with one that has not registered.
    static let dormant: [Phase] = [.resting, .pausing, .queued]
    static let absent: [Phase] = dormant + [.launching]

    typealias Row = [(phases: [Phase], outcome: String)]

    static func row(_ happening: Happening) -> Row {
        switch happening {
        case .handOver, .releaseOwn, .observe, .stopObserving, .schedule, .cancelNotifications,
            .setBadge, .releaseStale, .enterBackground, .backgroundEntered, .enterForeground, .setKeepAlive,
            .setKeepAliveTooShort, .clearKeepAlive,
            .beginTask, .endTask, .endUnknownTask, .timeRemaining, .media, .ready, .readyStale,
            .readyNotIdle, .wakeDone, .wakeDoneStale:
            requestRow(happening)
        case .wake:
            [
                (dormant, "launching ok launch"),
                ([.launching], "= ok"),
                ([.gone], "= refused:noSuchClient"),
                ([.inactive, .active, .openWake], "= ok wake:request"),
                ([.entering], "background(entering+wake) ok wake:request"),
                ([.lingering], "background(wake+linger) ok wake:request"),
                ([.heldByTask], "background(wake+task) ok wake:request"),
                ([.heldByMedia], "background(wake+media) ok wake:request"),
                ([.preparing], "background(wake) ok wake:request"),
                (asleep, "background(wake) thaw ok wake:request"),
                (ending, "= refused:illegalState(terminating)"),
            ]
        case .suspend:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "= refused:noSuchClient"),
                ([.inactive], "= refused:illegalState(inactive)"),
                ([.active], "= refused:illegalState(active)"),
                ([.entering, .openWake, .heldByTask, .heldByMedia], "= refused:illegalState(background)"),
                ([.lingering], "suspending ok prepare"),
                (asleep + [.preparing], "= ok"),
                (ending, "= refused:illegalState(terminating)"),
            ]
        case .quit:
            [
                (dormant, "notRunning close forget ok"),
                ([.launching], "terminating kill:quitByUser ok"),
                ([.gone], "= refused:noSuchClient"),
                (runs + [.preparing], "terminating willTerminate ok"),
                (asleep, "terminating kill:quitByUser ok"),
                (ending, "= ok"),
            ]
        case .readable:
            [
                ([.resting, .queued], "launching launch"),
                ([.pausing, .launching], "="),
                (runs + ending + [.gone, .preparing], "="),
                (asleep, "background(wake) thaw wake:socket"),
            ]
        case .peerClosed:
            [
                ([.resting, .queued], "launching launch"),
                ([.pausing, .launching], "="),
                (runs + ending + [.gone, .preparing], "="),
                (asleep, "background(wake) thaw wake:socket"),
            ]
        case .hangUp:
            [
                ([.resting, .queued], "launching launch"),
                ([.pausing, .launching], "="),
                (runs + ending + [.gone, .preparing], "="),
                (asleep, "background(wake) thaw wake:socket"),
            ]
        case .error:
            [
                ([.resting, .queued], "launching launch"),
                ([.pausing, .launching], "="),
                (runs + ending + [.gone, .preparing], "="),
                (asleep, "background(wake) thaw wake:socket"),
            ]
        case .nothing:
            [
                (absent, "= arm"),
                (runs + ending + [.gone, .preparing], "="),
                (asleep, "= arm"),
            ]
        case .frozen:
            [
                (absent, "="),
                (runs + ending + [.gone, .preparing, .suspended], "="),
                ([.freezing], "suspended"),
            ]
        case .frozenStale:
            [
                (Phase.allCases, "=")
            ]
        case .notFrozenYet:
            [
                (Phase.allCases, "=")
            ]
        case .notFrozenYetStale:
            [
                (Phase.allCases, "=")
            ]
        case .freezeFailed:
            [
                (absent, "="),
                (runs + ending + [.gone, .preparing, .suspended], "="),
                ([.freezing], "background(linger) failed thaw cancelled"),
            ]
        case .freezeFailedStale:
            [
                (Phase.allCases, "=")
            ]
        case .foundRunning:
            [
                (absent, "="),
                (runs + ending + [.gone, .preparing, .freezing], "="),
                ([.suspended], "background(linger) thaw cancelled"),
            ]
        case .exit:
            [
                (absent, "notRunning close forget"),
                ([.gone], "="),
                (runs + asleep + ending + [.preparing], "notRunning close forget"),
            ]
        case .endedWell:
            [
                ([.gone] + dormant, "="),
                (runs + asleep + ending + [.preparing, .launching], "notRunning close forget"),
            ]
        case .endedBadly:
            [
                ([.gone] + dormant, "="),
                ([.inactive], "dormant(pausing) crashed makeDormant arm"),
                (
                    asleep + [
                        .active, .entering, .openWake, .lingering, .heldByTask, .heldByMedia, .preparing,
                        .launching,
                    ], "dormant(pausing) crashed makeDormant"
                ),
                (ending, "notRunning close forget"),
            ]
        case .rejoin:
            [
                ([.gone], "= refused:noSuchClient"),
                (runs + asleep + ending + dormant + [.preparing], "= refused:identifierInUse"),
                ([.launching], "background(wake) rejoined wake:request"),
            ]
        case .saveState:
            [
                ([.gone], "="),
                (runs + asleep + ending + [.preparing], "= keep done"),
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
            ]
        case .hibernate:
            [
                ([.gone], "="),
                (runs + ending + [.preparing], "= done"),
                (asleep, "terminating done kill:hibernation"),
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
            ]
        case .launch:
            [
                ([.gone], "= refused:noSuchClient"),
                (runs + asleep + [.preparing, .launching], "= ok"),
                (ending, "= refused:illegalState(terminating)"),
                (dormant, "launching ok launch"),
            ]
        case .declare:
            [
                ([.gone], "= declared ok launch"),
                (runs + asleep + ending + [.preparing, .launching], "= ok"),
                (dormant, "launching ok launch"),
            ]
        case .disown:
            [
                ([.gone], "= ok"),
                ([.inactive], "= refused:illegalState(inactive)"),
                ([.active], "= refused:illegalState(active)"),
                (
                    [.entering, .openWake, .lingering, .heldByTask, .heldByMedia],
                    "= refused:illegalState(background)"
                ),
                ([.preparing, .freezing], "= refused:illegalState(suspending)"),
                ([.suspended], "= refused:illegalState(suspended)"),
                (ending, "= refused:illegalState(terminating)"),
                (dormant, "notRunning close forget ok"),
                ([.launching], "= refused:illegalState(launching)"),
            ]
        case .memoryPressure:
            [
                ([.suspended], "terminating kill:memoryPressure"),
                (Phase.allCases.filter { $0 != .suspended }, "="),
            ]
        case .anotherNetwork:
            [
                ([.gone], "="),
                (runs + asleep + ending + absent + [.preparing], "= inspect"),
            ]
        case .pathBroken:
            [
                ([.resting, .queued], "launching launch"),
                (ending + [.gone, .pausing, .launching], "="),
                ([.inactive, .active, .openWake], "= wake:pathLost+networkChanged"),
                ([.entering], "background(entering+wake) wake:pathLost+networkChanged"),
                ([.lingering], "background(wake+linger) wake:pathLost+networkChanged"),
                ([.heldByTask], "background(wake+task) wake:pathLost+networkChanged"),
                ([.heldByMedia], "background(wake+media) wake:pathLost+networkChanged"),
                ([.preparing], "background(wake) wake:pathLost+networkChanged"),
                (asleep, "background(wake) thaw wake:pathLost+networkChanged"),
            ]
        case .pathsWhole:
            [
                (ending + absent + [.gone], "="),
                ([.inactive, .active, .openWake], "= wake:networkChanged"),
                ([.entering], "background(entering+wake) wake:networkChanged"),
                ([.lingering], "background(wake+linger) wake:networkChanged"),
                ([.heldByTask], "background(wake+task) wake:networkChanged"),
                ([.heldByMedia], "background(wake+media) wake:networkChanged"),
                ([.preparing], "background(wake) wake:networkChanged"),
                (asleep, "background(wake) thaw wake:networkChanged"),
            ]
        case .aboutToSleep, .unlocked:
            [
                (Phase.allCases, "=")
            ]
        case .simulateNetworkChange:
            [
                ([.gone], "= refused:noSuchClient"),
                (runs + asleep + ending + absent + [.preparing], "= inspect ok"),
            ]
        case .simulateSleep:
            [
                ([.gone], "= refused:noSuchClient"),
                (runs + asleep + ending + absent + [.preparing], "= refused:noKeepAlive"),
            ]
        case .simulateUnlock:
            [
                ([.gone], "= refused:noSuchClient"),
                ([.inactive], "= refused:illegalState(inactive)"),
                ([.active], "= refused:illegalState(active)"),
                (
                    [.entering, .openWake, .lingering, .heldByTask, .heldByMedia],
                    "= refused:illegalState(background)"
                ),
                ([.preparing, .freezing], "= refused:illegalState(suspending)"),
                ([.suspended], "= refused:illegalState(suspended)"),
                (ending, "= refused:illegalState(terminating)"),
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
            ]
        case .timer:
            [
                ([.resting], "="),
                ([.pausing, .queued], "launching launch"),
                ([.launching], "terminating overran:launch kill:launchOverran"),
                ([.gone, .inactive, .active, .suspended, .killed], "="),
                ([.entering], "suspending overran:enteringBackground prepare"),
                ([.openWake], "background(linger) overran:wake"),
                ([.lingering, .heldByMedia], "suspending prepare"),
                ([.heldByTask], "= expiring"),
                ([.preparing], "= overran:prepareToSuspend forced freeze"),
                ([.freezing], "background(linger) failed thaw cancelled"),
                ([.noticed], "= overran:termination kill:quitByUser"),
            ]
        case .stop:
            [
                (dormant, "notRunning close forget"),
                ([.launching], "="),
                (ending + [.gone], "="),
                ([.inactive, .active, .openWake], "= wake:stopping"),
                ([.entering], "background(entering+wake) wake:stopping"),
                ([.lingering], "background(wake+linger) wake:stopping"),
                ([.heldByTask], "background(wake+task) wake:stopping"),
                ([.heldByMedia], "background(wake+media) wake:stopping"),
                ([.preparing], "background(wake) wake:stopping"),
                (asleep, "background(wake) thaw wake:stopping"),
            ]
        case .registerAgain:
            [
                ([.resting], "inactive rejoined"),
                ([.pausing, .queued], "inactive rejoined wake:relaunched"),
                ([.launching], "= refused:identifierInUse"),
                ([.gone], "= registered"),
                (runs + asleep + ending + [.preparing], "= refused:identifierInUse"),
            ]
        }
    }
}
