/// The calling side: many calls at once, each INVITE → 180 → 200 → ACK → a while → BYE → 200.
///
/// A state machine without I/O or clock, like `UserAgent`.
public struct Caller: Sendable {
    public struct Configuration: Sendable {
        /// How long a call may ring before it is given up.
        public var ringingLimit: Duration = .seconds(20)
        public var timers = SIPTimers()

        public init() {}
    }

    public enum Action: Sendable, Equatable {
        case send(SIPMessage)
        case ringing(String)
        case answered(String)
        /// Both sides agree that the call is over.
        case ended(String)
        case failed(String, CallFailure)
    }

    private enum State: Sendable {
        case inviting(TransactionID, giveUp: ContinuousClock.Instant, hasRung: Bool)
        /// CANCEL was sent; the final response of the INVITE is awaited.
        case cancelling(TransactionID, until: ContinuousClock.Instant)
        case talking(Dialog, ack: SIPMessage, hangUp: ContinuousClock.Instant)
        case leaving(TransactionID, ack: SIPMessage?)
    }

    private struct Call: Sendable {
        let invite: SIPMessage
        let talkFor: Duration
        var state: State

        var nextDeadline: ContinuousClock.Instant? {
            switch state {
            case .inviting(_, let giveUp, _): giveUp
            case .cancelling(_, let until): until
            case .talking(_, _, let hangUp): hangUp
            case .leaving: nil
            }
        }
    }

    private let endpoint: SIPEndpoint
    private let domain: String
    private let configuration: Configuration
    private var transactions: TransactionLayer
    private var calls: [String: Call] = [:]

    public init(_ endpoint: SIPEndpoint, domain: String, configuration: Configuration = Configuration()) {
        self.endpoint = endpoint
        self.domain = domain
        self.configuration = configuration
        transactions = TransactionLayer(
            isReliable: endpoint.transport.isReliable, timers: configuration.timers, limit: 4_096)
    }

    /// Calls that are not over.
    public var callCount: Int { calls.count }

    public var nextDeadline: ContinuousClock.Instant? {
        ([transactions.nextDeadline] + calls.values.map(\.nextDeadline)).compactMap { $0 }.min()
    }

    /// Calls a user of the domain. The call is known by its `Call-ID`.
    public mutating func call(
        _ user: String, talkFor: Duration, at now: ContinuousClock.Instant
    ) -> (callID: String, actions: [Action]) {
        let target = SIPURI(user: user, host: domain)
        let own = SIPURI(user: endpoint.user, host: domain)
        let callID = newToken()
        var invite = SIPMessage(.request(method: .invite, uri: target.description))
        invite.headers = [
            .via: endpoint.newVia(), .maxForwards: "70", .from: "<\(own)>;tag=\(newToken())",
            .to: "<\(target)>", .callID: callID, .cSeq: CSeq(1, .invite).description,
            .contact: "<\(endpoint.contact)>", .contentType: "application/sdp",
        ]
        invite.body = sessionDescription(host: endpoint.host)
        guard let (id, outputs) = transactions.send(invite, at: now) else { return (callID, []) }
        let giveUp = now + configuration.ringingLimit
        calls[callID] = Call(
            invite: invite, talkFor: talkFor, state: .inviting(id, giveUp: giveUp, hasRung: false))
        return (callID, handle(outputs, at: now))
    }

    public mutating func receive(_ message: SIPMessage, at now: ContinuousClock.Instant) -> [Action] {
        handle(transactions.receive(message, at: now), at: now)
    }

    public mutating func advance(to now: ContinuousClock.Instant) -> [Action] {
        var actions = handle(transactions.advance(to: now), at: now)
        for (callID, call) in calls where call.nextDeadline.map({ $0 <= now }) ?? false {
            switch call.state {
            case .inviting(let id, _, let hasRung):
                actions += giveUp(callID, call, id, hasRung: hasRung, at: now)
            case .cancelling:
                calls[callID] = nil
                actions.append(.failed(callID, .noAnswer))
            case .talking(var dialog, let ack, _):
                let bye = dialog.request(.bye, from: endpoint)
                guard let (id, outputs) = transactions.send(bye, at: now) else { continue }
                calls[callID]?.state = .leaving(id, ack: ack)
                actions += handle(outputs, at: now)
            case .leaving:
                continue
            }
        }
        return actions
    }

