import NightbellCore

/// The outcome of an event as text: the state after it, and the actions except those that only report state
/// changes to watchers.
func outcome(of client: ClientID, before: String, in bench: Bench) -> String {
    let after = phase(of: client, in: bench)
    let actions = bench.actions.actions.compactMap(words)
    return ([after == before ? "=" : after] + actions).joined(separator: " ")
}

/// The state of a client with the visible part of its sub-phase.
func phase(of client: ClientID, in bench: Bench) -> String {
    let state = bench.core.state(of: client)
    let view = bench.core.view(of: client, at: bench.now)
    if state == .dormant, let launches = view?.launches {
        return launches.notBefore != nil
            ? "dormant(pausing)" : launches.reasons.isEmpty ? "dormant" : "dormant(queued)"
    }
    guard state == .background, let view else {
        return "\(state)"
    }
    let holds = [
        view.holds.contains(.enteringBackground) ? "entering" : nil,
        view.holds.contains(.openWake) ? "wake" : nil,
        view.holds.contains(.linger) ? "linger" : nil,
        view.backgroundTasks.isEmpty ? nil : "task",
        view.media != nil ? "media" : nil,
    ]
    return "background(" + holds.compactMap { $0 }.joined(separator: "+") + ")"
}

private func words(_ action: Action) -> String? {
    switch action {
    case .registered: "registered"
    case .refuseRegistration(let refusal, _): words(refusal)
    case .answer(let answer, _, _): words(answer)
    case .handedOver(let range, _, _): "handedOver:\(range.count)"
    case .commandAnswer(let refusal, _): refusal.map(words) ?? "ok"
    case .notify(_, let notice): words(notice)
    case .arm: "arm"
    case .armPastEnd: "armPastEnd"
    case .inspectPaths: "inspect"
    case .beginOffload: "beginOffload"
    case .endOffload: "endOffload"
    case .ping: "ping"
    case .lookForAnswer: "look"
    case .close: "close"
    case .freeze: "freeze"
    case .checkFreeze: "check"
    case .thaw: "thaw"
    case .kill(_, let reason): "kill:\(reason)"
    case .forget: "forget"
    case .makeDormant: "makeDormant"
    case .launch: "launch"
    case .rejoined: "rejoined"
    case .declared: "declared"
    case .storeState: "keep"
    case .dropState: "drop"
    case .trace(_, let trace): words(trace)
    }
}

private func words(_ answer: Answer) -> String {
    switch answer {
    case .done: "done"
    case .refused(let refusal): words(refusal)
    case .backgroundTask(let task): task == nil ? "noTask" : "task"
    case .backgroundTimeLeft(let left): left.map { "left:\($0.nanoseconds / 1_000_000_000)" } ?? "unlimited"
    case .scheduled(let dropped): dropped.map { "scheduled, dropped \($0)" } ?? "scheduled"
    }
}

private func words(_ refusal: Refusal) -> String {
    switch refusal {
    case .timeoutTooShort: "refused:timeoutTooShort"
    case .timeoutTooLong: "refused:timeoutTooLong"
    case .illegalState(let state): "refused:illegalState(\(state))"
    default: "refused:\(refusal)"
    }
}

private func words(_ notice: Notice) -> String {
    switch notice {
    case .didEnterBackground: "didEnterBackground"
    case .prepareToSuspend: "prepare"
    case .suspendCancelled: "cancelled"
    case .suspended: "suspended"
    case .wake(let wake): "wake:\(wake.reasons.words)"
    case .backgroundTimeExpiring: "expiring"
    case .willTerminate: "willTerminate"
    }
}

private func words(_ trace: Trace) -> String? {
    switch trace {
    case .overran(let step): "overran:\(step)"
    case .suspendedByForce: "forced"
    case .suspensionFailed: "failed"
    case .keepAliveLate: "LATE"
    case .tooManyWakes: "tooMany"
    case .crashed: "crashed"
    case .gaveUp: "gaveUp"
    case .registered, .gone, .state, .woken, .suspensionCancelled, .foundRunning, .adopted, .refusedSocket,
        .released, .terminated, .becameDormant, .launching, .doesNotSpeak, .rejoined, .stateDropped,
        .outOfReach, .unlockUnknown, .fetchEnded, .pushEnded, .observed, .notification, .simulated:
        nil
    }
}

extension WakeReasons {
    var words: String {
        let names: [(WakeReasons, String)] = [
            (.socket, "socket"), (.keepAlive, "keepAlive"), (.request, "request"),
            (.clientMessage, "clientMessage"), (.supervisorStopping, "stopping"), (.launched, "launched"),
            (.relaunched, "relaunched"), (.unanswered, "unanswered"), (.pathLost, "pathLost"),
            (.fetch, "fetch"), (.networkChanged, "networkChanged"), (.location, "location"),
            (.device, "device"), (.bluetooth, "bluetooth"),
            (.transfer, "transfer"), (.push, "push"), (.notification, "notification"),
        ]
        return names.filter { contains($0.0) }.map(\.1).joined(separator: "+")
    }
}
