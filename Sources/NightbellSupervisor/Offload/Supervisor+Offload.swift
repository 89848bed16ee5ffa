import Descriptors
import Keeper
import NightbellCore
import NightbellProfiles
import NightbellWire

/// Dealing with the pings of sleepers: when, the core decides; what they are, their profiles know.
///
/// Between two turns no reply is ever under way: what is sent is sent at once and whole, or not at all. So a socket can
/// be given back at any moment.
extension Supervisor {
    // MARK: Falling asleep and waking

    func beginOffload(_ token: SocketToken) {
        guard offload.contains(token), let descriptor = parked.descriptor(of: token) else { return }
        if offload[token].hasLost {
            // Nobody can answer for the owner any more: it has to see for itself.
            return followUps.append(.pingFailed(token))
        }
        let isTakenUp = offload[token].isActive
        offload[token].peer = SocketAddress(peerOf: descriptor).flatMap { Endpoint($0) }
        offload[token].isLocal = SocketTraffic.mayCarryDescriptors(descriptor)
        if !isTakenUp {
            offload[token].profile.begin(lending: offload[token].lent)
            offload[token].isActive = true
        }
        if case .tcp(let settings) = offload[token].settings { setKeepAlive(token, settings, descriptor) }
        if offload[token].profile.lent != .nothing { noteLent(token) }
        followUps.append(.offloadBegan(token, terms(of: token, descriptor)))
    }

    func endOffload(_ token: SocketToken) {
        guard offload.contains(token) else { return }
        if let former = offload[token].formerKeepAlive.take() {
            if let descriptor = parked.descriptor(of: token) { former.apply(to: descriptor) }
            journal?.keepFormer(nil, of: token)
        }
        guard offload[token].isActive || offload[token].hasLost else { return }
        offload[token].isActive = false
        let lent = offload[token].profile.end()
        guard lent != .nothing || offload[token].hasLost, let owner = supervision.owner(of: token) else {
            return
        }
        offload[token].lent = lent
        offload.noteReturn(token, to: owner.slot)
    }

    /// Who cannot be reached without an address is sent nothing of our own accord.
    private func terms(of token: SocketToken, _ descriptor: CInt) -> PingTerms? {
        guard let pinging = offload[token].profile.pinging else { return nil }
        if offload[token].profile.transport == .datagram, SocketAddress(peerOf: descriptor) == nil {
            return nil
        }
        return PingTerms(
            earliest: pinging.earliest, latest: pinging.latest, answerWithin: pinging.answerWithin,
            repeatAfter: pinging.repetition?.first ?? .zero, repetitions: pinging.repetition?.count ?? 0)
    }

    private func setKeepAlive(_ token: SocketToken, _ settings: TCPSettings, _ descriptor: CInt) {
        if offload[token].formerKeepAlive == nil {
            guard let former = TCPKeepAlive(of: descriptor) else { return }
            offload[token].formerKeepAlive = former
            // First noted, then changed: whoever comes after us sets it back.
            journal?.keepFormer(former, of: token)
            journal?.link.flush()
        }
        TCPKeepAlive(
            isOn: true, idleSeconds: settings.idleSeconds, intervalSeconds: settings.intervalSeconds,
            probes: settings.probes,
            userTimeoutMilliseconds: Int32(clamping: settings.userTimeoutMilliseconds)
        ).apply(to: descriptor)
    }

    /// What owners lend, before they are stopped.
    func takeLent(_ lent: [WireLent], from client: ClientID) {
        for wire in lent {
            let token = SocketToken(rawValue: wire.token)
            guard supervision.owner(of: token) == client, offload.contains(token), !offload[token].isActive,
                let value = Lent(wire)
            else { continue }
            offload[token].lent = value
        }
    }

    /// What a client lent, as it has become; it is told in the message that it runs again with.
    func takeReturned(_ client: ClientID) -> [WireLent] {
        guard offload.owing.contains(client.slot) else { return [] }
        return offload.takeReturned(supervision.offloadedSockets(of: client), of: client.slot)
    }

    // MARK: What arrives

    /// A socket with a profile fired.
    func offloadedSocketFired(_ token: SocketToken) {
        guard let owner = supervision.owner(of: token), supervision.isOffloading(token),
            offload.contains(token), offload[token].isActive,
            // It may read its sockets already.
            unsafe !earlyWaker.hasThawed(owner.slot)
        else {
            guard let descriptor = parked.descriptor(of: token) else { return }
            parked.noteFired(token)
            return feed(.fired(token, Conditions(Poll.now(descriptor))))
        }
        if let judgement = look(token) { feed(.judged(token, judgement)) }
    }

