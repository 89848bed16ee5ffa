import NightbellCore
import NightbellWire

/// A reason that keeps a client in the background from being suspended: its kind, and the words for people.
struct ReasonToRun {
    let cause: WireAwakeCause
    let text: String
}

extension ClientView {
    /// Its program runs, and has not said Hello in time.
    var isSilent: Bool { state == .launching && launches.until == nil }

    private static let reasonsOfHolds: [(hold: Holds, reason: ReasonToRun)] = [
        (.enteringBackground, ReasonToRun(cause: .starting, text: "entering the background")),
        (.openWake, ReasonToRun(cause: .traffic, text: "handling a wake")),
        (.linger, ReasonToRun(cause: .lingering, text: "lingering")),
        (.settingUp, ReasonToRun(cause: .starting, text: "setting up")),
    ]

    /// All that keeps it from being suspended now; empty unless it is in the background.
    var reasonsToRun: [ReasonToRun] {
        guard state == .background else { return [] }
        var reasons = Self.reasonsOfHolds.filter { holds.contains($0.hold) }.map(\.reason)
        if !backgroundTasks.isEmpty {
            reasons.append(ReasonToRun(cause: .assertion, text: "background tasks"))
        }
        if fetch?.isRunning == true { reasons.append(ReasonToRun(cause: .fetch, text: "a fetch")) }
        if observations.contains(where: { $0.push.run != nil }) {
            reasons.append(ReasonToRun(cause: .push, text: "a push"))
        }
        if let media { reasons.append(ReasonToRun(cause: .media, text: "media: \(media.text)")) }
        return reasons
    }

    /// Why it runs: each cause once.
    ///
    /// - Parameter reasons: `reasonsToRun`.
    func awakeCauses(_ reasons: [ReasonToRun]) -> [WireAwakeCause] {
        switch state {
        case .suspended, .dormant, .notRunning: return []
        case .active: return [.foreground]
        case .inactive, .launching: return [.starting]
        case .suspending, .terminating: return [.ending]
        case .background: break
        }
        var causes: [WireAwakeCause] = []
        for reason in reasons where !causes.contains(reason.cause) { causes.append(reason.cause) }
        return causes.isEmpty ? [.other] : causes
    }

    /// Why a client in the background is kept awake, or what a client without a process waits for.
    ///
    /// - Parameter reasons: `reasonsToRun`.
    func detail(_ reasons: [ReasonToRun], at now: Instant) -> String {
        if isSilent { return "its program does not speak to Nightbell" }
        var names = reasons.map(\.text)
        if launches.hibernates { names.append("to be ended instead of suspended") }
        if !launches.reasons.isEmpty, state == .dormant || state == .launching {
            names.append("to be launched: \(launches.reasons.names)")
        }
        if state == .dormant, launches.isQuit {
            let isLocated = observations.contains { $0.subject.mode == .location }
            names.append(isLocated ? "quit; only its location launches it" : "quit")
        }
        if launches.isWaitingForUnlock { names.append("once its user is unlocked") }
        if let until = launches.waitsForMemoryUntil {
            names.append("memory is short: \(Self.text(until.since(now))) at the earliest")
        }
        if let until = launches.notBefore, !launches.reasons.isEmpty {
            names.append("\(Self.text(until.since(now))) at the earliest")
        }
        return names.joined(separator: ", ")
    }

    /// Rounded up: until then it does not happen.
    private static func text(_ duration: Duration) -> String {
        let (seconds, attoseconds) = max(duration, .zero).components
        return "in \(seconds + (attoseconds > 0 ? 1 : 0)) s"
    }
}
