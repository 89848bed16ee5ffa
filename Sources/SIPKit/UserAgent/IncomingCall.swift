/// A call to this phone.
struct IncomingCall: Sendable {
    enum State: Sendable {
        case ringing(until: ContinuousClock.Instant)
        /// The 200 is repeated until its ACK comes, on any transport (RFC 3261 §13.3.1.4).
        case answered(SIPMessage, Retransmission, until: ContinuousClock.Instant)
        /// The other side is asked now and then whether the call goes on: a BYE can be lost with its sender.
        case confirmed(nextCheck: ContinuousClock.Instant)
        /// It was asked, and has not answered.
        case checked(TransactionID)
    }

    let invite: SIPMessage
    let transaction: TransactionID
    var dialog: Dialog
    var state: State
    /// The last check was answered, but perhaps not by the other side.
    var isInDoubt = false

    var nextDeadline: ContinuousClock.Instant? {
        switch state {
        case .ringing(let until): until
        case .answered(_, let again, let until): min(again.due, until)
        case .confirmed(let check): check
        case .checked: nil
        }
    }

    fileprivate var isEstablished: Bool {
        switch state {
        case .ringing, .answered: false
        case .confirmed, .checked: true
        }
    }
}

extension UserAgent {
    mutating func receiveInvite(
        _ invite: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        if invite.toTag != nil { return receiveReinvite(invite, id, at: now) }
        guard case .request(_, let uri) = invite.startLine, let target = try? SIPURI(parsing: uri),
            target.user == nil || target.user == configuration.user
        else { return respond(invite.response(404, "Not Found", tag: newToken()), to: id, at: now) }
        guard calls.count < configuration.callLimit else {
            return respond(invite.response(486, "Busy Here", tag: newToken()), to: id, at: now)
        }
        let tag = newToken()
        guard let dialog = Dialog(answering: invite, tag: tag) else {
            return respond(invite.response(400, "Bad Request", tag: tag), to: id, at: now)
        }
        let call = IncomingCall(
            invite: invite, transaction: id, dialog: dialog,
            state: .ringing(until: now + configuration.answerAfter))
        calls.append(call)
        let ringing = establishing(invite.response(180, "Ringing", tag: tag), invite)
        return [.callStarted(dialog.callID)] + respond(ringing, to: id, at: now) + advanceCalls(to: now)
    }

    /// A response that makes the dialog copies the route and tells where to send requests (§12.1.1).
    private func establishing(_ response: SIPMessage, _ invite: SIPMessage) -> SIPMessage {
        var answer = response
        for route in invite.headers.all(.recordRoute) { answer.headers.append(.recordRoute, route) }
        answer.headers[.contact] = "<\(endpoint.contact)>"
        return answer
    }

    private func accepting(_ invite: SIPMessage, tag: String) -> SIPMessage {
        var answer = establishing(invite.response(200, "OK", tag: tag), invite)
        answer.headers[.contentType] = "application/sdp"
        answer.body = sessionDescription(host: endpoint.host)
        return answer
    }

    /// An INVITE within a call asks for another session: there is only the one.
    private mutating func receiveReinvite(
        _ invite: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        guard let index = calls.firstIndex(where: { $0.dialog.owns(invite) }) else {
            return respond(invite.response(481, "Call Does Not Exist"), to: id, at: now)
        }
        guard calls[index].dialog.accept(invite) else {
            return respond(invite.response(500, "CSeq Out of Order"), to: id, at: now)
        }
        guard calls[index].isEstablished else {
            return respond(invite.response(491, "Request Pending"), to: id, at: now)
        }
        calls[index].dialog.refreshTarget(invite)
        let answer = accepting(invite, tag: calls[index].dialog.localTag)
        calls[index].state = answered(answer, at: now)
        return respond(answer, to: id, at: now)
    }

    private func answered(_ answer: SIPMessage, at now: ContinuousClock.Instant) -> IncomingCall.State {
        let timers = configuration.timers
        let again = Retransmission(first: timers.t1, maximum: timers.t2, at: now)
        return .answered(answer, again, until: now + timers.timeout)
    }

    mutating func acknowledge(_ ack: SIPMessage, at now: ContinuousClock.Instant) {
        guard let index = calls.firstIndex(where: { $0.dialog.owns(ack) }),
            case .answered(let answer, _, _) = calls[index].state, answer.cSeq?.number == ack.cSeq?.number
        else { return }
        calls[index].state = .confirmed(nextCheck: now + configuration.callCheckInterval)
    }

    /// Asks the other side within the dialog. It answers somehow, if it is there and knows of the call.
    private mutating func check(callAt index: Int, at now: ContinuousClock.Instant) -> [Action] {
        let question = calls[index].dialog.request(.options, from: endpoint)
        guard let (id, outputs) = transactions.send(question, at: now) else { return [] }
        calls[index].state = .checked(id)
        return handleSends(outputs)
    }