    /// Looks at what there is in a socket of a sleeper, and deals with the noise.
    private func look(_ token: SocketToken) -> Judgement? {
        guard let descriptor = parked.descriptor(of: token) else { return nil }
        let isLent = offload[token].profile.lent != .nothing
        if isLent { journal?.doubtLent(token) }
        let conditions = Conditions(Poll.now(descriptor))
        var judgement = Judgement()
        if conditions.contains(.error) || conditions.contains(.hangUp) {
            // Nothing is read: that would take the error away.
            judgement.rest = .significant(withPath(conditions, token, descriptor))
        } else {
            switch offload[token].profile.transport {
            case .stream: judgeStream(token, descriptor, &judgement)
            case .datagram:
                judgeDatagrams(token, descriptor, isEnded: conditions.contains(.peerClosed), &judgement)
            }
            switch judgement.rest {
            case .nothing, .partial:
                // Behind the noise is the end.
                if conditions.contains(.peerClosed) { judgement.rest = .significant(conditions) }
            case .significant(let found):
                judgement.rest = .significant(found.union(conditions.intersection([.peerClosed])))
            case .noise, .unanswerable:
                break
            }
        }
        judgement.isAwaitingAnswer = offload[token].profile.isAwaitingAnswer
        switch judgement.rest {
        case .nothing, .partial: break
        case .significant, .noise, .unanswerable: parked.noteFired(token)
        }
        if isLent { noteLent(token) }
        return judgement
    }

    /// Whether a connection broke because nothing arrives any more.
    private func withPath(
        _ conditions: Conditions, _ token: SocketToken, _ descriptor: CInt
    ) -> Conditions {
        let isLost = supervision.isStream(token) && TCPState.wasGivenUp(descriptor)
        return isLost ? conditions.union(.pathLost) : conditions
    }

    private func judgeStream(_ token: SocketToken, _ descriptor: CInt, _ judgement: inout Judgement) {
        var allowance = supervision.noiseAllowance(token, at: now)
        while true {
            if SocketTraffic.isAtMark(descriptor) { return judgement.rest = .significant(.readable) }
            switch SocketTraffic.peek(descriptor, into: &offload.buffer, isLocal: offload[token].isLocal) {
            case .nothing:
                return
            case .accompanied:
                return judgement.rest = .significant(.readable)
            case .end:
                return judgement.rest = .significant([.readable, .peerClosed])
            case .failed:
                return judgement.rest = .significant([.readable, .error])
            case .bytes(let count):
                let former = offload[token].profile
                var found = judgement
                let length = judge(count, token, &allowance, &found)
                guard reply(on: descriptor, from: token, former, &judgement) else { return }
                judgement = found
                guard length > 0 else { return }
                guard SocketTraffic.consume(descriptor, length, using: &offload.buffer) else {
                    // Somebody who shares the socket reads it: nothing is known of it any more.
                    return judgement.rest = .significant(.readable)
                }
                FaultInjection.point("offload: after noise is taken")
                let isAll =
                    length == count && count < offload.buffer.count && !SocketTraffic.isAtMark(descriptor)
                if judgement.rest != .nothing || isAll { return }
            }
        }
    }

    /// Judges what was peeked at from its head on.
    ///
    /// - Returns: how much of it is noise. What is to be said to that is in `offload.output`.
    private func judge(
        _ count: Int, _ token: SocketToken, _ allowance: inout Int, _ judgement: inout Judgement
    ) -> Int {
        var (buffer, output): ([UInt8], [UInt8]) = ([], [])
        offload.swapBuffers(&buffer, &output)
        defer { offload.swapBuffers(&buffer, &output) }
        output.removeAll(keepingCapacity: true)
        var position = 0
        // Replies must fit into a small send buffer.
        while position < count, output.count < 4_096 {
            guard allowance > 0 else {
                judgement.rest = .noise
                return position
            }
            let circumstances = Circumstances(random: offload.random.next(), peer: offload[token].peer)
            let verdict = offload[token].profile.judge(
                buffer.span.extracting(position..<count), circumstances, replies: &output)
            switch verdict {
            case .noise(let length, let noise):
                position += length
                allowance -= 1
                judgement.note(noise)
            case .needMore:
                judgement.rest = .partial
                return position
            case .significant:
                judgement.rest = .significant(.readable)
                return position
            }
        }
        return position
    }

    /// Sends what is to be said. False: it could not be, and everything is as it was.
    private func reply(
        on descriptor: CInt, from token: SocketToken, _ former: Profile, _ judgement: inout Judgement
    ) -> Bool {
        let output = offload.output
        guard !output.isEmpty else { return true }
        var sent = SocketTraffic.Sent.nothing
        FaultInjection.point("offload: before an answer")
        if output.count <= 64 || SocketTraffic.hasRoom(descriptor, for: output.count) {
            sent = SocketTraffic.send(output, on: descriptor)
        }
        FaultInjection.point("offload: after an answer")
        switch sent {
        case .all:
            return true
        case .nothing:
            judgement.rest = .unanswerable
        case .part:
            // Half a reply must not be what the owner's next message begins with.
            SocketTraffic.breakOff(descriptor)
            judgement.rest = .significant([.hangUp, .unanswerable])
        case .failed:
            judgement.rest = .significant([.readable, .error])
        }
        offload[token].profile = former
        return false
    }

