import NightbellCore
import NightbellWire

/// The push service keeps the messages and serves them to clients; the supervisor only tells these that some
/// wait.
extension Supervisor {
    func learnPushes(_ message: WirePushesWaiting, _ connection: Connection, _ request: UInt64) {
        // The gateway must not be able to say it if it may not wake, and no other user may.
        guard
            isAdministrator(connection)
                || isGateway(connection) && configuration.gateway?.permits(.wake) == true
        else {
            let error =
                isGateway(connection)
                ? WireError.notForGateway : WireError(.permissionDenied, "it is for the push service")
            return answer(connection, request, .error(error))
        }
        guard let identifier = ClientIdentifier(message.identifier), message.number != 0 else {
            let error = WireError(.invalidArgument, "no identifier of a client, or no number")
            return answer(connection, request, .error(error))
        }
        if pushService != connection.key {
            pushService = connection.key
            feed(.fact(.pushServiceChanged))
        }
        let waiting = WaitingPushes(
            of: message.uid, identifier, number: message.number, urgency: PushUrgency(message.urgency))
        if waiting.urgency != nil { declareAbsent(identifier, of: message.uid) }
        feed(.fact(.pushes(waiting)))
        answer(connection, request, .done(WireDone()))
    }

    /// Answers for a client without a record, too: messages may wait for it.
    func showOwner(of identifier: String, _ connection: Connection, _ request: UInt64) {
        guard let name = ClientIdentifier(identifier),
            let user = supervision.client(named: name).flatMap({ supervision.user(of: $0) })
                ?? launches.declarations[name]?.registration.user ?? supervision.ownership(of: name)?.user,
            mayAct(.see, on: user, connection)
        else { return answer(connection, request, .error(WireError(.noSuchClient))) }
        var info = WireClientInfo()
        info.identifier = identifier
        info.uid = user
        answer(connection, request, .clientInfo(info))
    }
}

extension PushUrgency {
    /// nil: there is none.
    init?(_ wire: WirePushUrgency) {
        switch wire {
        case .veryLow: self = .veryLow
        case .low: self = .low
        case .normal: self = .normal
        case .high: self = .high
        case .unspecified, .UNRECOGNIZED: return nil
        }
    }

    var wire: WirePushUrgency {
        switch self {
        case .veryLow: .veryLow
        case .low: .low
        case .normal: .normal
        case .high: .high
        }
    }

    /// The sender's word.
    var name: String {
        switch self {
        case .veryLow: "very-low"
        case .low: "low"
        case .normal: "normal"
        case .high: "high"
        }
    }
}

extension WirePushObstacle {
    init(_ obstacle: PushObstacle?) {
        self =
            switch obstacle {
            case .underWay: .underWay
            case .failed: .failed
            case .tooMany: .tooMany
            case .conditions: .conditions
            case nil: .unspecified
            }
    }
}

extension PushMemory {
    init(_ stored: StoredObservations.Observation) {
        self.init()
        told = stored.pushesToldNs.map(Instant.init(nanoseconds:))
        if stored.pushWake != 0 {
            run = Run(wakeID: stored.pushWake, until: Instant(nanoseconds: stored.pushUntilNs))
        }
        if stored.hasPushRetryNs { retryAt = Instant(nanoseconds: stored.pushRetryNs) }
    }
}

extension StoredObservations.Observation {
    mutating func store(_ push: PushMemory) {
        pushesToldNs = push.told.map(\.nanoseconds)
        if let run = push.run { (pushWake, pushUntilNs) = (run.wakeID, run.until.nanoseconds) }
        if let retryAt = push.retryAt { pushRetryNs = retryAt.nanoseconds }
    }
}
