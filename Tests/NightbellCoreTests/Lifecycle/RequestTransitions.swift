/// Requests and answers of clients.
extension Transitions {
    static func requestRow(_ happening: Happening) -> Row {
        switch happening {
        case .handOver:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= handedOver:2"),
                ([.preparing], "background(linger) cancelled handedOver:2"),
                (asleep, "background(wake) thaw handedOver:2 wake:clientMessage"),
            ]
        case .releaseOwn:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= close done"),
                ([.preparing], "background(linger) cancelled close done"),
                (asleep, "background(wake) thaw close done wake:clientMessage"),
            ]
        case .schedule:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= scheduled"),
                ([.preparing], "background(linger) cancelled scheduled"),
                (asleep, "background(wake) thaw scheduled wake:clientMessage"),
            ]
        case .observe, .stopObserving, .cancelNotifications, .setBadge:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= done"),
                ([.preparing], "background(linger) cancelled done"),
                (asleep, "background(wake) thaw done wake:clientMessage"),
            ]
        case .releaseStale:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= refused:invalidToken"),
                ([.preparing], "background(linger) cancelled refused:invalidToken"),
                (asleep, "background(wake) thaw refused:invalidToken wake:clientMessage"),
            ]
        case .enterBackground:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                ([.inactive, .active], "background(entering) done didEnterBackground"),
                ([.entering, .openWake, .lingering, .heldByTask, .heldByMedia], "= done"),
                ([.preparing], "background(linger) cancelled done"),
                (asleep, "background(wake) thaw done wake:clientMessage"),
                (ending, "= refused:illegalState(terminating)"),
            ]
        case .backgroundEntered:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (
                    asleep + ending + [
                        .inactive, .active, .openWake, .lingering, .heldByTask, .heldByMedia, .preparing,
                    ],
                    "= done"
                ),
                ([.entering], "suspending done prepare"),
            ]
        case .enterForeground:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                ([.inactive, .entering, .openWake, .lingering, .heldByTask, .heldByMedia], "active done"),
                ([.active], "= done"),
                ([.preparing], "active cancelled done"),
                (asleep, "active thaw done wake:clientMessage"),
                (ending, "= refused:illegalState(terminating)"),
            ]
        case .setKeepAlive:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= done"),
                ([.preparing], "background(linger) cancelled done"),
                (asleep, "background(wake) thaw done wake:clientMessage"),
            ]
        case .setKeepAliveTooShort:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= refused:timeoutTooShort"),
                ([.preparing], "background(linger) cancelled refused:timeoutTooShort"),
                (asleep, "background(wake) thaw refused:timeoutTooShort wake:clientMessage"),
            ]
        case .clearKeepAlive:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= done"),
                ([.preparing], "background(linger) cancelled done"),
                (asleep, "background(wake) thaw done wake:clientMessage"),
            ]
        case .beginTask:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                ([.inactive, .active, .heldByTask], "= task"),
                ([.entering], "background(entering+task) task"),
                ([.openWake], "background(wake+task) task"),
                ([.lingering], "background(linger+task) task"),
                ([.heldByMedia], "background(task+media) task"),
                ([.preparing], "background(linger+task) cancelled task"),
                (asleep, "background(wake+task) thaw task wake:clientMessage"),
                (ending, "= noTask"),
            ]
        case .endTask:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (
                    ending + [.inactive, .active, .entering, .openWake, .lingering, .heldByMedia],
                    "= refused:invalidTask"
                ),
                ([.heldByTask], "background(linger) done"),
                ([.preparing], "background(linger) cancelled refused:invalidTask"),
                (asleep, "background(wake) thaw refused:invalidTask wake:clientMessage"),
            ]
        case .endUnknownTask:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + ending, "= refused:invalidTask"),
                ([.preparing], "background(linger) cancelled refused:invalidTask"),
                (asleep, "background(wake) thaw refused:invalidTask wake:clientMessage"),
            ]
        case .timeRemaining:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                ([.inactive, .active, .heldByMedia], "= unlimited"),
                ([.entering, .openWake, .lingering], "= left:180"),
                ([.heldByTask], "= left:179"),
                ([.preparing], "background(linger) cancelled left:180"),
                (asleep, "background(wake) thaw left:180 wake:clientMessage"),
                (ending, "= left:0"),
            ]
        case .media:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (ending + [.inactive, .active, .heldByMedia], "= done"),
                ([.entering], "background(entering+media) done"),
                ([.openWake], "background(wake+media) done"),
                ([.lingering], "background(linger+media) done"),
                ([.heldByTask], "background(task+media) done"),
                ([.preparing], "background(linger+media) cancelled done"),
                (asleep, "background(wake+media) thaw done wake:clientMessage"),
            ]
        case .ready:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + asleep + ending, "= done"),
                ([.preparing], "= freeze done"),
            ]
        case .readyStale:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + asleep + ending + [.preparing], "= done"),
            ]
        case .readyNotIdle:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + asleep + ending, "= done"),
                ([.preparing], "background(linger) cancelled done"),
            ]
        case .wakeDone:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (
                    asleep + ending + [
                        .inactive, .active, .entering, .lingering, .heldByTask, .heldByMedia, .preparing,
                    ],
                    "= done"
                ),
                ([.openWake], "background(linger) done"),
            ]
        case .wakeDoneStale:
            [
                (dormant, "= refused:illegalState(dormant)"),
                ([.launching], "= refused:illegalState(launching)"),
                ([.gone], "="),
                (runs + asleep + ending + [.preparing], "= done"),
            ]
        // `row` has the others.
        default: []
        }
    }
}
