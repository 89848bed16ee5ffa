import NightbellCore
import NightbellWire

/// Conversion between the core's terms and those of the wire.
extension Duration {
    /// Whole milliseconds, rounded up, so that a time is never reported as over before it is.
    var wireMilliseconds: UInt64 {
        let nanoseconds = nanoseconds
        return nanoseconds <= 0 ? 0 : UInt64(nanoseconds / 1_000_000 + (nanoseconds % 1_000_000 == 0 ? 0 : 1))
    }
}

extension Modes {
    /// `nil` if one of them is unknown.
    init?(_ modes: [WireMode]) {
        self = []
        for mode in modes {
            switch mode {
            case .voip: insert(.voip)
            case .audio: insert(.audio)
            case .fetch: insert(.fetch)
            case .location: insert(.location)
            case .bluetoothCentral: insert(.bluetoothCentral)
            case .bluetoothPeripheral: insert(.bluetoothPeripheral)
            case .externalAccessory: insert(.externalAccessory)
            case .newsstand: insert(.newsstand)
            case .unspecified, .UNRECOGNIZED: return nil
            }
        }
    }

    var wire: [WireMode] {
        var modes: [WireMode] = []
        if contains(.voip) { modes.append(.voip) }
        if contains(.audio) { modes.append(.audio) }
        if contains(.fetch) { modes.append(.fetch) }
        if contains(.location) { modes.append(.location) }
        if contains(.bluetoothCentral) { modes.append(.bluetoothCentral) }
        if contains(.bluetoothPeripheral) { modes.append(.bluetoothPeripheral) }
        if contains(.externalAccessory) { modes.append(.externalAccessory) }
        if contains(.newsstand) { modes.append(.newsstand) }
        return modes
    }
}

extension Modes {
    /// For messages to a user.
    var names: String { Self.named.filter { contains($0.mode) }.map(\.name).joined(separator: ", ") }
}

extension WakeLimitPolicy {
    init?(_ policy: WireWakeLimitPolicy) {
        switch policy {
        case .unspecified, .linger: self = .linger
        case .terminate: self = .terminate
        case .UNRECOGNIZED: return nil
        }
    }
}

extension SocketTag {
    init?(_ tag: WireSocketTag) {
        switch tag {
        case .voip: self = .voip
        case .listener: self = .listener
        case .device: self = .device
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }

    var wire: WireSocketTag {
        switch self {
        case .voip: .voip
        case .listener: .listener
        case .device: .device
        }
    }
}

extension ClientState {
    var wire: WireClientState {
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

    /// For messages to a user.
    var name: String {
        switch self {
        case .notRunning: "not running"
        case .inactive: "inactive"
        case .active: "active"
        case .background: "background"
        case .suspending: "suspending"
        case .suspended: "suspended"
        case .terminating: "terminating"
        case .dormant: "dormant"
        case .launching: "launching"
        }
    }
}

extension SocketCondition {
    var name: String {
        switch self {
        case .unwatched: "held"
        case .armed: "armed"
        case .ended, .armedPastEnd: "ended"
        }
    }
}

extension WakeReasons {
    var wire: [WireWakeReason] {
        var reasons: [WireWakeReason] = []
        if contains(.socket) { reasons.append(.socket) }
        if contains(.keepAlive) { reasons.append(.keepAlive) }
        if contains(.request) { reasons.append(.request) }
        if contains(.clientMessage) { reasons.append(.clientMessage) }
        if contains(.supervisorStopping) { reasons.append(.supervisorStopping) }
        if contains(.launched) { reasons.append(.launched) }
        if contains(.relaunched) { reasons.append(.relaunched) }
        if contains(.unanswered) { reasons.append(.unanswered) }
        if contains(.pathLost) { reasons.append(.pathLost) }
        if contains(.fetch) { reasons.append(.fetch) }
        if contains(.networkChanged) { reasons.append(.networkChanged) }
        if contains(.location) { reasons.append(.location) }
        if contains(.device) { reasons.append(.device) }
        if contains(.bluetooth) { reasons.append(.bluetooth) }
        if contains(.transfer) { reasons.append(.transfer) }
        if contains(.push) { reasons.append(.push) }
        if contains(.notification) { reasons.append(.notification) }
        return reasons
    }

    var names: String {
        var names: [String] = []
        if contains(.socket) { names.append("socket") }
        if contains(.keepAlive) { names.append("keep-alive") }
        if contains(.request) { names.append("request") }
        if contains(.clientMessage) { names.append("client message") }
        if contains(.supervisorStopping) { names.append("supervisor stopping") }
        if contains(.launched) { names.append("launched with the supervisor") }
        if contains(.relaunched) { names.append("launched again") }
        if contains(.unanswered) { names.append("no answer to a ping") }
        if contains(.pathLost) { names.append("path lost") }
        if contains(.fetch) { names.append("fetch") }
        if contains(.networkChanged) { names.append("network changed") }
        if contains(.location) { names.append("location") }
        if contains(.device) { names.append("device") }
        if contains(.bluetooth) { names.append("Bluetooth") }
        if contains(.transfer) { names.append("transfer") }
        if contains(.push) { names.append("push") }
        if contains(.notification) { names.append("notification") }
        return names.joined(separator: ", ")
    }
}

extension TerminationReason {
    var name: String {
        switch self {
        case .quitByUser: "quit by the user"
        case .backgroundTasksOverran: "background tasks not ended in time"
        case .tooManyWakes: "woken too often"
        case .memoryPressure: "memory is short"
        case .hibernation: "it hibernates instead of being suspended"
        case .exitsOnSuspend: "it exits instead of being suspended"
        case .launchOverran: "it was launched and did not say Hello in time"
        case .fetchOverran: "a fetch not completed in time"
        case .pushOverran: "pushes not handled in time"
        }
    }
}

extension Step {
    var name: String {
        switch self {
        case .enteringBackground: "entering the background"
        case .prepareToSuspend: "prepare to suspend"
        case .wake: "wake"
        case .backgroundTasks: "background tasks"
        case .termination: "termination"
        case .launch: "launch"
        case .fetch: "fetch"
        case .push: "push"
        }
    }
}

extension WireCounters {
    init(_ counters: Counters) {
        self.init()
        for counter in Counter.allCases where counters[counter] != 0 {
            counts[counter.name] = counters[counter]
        }
        asleepNs = counters.asleepNanoseconds
    }

