/// The answering side of one request (RFC 3261 §17.2, with the corrections of RFC 6026).
///
/// A state machine without I/O or clock: each method returns what has to be done, in order.
struct ServerTransaction: Sendable {
    enum Action: Sendable, Equatable {
        case send(SIPMessage)
        /// No ACK arrived for the final response of an INVITE.
        case timedOut
    }

    private enum State: Sendable {
        /// No final response yet; the last provisional one answers retransmissions of the request.
        case open(provisional: SIPMessage?)
        /// The final response answers retransmissions. For INVITE it is repeated until the ACK comes.
        case completed(SIPMessage, Retransmission?, until: ContinuousClock.Instant)
        /// INVITE only: the ACK of a response other than 2xx has come; further ones are absorbed.
        case confirmed(until: ContinuousClock.Instant)
        /// INVITE only: a 2xx was sent. Its user repeats it until the ACK comes; the INVITE is absorbed.
        case accepted(until: ContinuousClock.Instant)
        case terminated
    }

    private let isInvite: Bool
    private let isReliable: Bool
    private let timers: SIPTimers
    private var state = State.open(provisional: nil)

    init(_ request: SIPMessage, isReliable: Bool, timers: SIPTimers) {
        isInvite = request.method == .invite
        self.isReliable = isReliable
        self.timers = timers
    }

    var isTerminated: Bool {
        if case .terminated = state { true } else { false }
    }

    /// No final response has been sent.
    var isOpen: Bool {
        if case .open = state { true } else { false }
    }

    var nextDeadline: ContinuousClock.Instant? {
        switch state {
        case .open, .terminated: nil
        case .completed(_, let again, let until): min(again?.due ?? until, until)
        case .confirmed(let until), .accepted(let until): until
        }
    }

    /// The request has come again.
    mutating func receiveAgain() -> [Action] {
        switch state {
        case .open(let provisional): provisional.map { [.send($0)] } ?? []
        case .completed(let response, _, _): [.send(response)]
        case .confirmed, .accepted, .terminated: []
        }
    }

    /// An ACK with the branch of the INVITE has come. True: it is for a 2xx, and the user of the transaction
    /// needs it.
    mutating func receiveAcknowledgement(at now: ContinuousClock.Instant) -> Bool {
        switch state {
        case .completed:
            if isInvite { state = isReliable ? .terminated : .confirmed(until: now + timers.t4) }
            return false
        case .accepted:
            return true
        case .open, .confirmed, .terminated:
            return false
        }
    }

    /// The user answers. Answers after the final one are dropped.
    mutating func respond(_ response: SIPMessage, at now: ContinuousClock.Instant) -> [Action] {
        guard case .open = state, let status = response.status else { return [] }
        let until = now + timers.timeout
        switch (status, isInvite) {
        case (..<200, _):
            state = .open(provisional: response)
        case (200...299, true):
            state = .accepted(until: until)
        case (_, true):
            let again = isReliable ? nil : Retransmission(first: timers.t1, maximum: timers.t2, at: now)
            state = .completed(response, again, until: until)
        case (_, false):
            state = isReliable ? .terminated : .completed(response, nil, until: until)
        }
        return [.send(response)]
    }

    mutating func advance(to now: ContinuousClock.Instant) -> [Action] {
        switch state {
        case .open, .terminated:
            return []
        case .completed(let response, var again, let until):
            if until <= now {
                state = .terminated
                return isInvite ? [.timedOut] : []
            }
            guard again?.isDue(at: now) == true else { return [] }
            state = .completed(response, again, until: until)
            return [.send(response)]
        case .confirmed(let until), .accepted(let until):
            if until <= now { state = .terminated }
            return []
        }
    }
}
