/// The sending side of one request (RFC 3261 §17.1, with the corrections of RFC 6026).
///
/// A state machine without I/O or clock: each method returns what has to be done, in order.
struct ClientTransaction: Sendable {
    enum Action: Sendable, Equatable {
        case send(SIPMessage)
        case deliver(SIPMessage)
        case timedOut
    }

    private enum State: Sendable {
        /// Calling or Trying: nothing has come back.
        case waiting(Retransmission?, until: ContinuousClock.Instant)
        /// A provisional response has come. An INVITE may now ring without limit.
        case proceeding(Retransmission?, until: ContinuousClock.Instant?)
        /// A final response has come; what of it comes again is absorbed, and acknowledged for INVITE.
        case completed(until: ContinuousClock.Instant)
        /// INVITE only: 2xx responses, from whatever branch of the call, go to the user until then.
        case accepted(until: ContinuousClock.Instant)
        case terminated
    }

    let request: SIPMessage
    private let isInvite: Bool
    private let isReliable: Bool
    private let timers: SIPTimers
    private var state: State

    /// The request has to be sent at once.
    init(_ request: SIPMessage, isReliable: Bool, timers: SIPTimers, at now: ContinuousClock.Instant) {
        self.request = request
        self.isReliable = isReliable
        self.timers = timers
        isInvite = request.method == .invite
        let again =
            isReliable
            ? nil : Retransmission(first: timers.t1, maximum: isInvite ? nil : timers.t2, at: now)
        state = .waiting(again, until: now + timers.timeout)
    }

    var isTerminated: Bool {
        if case .terminated = state { true } else { false }
    }

    /// A final response is still to come.
    var isOpen: Bool {
        switch state {
        case .waiting, .proceeding: true
        case .completed, .accepted, .terminated: false
        }
    }

    var nextDeadline: ContinuousClock.Instant? {
        switch state {
        case .waiting(let again, let until): min(again?.due ?? until, until)
        case .proceeding(let again, let until): [again?.due, until].compactMap { $0 }.min()
        case .completed(let until), .accepted(let until): until
        case .terminated: nil
        }
    }

    mutating func receive(_ response: SIPMessage, at now: ContinuousClock.Instant) -> [Action] {
        guard let status = response.status else { return [] }
        switch state {
        case .waiting(let again, let until):
            return receiveWhileOpen(response, status, again, until, at: now)
        case .proceeding(let again, let until):
            return receiveWhileOpen(response, status, again, until, at: now)
        case .completed:
            return isInvite && status >= 300 ? [.send(acknowledgement(of: response))] : []
        case .accepted:
            return (200...299).contains(status) ? [.deliver(response)] : []
        case .terminated:
            return []
        }
    }

    private mutating func receiveWhileOpen(
        _ response: SIPMessage, _ status: Int, _ again: Retransmission?, _ until: ContinuousClock.Instant?,
        at now: ContinuousClock.Instant
    ) -> [Action] {
        switch (status, isInvite) {
        case (..<200, true):
            state = .proceeding(nil, until: nil)
            return [.deliver(response)]
        case (..<200, false):
            // The request is still repeated, at the slowest pace (§17.1.2.2).
            let slow = again.map { _ in Retransmission(first: timers.t2, maximum: timers.t2, at: now) }
            state = .proceeding(slow, until: until)
            return [.deliver(response)]
        case (200...299, true):
            state = .accepted(until: now + timers.timeout)
            return [.deliver(response)]
        case (_, true):
            state = isReliable ? .terminated : .completed(until: now + timers.timeout)
            return [.send(acknowledgement(of: response)), .deliver(response)]
        case (_, false):
            state = isReliable ? .terminated : .completed(until: now + timers.t4)
            return [.deliver(response)]
        }
    }

    mutating func advance(to now: ContinuousClock.Instant) -> [Action] {
        switch state {
        case .waiting(var again, let until):
            if until <= now { return timeOut() }
            guard again?.isDue(at: now) == true else { return [] }
            state = .waiting(again, until: until)
            return [.send(request)]
        case .proceeding(var again, let until):
            if let until, until <= now { return timeOut() }
            guard again?.isDue(at: now) == true else { return [] }
            state = .proceeding(again, until: until)
            return [.send(request)]
        case .completed(let until), .accepted(let until):
            if until <= now { state = .terminated }
            return []
        case .terminated:
            return []
        }
    }

    private mutating func timeOut() -> [Action] {
        state = .terminated
        return [.timedOut]
    }

    /// The ACK of a response other than 2xx belongs to the transaction (§17.1.1.3).
    private func acknowledgement(of response: SIPMessage) -> SIPMessage {
        guard case .request(_, let uri) = request.startLine else { return request }
        var ack = SIPMessage(.request(method: .ack, uri: uri))
        if let via = request.headers.list(.via).first { ack.headers.append(.via, via) }
        for route in request.headers.all(.route) { ack.headers.append(.route, route) }
        ack.headers[.maxForwards] = "70"
        ack.headers[.from] = request.headers[.from]
        ack.headers[.to] = response.headers[.to]
        ack.headers[.callID] = request.headers[.callID]
        ack.headers[.cSeq] = request.cSeq.map { CSeq($0.number, .ack).description }
        return ack
    }
}