    /// A call was checked. It is over if the other side knows nothing of it, or nothing has answered (RFC
    /// 3261 §12.2.1.2). Other answers may come from a server on the way, which has lost the other side or is
    /// in trouble itself: the second one in a row ends the call, too.
    ///
    /// - Parameter status: of the answer; nil: there was none.
    /// - Returns: nil if that was no check of a call.
    mutating func noteCheck(_ id: TransactionID, _ status: Int?, at now: ContinuousClock.Instant) -> [Action]?
    {
        let index = calls.firstIndex {
            if case .checked(id) = $0.state { true } else { false }
        }
        guard let index else { return nil }
        guard let status, status != 408, status != 481 else {
            return hangUp(calls.remove(at: index), .lost, at: now)
        }
        guard status >= 200 else { return [] }
        let isAlive = Self.isOfOtherSide(status)
        guard isAlive || !calls[index].isInDoubt else {
            return hangUp(calls.remove(at: index), .lost, at: now)
        }
        calls[index].isInDoubt = !isAlive
        calls[index].state = .confirmed(nextCheck: now + configuration.callCheckInterval)
        return []
    }

    /// Whether only the other side of a dialog gives this final answer to OPTIONS, and no server on the way:
    /// it may refuse the method, or answer as it would another INVITE (RFC 3261 §11.2).
    private static func isOfOtherSide(_ status: Int) -> Bool {
        switch status {
        case 200..<300, 401, 405, 415, 420, 486, 488, 491, 501, 600, 603, 606: true
        default: false
        }
    }

    mutating func receiveBye(_ bye: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant)
        -> [Action]
    {
        guard let index = calls.firstIndex(where: { $0.dialog.owns(bye) }) else {
            return respond(bye.response(481, "Call Does Not Exist"), to: id, at: now)
        }
        guard calls[index].dialog.accept(bye) else {
            return respond(bye.response(500, "CSeq Out of Order"), to: id, at: now)
        }
        let call = calls.remove(at: index)
        var actions = respond(bye.response(200, "OK"), to: id, at: now)
        // A BYE may overtake our answer: the INVITE gets one all the same (§15.1.2).
        actions += terminateInvite(of: call, at: now)
        return actions + [.callEnded(call.dialog.callID, .remote)]
    }

    mutating func receiveCancel(
        _ cancel: SIPMessage, _ id: TransactionID, at now: ContinuousClock.Instant
    ) -> [Action] {
        let invite = TransactionID(branch: id.branch, sentBy: id.sentBy, method: .invite)
        guard let index = calls.firstIndex(where: { $0.transaction == invite }) else {
            return respond(cancel.response(481, "Call Does Not Exist", tag: newToken()), to: id, at: now)
        }
        let tag = calls[index].dialog.localTag
        let answer = respond(cancel.response(200, "OK", tag: tag), to: id, at: now)
        // Too late for a call that was answered: the caller has to say BYE.
        guard transactions.isOpen(invite) else { return answer }
        let call = calls.remove(at: index)
        return answer + terminateInvite(of: call, at: now) + [.callEnded(call.dialog.callID, .cancelled)]
    }

    private mutating func terminateInvite(of call: IncomingCall, at now: ContinuousClock.Instant) -> [Action]
    {
        let answer = call.invite.response(487, "Request Terminated", tag: call.dialog.localTag)
        return respond(answer, to: call.transaction, at: now)
    }

    /// Ends all calls from this side.
    public mutating func hangUp(at now: ContinuousClock.Instant) -> [Action] {
        let ending = calls
        calls.removeAll()
        return ending.flatMap { hangUp($0, .local, at: now) }
    }

    private mutating func hangUp(
        _ call: IncomingCall, _ reason: CallEnd, at now: ContinuousClock.Instant
    ) -> [Action] {
        var call = call
        var actions: [Action]
        switch call.state {
        case .ringing:
            actions = respond(
                call.invite.response(480, "Temporarily Unavailable", tag: call.dialog.localTag),
                to: call.transaction, at: now)
        case .answered, .confirmed, .checked:
            let bye = call.dialog.request(.bye, from: endpoint)
            actions = handleSends(transactions.send(bye, at: now)?.1 ?? [])
        }
        actions.append(.callEnded(call.dialog.callID, reason))
        return actions
    }

    mutating func advanceCalls(to now: ContinuousClock.Instant) -> [Action] {
        var actions: [Action] = []
        for index in calls.indices.reversed() {
            switch calls[index].state {
            case .ringing(let until):
                guard until <= now else { continue }
                let answer = accepting(calls[index].invite, tag: calls[index].dialog.localTag)
                calls[index].state = answered(answer, at: now)
                actions += respond(answer, to: calls[index].transaction, at: now)
                actions.append(.callAnswered(calls[index].dialog.callID))
            case .answered(let answer, var again, let until):
                guard until > now else {
                    actions += hangUp(calls.remove(at: index), .unacknowledged, at: now)
                    continue
                }
                guard again.isDue(at: now) else { continue }
                calls[index].state = .answered(answer, again, until: until)
                actions.append(.send(answer))
            case .confirmed(let due):
                if due <= now { actions += check(callAt: index, at: now) }
            case .checked:
                continue
            }
        }
        return actions
    }
}
