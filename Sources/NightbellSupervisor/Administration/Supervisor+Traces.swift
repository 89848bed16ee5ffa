import LinuxSystem
import Logging
import NightbellCore
import NightbellWire

/// Reports events to the log and to watchers.
extension Supervisor {
    /// - Parameter work: the actions that the trace is a part of.
    func report(_ trace: Trace, of client: ClientID, _ work: ActionBuffer) {
        if isReported(trace) {
            let (identifier, user) = identity(of: client, work)
            if trace.level >= logger.logLevel { log(trace, ending(of: client, trace), of: identifier, user) }
            if !connections.watchers.isEmpty {
                let detail = detail(of: trace, client, work)
                notifyWatchers(trace, detail, of: client, identifier, user)
            }
        }
        if case .state(let from, let to) = trace {
            if from == .suspended { connection(of: client)?.client?.awakeSince = now }
            if !receiveBuffers.isEmpty { adjustReceiveBuffers(client, from, to) }
            if to == .suspended {
                connection(of: client)?.client?.awakeSince = nil
                scheduleLockInspection(client)
            }
            if memory.pageOut != nil { pageOut(client, from, to) }
        }
    }

    /// Whether the log or a watcher gets it.
    func isReported(_ trace: Trace) -> Bool {
        !connections.watchers.isEmpty || trace.level >= logger.logLevel
    }

    /// A client can cause most traces as often as it likes: those are logged only at the most verbose level.
    /// It can cause some of the others, by crashing or by not answering.
    private func log(_ trace: Trace, _ ending: String, of identifier: String, _ user: UserID?) {
        guard let kind = trace.limit else {
            return logger.log(level: trace.level, "\(identifier): \(trace.text)")
        }
        log(kind, trace.level, of: user, "\(identifier): \(trace.text)\(ending)")
    }

    /// How a client's process has ended that has crashed; empty: that is unknown, or logged already.
    private func ending(of client: ClientID, _ trace: Trace) -> String {
        guard case .crashed = trace, let status = connection(of: client)?.client?.ending else { return "" }
        return ": \(Self.text(of: status))"
    }

    /// For watchers, with details that the core does not have: the names of sockets, and how long a client
    /// was awake.
    private func detail(of trace: Trace, _ client: ClientID, _ work: ActionBuffer) -> String {
        if let token = trace.socket {
            let name = parked.name(of: token)
            return name.isEmpty ? trace.detail : "\(name) (\(trace.detail))"
        }
        if case .woken = trace {
            let names = wakeNames(client, work)
            return names.isEmpty ? trace.detail : "\(trace.detail): \(names)"
        }
        if case .crashed = trace { return trace.detail + ending(of: client, trace) }
        guard case .state(_, .suspended) = trace, let since = connection(of: client)?.client?.awakeSince
        else { return trace.detail }
        return "\(trace.detail), was awake for \(now.since(since).wireMilliseconds) ms"
    }

    /// The names of the sockets that a client is woken for, if they have any.
    private func wakeNames(_ client: ClientID, _ work: ActionBuffer) -> String {
        for case .notify(client, .wake(let wake)) in work.actions.reversed() {
            let sockets = work.firedSockets[wake.sockets]
            let names = sockets.prefix(Self.mostNames).map { parked.name(of: $0.token) }
                .filter { !$0.isEmpty }
            let more = sockets.count - Self.mostNames
            return names.joined(separator: ", ") + (more > 0 ? " and \(more) more" : "")
        }
        return ""
    }

    private static let mostNames = 8

    /// The core removes a client before its last traces are reported; its identity comes from the final
    /// action.
    private func identity(
        of client: ClientID, _ work: ActionBuffer
    ) -> (identifier: String, user: UserID?) {
        if let identifier = supervision.identifier(of: client) {
            return (identifier.description, supervision.user(of: client))
        }
        for case .forget(let gone, let identifier, let user) in work.actions where gone == client {
            return (identifier.description, user)
        }
        return (identifier(of: client), connection(of: client)?.credentials.uid)
    }

