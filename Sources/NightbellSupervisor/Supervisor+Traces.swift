import Descriptors
import Logging
import NightbellCore
import NightbellWire

/// What happens, told to the log and to those who watch.
extension Supervisor {
    /// - Parameter work: what the trace is a part of.
    func note(_ trace: Trace, of client: ClientID, _ work: ActionBuffer) {
        if trace.level >= logger.logLevel || watchers > 0 {
            let (identifier, user) = identity(of: client, work)
            if trace.level >= logger.logLevel {
                logger.log(level: trace.level, "\(identifier): \(trace.kind) \(trace.detail)")
            }
            if watchers > 0 { tellWatchers(trace, of: client, identifier, user) }
        }
        if case .state(let from, let to) = trace {
            if to == .suspended { warnOfLocks(client) }
            if pageOut != nil { pageOut(client, from, to) }
        }
    }

    /// The core has forgotten who is gone before its last traces are told, and says who it was in the end.
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

    /// Who sleeps with a lock held keeps others waiting for as long as it sleeps. To look takes some hundred
    /// microseconds, in which nobody is woken: so it is not done for each sleep, but once in a second at the most.
    private func warnOfLocks(_ client: ClientID) {
        guard let record = connection(of: client)?.client, !record.hasWarnedOfLocks,
            now >= nextLookAtLocks
        else { return }
        nextLookAtLocks = now + .seconds(1)
        guard let locks = ProcFS.fileLocksHeld(record.process.pid), locks > 0 else { return }
        record.hasWarnedOfLocks = true
        logger.warning("\(record.identifier) sleeps with \(locks) file locks held")
    }

    private func tellWatchers(
        _ trace: Trace, of client: ClientID, _ identifier: String, _ user: UserID?
    ) {
        var event = WireWatchEvent()
        event.atUnixNs = WallClock.now()
        event.identifier = identifier
        event.kind = trace.kind
        event.detail = trace.detail
        event.state = supervision.state(of: client).wire
        for connection in connections.all {
            guard case .watcher(let wanted) = connection.role, wanted.isEmpty || wanted == identifier,
                isAdministrator(connection) || connection.credentials.uid == user
            else { continue }
            tell(event, to: connection)
        }
    }

    /// A watcher that does not keep up misses events, and is told how many.
    private func tell(_ event: WireWatchEvent, to connection: Connection) {
        guard connection.outgoingBytes < configuration.outgoingBytesPerConnection / 2 else {
            connection.droppedEvents += 1
            return
        }
        var event = event
        event.dropped = connection.droppedEvents
        connection.droppedEvents = 0
        send(WireSupervisorMessage(.watchEvent(event)), to: connection)
    }
}

extension Trace {
    var level: Logger.Level {
        switch self {
        // A client can make as many of these as it likes, so they are not logged unless somebody asks.
        case .registered, .gone, .state, .woken, .adopted, .refusedSocket, .released, .suspensionCancelled,
            .foundRunning, .parked, .launching, .rejoined:
            .debug
        case .overran, .suspendedByForce, .suspensionFailed, .tooManyWakes, .terminated, .crashed, .gaveUp,
            .stateDropped:
            .notice
        case .keepAliveLate:
            .warning
        }
    }

    /// One word for programs to tell traces apart by.
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
        case .parked: "parked"
        case .launching: "launching"
        case .rejoined: "rejoined"
        case .crashed: "crashed"
        case .gaveUp: "gave up"
        case .stateDropped: "state dropped"
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
        case .foundRunning: "somebody else let it run"
        case .adopted(let token), .released(let token): String(token.rawValue, radix: 16)
        case .refusedSocket(let refusal): WireError(refusal).message
        case .keepAliveLate(let lateness): "by \(lateness)"
        case .tooManyWakes: "woken too often"
        case .terminated(let reason): reason.name
        case .parked: "no process, sockets parked"
        case .launching(let reasons): reasons.names
        case .rejoined: ""
        case .crashed: "ended badly"
        case .gaveUp: "ended badly too often in a row"
        case .stateDropped: "it ended badly with it"
        }
    }
}