    private func judgeDatagrams(
        _ token: SocketToken, _ descriptor: CInt, isEnded: Bool, _ judgement: inout Judgement
    ) {
        var allowance = supervision.noiseAllowance(token, at: now)
        var sender = SocketAddress()
        let isLocal = offload[token].isLocal
        while true {
            let peeked = SocketTraffic.peekDatagram(
                descriptor, into: &offload.buffer, from: &sender, isLocal: isLocal)
            switch peeked {
            case .nothing, .end:
                return
            case .bytes(0) where isEnded:
                // Behind the last one there is an empty one, again and again.
                return
            case .accompanied:
                return judgement.rest = .significant(.readable)
            case .failed:
                return judgement.rest = .significant([.readable, .error])
            case .bytes(let count):
                guard allowance > 0 else { return judgement.rest = .noise }
                guard count <= offload.buffer.count else { return judgement.rest = .significant(.readable) }
                let former = offload[token].profile
                guard let noise = judgeDatagram(count, token, sender) else {
                    return judgement.rest = .significant(.readable)
                }
                if !offload.output.isEmpty {
                    switch SocketTraffic.send(offload.output, on: descriptor, to: sender.ifKnown) {
                    case .all:
                        break
                    case .part, .nothing, .failed:
                        offload[token].profile = former
                        return judgement.rest = .unanswerable
                    }
                }
                allowance -= 1
                judgement.note(noise)
                guard SocketTraffic.consume(descriptor, count, using: &offload.buffer) else {
                    return judgement.rest = .significant(.readable)
                }
            }
        }
    }

    /// nil: it is for the owner.
    private func judgeDatagram(_ count: Int, _ token: SocketToken, _ sender: SocketAddress) -> Noise? {
        var (buffer, output): ([UInt8], [UInt8]) = ([], [])
        offload.swapBuffers(&buffer, &output)
        defer { offload.swapBuffers(&buffer, &output) }
        output.removeAll(keepingCapacity: true)
        let circumstances = Circumstances(random: offload.random.next(), peer: Endpoint(sender))
        let verdict = offload[token].profile.judge(
            buffer.span.extracting(0..<count), circumstances, replies: &output)
        switch verdict {
        case .noise(_, let noise): return noise
        case .significant, .needMore: return nil
        }
    }

    // MARK: Pings

    func sendPing(_ token: SocketToken, again: Bool) {
        guard offload.contains(token), offload[token].isActive,
            let descriptor = parked.descriptor(of: token)
        else { return }
        var (buffer, output): ([UInt8], [UInt8]) = ([], [])
        offload.swapBuffers(&buffer, &output)
        defer { offload.swapBuffers(&buffer, &output) }
        output.removeAll(keepingCapacity: true)
        let former = offload[token].profile
        let isLent = former.lent != .nothing
        if isLent { journal?.doubtLent(token) }
        defer { if isLent { noteLent(token) } }
        let random = again ? offload[token].pingRandom : offload.random.next()
        let circumstances = Circumstances(random: random, peer: offload[token].peer)
        guard offload[token].profile.ping(again: again, circumstances, into: &output) else { return }
        if !again {
            offload[token].pingRandom = random
            journal?.notePing(random, of: token)
        }
        FaultInjection.point("offload: before a ping")
        var sent = SocketTraffic.Sent.nothing
        let isStream = offload[token].profile.transport == .stream
        if !isStream || output.count <= 64 || SocketTraffic.hasRoom(descriptor, for: output.count) {
            sent = SocketTraffic.send(output, on: descriptor)
        }
        FaultInjection.point("offload: after a ping")
        switch sent {
        case .all:
            return
        case .part:
            SocketTraffic.breakOff(descriptor)
        case .nothing, .failed:
            // One that is repeated anyway may get lost.
            if again { return }
        }
        offload[token].profile = former
        followUps.append(.pingFailed(token))
    }

    func lookForAnswer(_ token: SocketToken) {
        if supervision.isOffloading(token), offload.contains(token), let judgement = look(token) {
            followUps.append(.judged(token, judgement))
        }
        followUps.append(.answerLookedFor(token))
    }

    private func noteLent(_ token: SocketToken) {
        journal?.noteLent(offload[token].profile.lent, of: token)
    }
}

extension Judgement {
    fileprivate mutating func note(_ noise: Noise) {
        switch noise {
        case .ping: answered += 1
        case .answer: confirmed += 1
        case .step, .filler: absorbed += 1
        }
    }
}