    /// Removes the wakes of all users that tell when the machine moves, or a device comes and goes.
    mutating func hideObservations() {
        for counter in [Counter.wakesLocation, .wakesBluetooth, .wakesDevice] { counts[counter.name] = nil }
    }
}

extension WireHandedOver.Adoption {
    init(_ outcome: Result<SocketToken, Refusal>) {
        self.init()
        switch outcome {
        case .success(let token): result = .token(token.rawValue)
        case .failure(let refusal): result = .error(WireError(refusal))
        }
    }
}

extension WakePacket {
    /// The same as the message below, faster.
    static func bytes(of wake: Wake, _ fired: ArraySlice<FiredSocket>) -> [UInt8] {
        // The bits of reasons and conditions are in the order of the wire.
        var packet = WakePacket(wakeID: wake.wakeID, reasons: wake.reasons.rawValue)
        for socket in fired {
            packet.add(token: socket.token.rawValue, conditions: socket.conditions.rawValue)
        }
        return packet.finish(
            budgetMilliseconds: wake.budget.wireMilliseconds,
            asleepNanoseconds: UInt64(max(0, wake.asleepFor.nanoseconds)), isRepeated: wake.isRepeated)
    }
}

extension WireWake {
    init(_ wake: Wake, _ buffer: ActionBuffer, _ returned: [WireDelegatedState]) {
        self.init()
        let fired = buffer.firedSockets[wake.sockets]
        occurrences = buffer.observed[wake.observed].map(\.wire)
        notifications = buffer.notified[wake.notified].map(\.wire)
        self.returned = returned
        wakeID = wake.wakeID
        reasons = wake.reasons.wire
        budgetMs = wake.budget.wireMilliseconds
        asleepNs = UInt64(max(0, wake.asleepFor.nanoseconds))
        repeated = wake.isRepeated
        fetchBudgetMs = wake.fetchBudget?.wireMilliseconds ?? 0
        pushBudgetMs = wake.pushBudget?.wireMilliseconds ?? 0
        sockets = fired.map { fired in
            var socket = WireWake.Socket()
            socket.token = fired.token.rawValue
            socket.readable = fired.conditions.contains(.readable)
            socket.peerClosed = fired.conditions.contains(.peerClosed)
            socket.hangUp = fired.conditions.contains(.hangUp)
            socket.error = fired.conditions.contains(.error)
            socket.unanswered = fired.conditions.contains(.unanswered)
            socket.flooded = fired.conditions.contains(.flooded)
            socket.unanswerable = fired.conditions.contains(.unanswerable)
            socket.pathLost = fired.conditions.contains(.pathLost)
            return socket
        }
    }
}

extension WireSupervisorMessage {
    init(request: UInt64 = 0, _ body: OneOf_Body) {
        self.init()
        self.request = request
        self.body = body
    }

    init(_ answer: Answer, request: UInt64) {
        let body: OneOf_Body
        switch answer {
        case .done:
            body = .done(WireDone())
        case .refused(let refusal):
            body = .error(WireError(refusal))
        case .backgroundTask(let task):
            var granted = WireBackgroundTask()
            granted.taskID = task ?? 0
            body = .backgroundTask(granted)
        case .backgroundTimeLeft(let left):
            var message = WireBackgroundTimeLeft()
            message.left = left.map { .remainingMs($0.wireMilliseconds) } ?? .unlimited(true)
            body = .backgroundTimeLeft(message)
        case .scheduled(let dropped):
            var message = WireNotificationScheduled()
            message.dropped = dropped ?? ""
            body = .notificationScheduled(message)
        }
        self.init(request: request, body)
    }

    init(_ wake: Wake, _ buffer: ActionBuffer, _ returned: [WireDelegatedState]) {
        self.init(.wake(WireWake(wake, buffer, returned)))
    }

    init(_ notice: Notice, _ buffer: ActionBuffer, _ returned: [WireDelegatedState]) {
        let body: OneOf_Body
        switch notice {
        case .didEnterBackground(let budget):
            var message = WireDidEnterBackground()
            message.budgetMs = budget.wireMilliseconds
            body = .didEnterBackground(message)
        case .prepareToSuspend(let epoch, let budget):
            var message = WirePrepareToSuspend()
            message.epoch = epoch
            message.budgetMs = budget.wireMilliseconds
            body = .prepareToSuspend(message)
        case .suspendCancelled(let epoch):
            var message = WireSuspendCancelled()
            message.epoch = epoch
            message.returned = returned
            body = .suspendCancelled(message)
        case .suspended(let epoch):
            var message = WireSuspended()
            message.epoch = epoch
            body = .suspended(message)
        case .wake(let wake):
            body = .wake(WireWake(wake, buffer, returned))
        case .backgroundTimeExpiring(let remaining):
            var message = WireBackgroundTimeExpiring()
            message.remainingMs = remaining.wireMilliseconds
            body = .backgroundTimeExpiring(message)
        case .willTerminate(let budget, let reason):
            var message = WireWillTerminate()
            message.budgetMs = budget.wireMilliseconds
            message.reason = reason.name
            body = .willTerminate(message)
        }
        self.init(body)
    }
}