    private func notifyWatchers(
        _ trace: Trace, _ detail: String, of client: ClientID, _ identifier: String, _ user: UserID?
    ) {
        var event = WireWatchEvent()
        event.atUnixNs = WallClock.now()
        event.identifier = identifier
        event.kind = trace.kind
        event.detail = detail
        event.state = supervision.state(of: client).wire
        for connection in connections.watchers {
            guard case .watcher(let wanted) = connection.role, wanted.isEmpty || wanted == identifier,
                mayAct(.see, on: user, connection)
            else { continue }
            guard isGateway(connection) else {
                send(event, to: connection)
                continue
            }
            guard !trace.isAboutObservation else { continue }
            var reduced = event
            if let reasons = trace.reasons, !reasons.isDisjoint(with: .ofWhereabouts) {
                reduced.detail = reasons.subtracting(.ofWhereabouts).names
            }
            send(reduced, to: connection)
        }
    }

    /// Events wait for the end of the turn: no client waits for them, and the wakes of other clients do not
    /// either. A watcher that does not keep up misses events, and is told how many.
    func send(_ event: WireWatchEvent, to connection: Connection) {
        let watching = connection.watching ?? Connection.WatchedEvents()
        connection.watching = watching
        guard connection.outgoingBytes < configuration.outgoingBytesPerConnection / 2 else {
            watching.dropped += 1
            return
        }
        var event = event
        event.dropped = watching.dropped
        watching.dropped = 0
        watching.events.append(event)
        watching.bytes += 64 + event.identifier.utf8.count + event.detail.utf8.count
        // A packet that has to wait must fit into the connection's queue.
        let room = min(Self.mostEventBytes, configuration.outgoingBytesPerConnection / 8)
        if watching.bytes >= room { sendEvents(to: connection) }
    }

    /// In one packet: more, or longer ones, are sent in the middle of a turn.
    private static let mostEventBytes = 32_768

    /// Sends watchers the events of the turn.
    func sendEvents() {
        for connection in connections.watchers { sendEvents(to: connection) }
    }

    private func sendEvents(to connection: Connection) {
        guard let watching = connection.watching, !watching.events.isEmpty else { return }
        var events = WireWatchEvents()
        swap(&events.events, &watching.events)
        defer { watching.bytes = 0 }
        // Answers of this turn may have come before.
        guard connection.outgoingBytes + watching.bytes <= configuration.outgoingBytesPerConnection
        else {
            watching.dropped += events.events.reduce(0) { $0 + 1 + $1.dropped }
            return
        }
        send(WireSupervisorMessage(.watchEvents(events)), to: connection)
    }
}

extension Trace {
    /// The gateway is not told where a person is.
    fileprivate var isAboutObservation: Bool {
        switch self {
        case .observed, .notification: true
        case .registered, .gone, .state, .woken, .overran, .suspendedByForce, .suspensionCancelled,
            .suspensionFailed, .foundRunning, .adopted, .refusedSocket, .released, .keepAliveLate,
            .tooManyWakes, .terminated, .becameDormant, .launching, .doesNotSpeak, .rejoined, .crashed,
            .gaveUp, .stateDropped, .outOfReach, .unlockUnknown, .fetchEnded, .pushEnded, .simulated:
            false
        }
    }

    /// Of a wake or a launch.
    fileprivate var reasons: WakeReasons? {
        if case .woken(let reasons) = self { return reasons }
        if case .launching(let reasons) = self { return reasons }
        return nil
    }

    /// The one that was adopted or released.
    fileprivate var socket: SocketToken? {
        if case .adopted(let token) = self { return token }
        if case .released(let token) = self { return token }
        return nil
    }

    var level: Logger.Level {
        switch self {
        case .registered, .gone, .state, .woken, .adopted, .refusedSocket, .released, .suspensionCancelled,
            .foundRunning, .becameDormant, .launching, .rejoined, .fetchEnded, .pushEnded, .observed,
            .notification,
            .terminated:
            .debug
        case .overran, .suspendedByForce, .suspensionFailed, .tooManyWakes, .crashed, .gaveUp,
            .stateDropped, .outOfReach, .unlockUnknown, .simulated:
            .notice
        case .keepAliveLate, .doesNotSpeak:
            .warning
        }
    }