    /// A request that got no provisional response must not be cancelled (RFC 3261 §9.1).
    private mutating func giveUp(
        _ callID: String, _ call: Call, _ id: TransactionID, hasRung: Bool, at now: ContinuousClock.Instant
    ) -> [Action] {
        guard hasRung, case .request(_, let uri) = call.invite.startLine,
            let number = call.invite.cSeq?.number
        else {
            calls[callID] = nil
            return [.failed(callID, .noAnswer)]
        }
        var cancel = SIPMessage(.request(method: .cancel, uri: uri))
        for name in [SIPHeaderName.via, .route, .from, .to, .callID] {
            for value in call.invite.headers.all(name) { cancel.headers.append(name, value) }
        }
        cancel.headers[.maxForwards] = "70"
        cancel.headers[.cSeq] = CSeq(number, .cancel).description
        calls[callID]?.state = .cancelling(id, until: now + configuration.timers.timeout)
        return handle(transactions.send(cancel, at: now)?.1 ?? [], at: now)
    }

    private mutating func handle(_ outputs: [TransactionLayer.Output], at now: ContinuousClock.Instant)
        -> [Action]
    {
        var actions: [Action] = []
        for output in outputs {
            switch output {
            case .send(let message):
                actions.append(.send(message))
            case .response(let response, let id):
                actions += receiveResponse(response, id, at: now)
            case .request(let request, let id):
                actions += receiveRequest(request, id, at: now)
            case .timedOut(let id):
                guard let callID = callID(of: id) else { continue }
                calls[callID] = nil
                actions.append(.failed(callID, .noAnswer))
            case .acknowledgement:
                continue
            }
        }
        return actions
    }

    private func callID(of id: TransactionID) -> String? {
        calls.first { entry in
            switch entry.value.state {
            case .inviting(let own, _, _), .cancelling(let own, _), .leaving(let own, _): own == id
            case .talking: false
            }
        }?.key
    }

    private mutating func receiveResponse(
        _ response: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        guard let callID = response.callID, let call = calls[callID], let status = response.status else {
            return []
        }
        switch call.state {
        case .inviting(let own, let giveUp, let hasRung):
            guard own == id else { return [] }
            if status < 200 {
                calls[callID]?.state = .inviting(own, giveUp: giveUp, hasRung: true)
                return status == 180 && !hasRung ? [.ringing(callID)] : []
            }
            return finish(call, callID, response, status, leaving: false, at: now)
        case .cancelling(let own, _):
            guard own == id, status >= 200 else { return [] }
            return finish(call, callID, response, status, leaving: true, at: now)
        case .talking(_, let ack, _):
            // The answer came again, so its ACK was lost.
            return response.cSeq?.method == .invite && status < 300 ? [.send(ack)] : []
        case .leaving(let own, let ack):
            if own == id, status >= 200 {
                calls[callID] = nil
                return status < 300 ? [.ended(callID)] : [.failed(callID, .refused(status))]
            }
            return response.cSeq?.method == .invite && status < 300
                ? [ack].compactMap { $0.map(Action.send) } : []
        }
    }

    /// The INVITE has its final response.
    private mutating func finish(
        _ call: Call, _ callID: String, _ response: SIPMessage, _ status: Int, leaving: Bool,
        at now: ContinuousClock.Instant
    ) -> [Action] {
        guard status < 300, let dialog = Dialog(calling: call.invite, response: response) else {
            calls[callID] = nil
            return [.failed(callID, leaving ? .noAnswer : .refused(status))]
        }
        // Answered although we had given up: hang up at once.
        let talkFor = leaving ? .zero : call.talkFor
        let ack = dialog.acknowledgement(of: call.invite, from: endpoint)
        calls[callID]?.state = .talking(dialog, ack: ack, hangUp: now + talkFor)
        return [.send(ack), .answered(callID)]
    }

    /// The called side hangs up, or asks whether the call goes on.
    private mutating func receiveRequest(
        _ request: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        guard request.method == .bye || request.method == .options, let callID = request.callID,
            case .talking(let dialog, _, _) = calls[callID]?.state,
            dialog.owns(request)
        else {
            return sends(transactions.respond(request.response(481, "Call Does Not Exist"), to: id, at: now))
        }
        guard request.method == .bye else {
            return sends(transactions.respond(request.response(200, "OK"), to: id, at: now))
        }
        calls[callID] = nil
        return sends(transactions.respond(request.response(200, "OK"), to: id, at: now)) + [.ended(callID)]
    }

    private func sends(_ outputs: [TransactionLayer.Output]) -> [Action] {
        outputs.compactMap { output in
            if case .send(let message) = output { .send(message) } else { nil }
        }
    }
}

/// The reason why a call failed.
public enum CallFailure: Error, Sendable, Equatable, CustomStringConvertible {
    case noAnswer
    case refused(Int)

    public var description: String {
        switch self {
        case .noAnswer: "no answer"
        case .refused(let status): "refused with \(status)"
        }
    }
}