    /// The kind of its rate limit; nil: it is logged only at the most verbose level.
    fileprivate var limit: LogLimiter.Kind? {
        switch self {
        case .registered, .gone, .state, .woken, .adopted, .refusedSocket, .released, .suspensionCancelled,
            .foundRunning, .becameDormant, .launching, .rejoined, .fetchEnded, .pushEnded, .observed,
            .notification,
            .terminated:
            nil
        case .overran, .suspendedByForce, .tooManyWakes: .overruns
        case .suspensionFailed: .suspension
        case .crashed, .stateDropped: .crashes
        // Not held back by the crashes before it.
        case .gaveUp: .givenUp
        case .outOfReach, .doesNotSpeak, .unlockUnknown, .simulated: .reach
        case .keepAliveLate: .keepAlives
        }
    }

    /// For the log.
    fileprivate var text: String { detail.isEmpty ? kind : "\(kind): \(detail)" }

    /// One word by which programs tell traces apart.
    var kind: String {
        switch self {
        case .registered: "registered"
        case .gone: "gone"
        case .state: "state"
        case .woken: "wake"
        case .overran: "overrun"
        case .suspendedByForce: "forced"
        case .suspensionCancelled: "cancelled"
        case .suspensionFailed: "failed"
        case .foundRunning: "running"
        case .adopted: "adopted"
        case .refusedSocket: "refused"
        case .released: "released"
        case .keepAliveLate: "late"
        case .tooManyWakes: "limit"
        case .terminated: "terminated"
        case .becameDormant: "parked"
        case .launching: "launching"
        case .doesNotSpeak: "silent"
        case .rejoined: "rejoined"
        case .crashed: "crashed"
        case .gaveUp: "gave up"
        case .stateDropped: "state dropped"
        case .outOfReach: "out of reach"
        case .unlockUnknown: "unlock unknown"
        case .fetchEnded: "fetched"
        case .pushEnded: "pushed"
        case .observed: "observed"
        case .notification: "notification"
        case .simulated: "simulated"
        }
    }

    var detail: String {
        switch self {
        case .registered, .gone: ""
        case .state(let from, let to): "\(from.name) → \(to.name)"
        case .woken(let reasons): reasons.names
        case .overran(let step): step.name
        case .suspendedByForce: "did not answer in time"
        case .suspensionCancelled: "runs on"
        case .suspensionFailed: "could not be stopped; it is tried again"
        case .foundRunning: "another process resumed it"
        case .adopted(let token), .released(let token): String(token.rawValue, radix: 16)
        case .refusedSocket(let refusal): WireError(refusal).message
        case .keepAliveLate(let lateness): "by \(lateness)"
        case .tooManyWakes: "woken too often"
        case .terminated(let reason): reason.name
        case .becameDormant: "no process, sockets parked"
        case .launching(let reasons): reasons.names
        case .doesNotSpeak:
            "its program has not said Hello in time: it does not speak to Nightbell, and runs on by itself"
        case .rejoined: ""
        case .crashed: "ended badly"
        case .gaveUp: "ended badly too often in a row"
        case .stateDropped: "it ended badly with it"
        case .unlockUnknown: "it is launched, though nothing can tell whether its user's home is there"
        case .fetchEnded(.newData), .pushEnded(.newData): "new data"
        case .fetchEnded(.noData), .pushEnded(.noData): "no new data"
        case .fetchEnded(.failed), .pushEnded(.failed): "failed"
        case .fetchEnded(nil), .pushEnded(nil): "not completed"
        case .observed(let observed):
            "\(observed.name): \(observed.occurrence.text)" + (observed.isSimulated ? ", simulated" : "")
        case .notification(let identifier, let progress): "\(identifier): \(progress.text)"
        case .simulated(let event): event.text
        case .outOfReach:
            "it has no socket, keep-alive timeout or observation that could wake it or launch it again"
        }
    }
}

extension Command {
    /// For messages to a user.
    fileprivate var text: String {
        switch self {
        case .wake: "wake"
        case .suspend: "suspend"
        case .quit: "quit"
        case .launch: "launch"
        case .simulateNetworkChange: "network change"
        case .simulateSleep: "sleep of the machine"
        case .simulateUnlock: "unlock"
        case .simulateFetch: "fetch"
        case .simulateFetchLaunch: "launch for a fetch"
        }
    }
}
