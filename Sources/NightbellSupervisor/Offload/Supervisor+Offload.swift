import EventLoop
import Keeper
import LinuxSystem
import NightbellCore
import NightbellParking
import NightbellProfiles
import NightbellWire

/// Handles the pings of sleepers: the core decides when, profiles know the messages.
extension Supervisor {
    // MARK: Falling asleep and waking

    func beginOffload(_ token: SocketToken) {
        guard offload.contains(token), let descriptor = parked.descriptor(of: token) else { return }
        if offload[token].hasLost {
            // The supervisor can no longer answer for the owner, which has to check for itself.
            return followUps.append(.delegatedStateLost(token))
        }
        let isTakenUp = offload[token].isActive
        offload[token].mayHaveMark = true
        offload[token].peer = SocketAddress(peerOf: descriptor).flatMap { Endpoint($0) }
        offload[token].isLocal = SocketTraffic.mayCarryDescriptors(descriptor)
        if !isTakenUp {
            offload[token].profile.begin(delegating: offload[token].delegated)
            offload[token].isActive = true
        }
        if case .tcp(let settings) = offload[token].settings { setKeepAlive(token, settings, descriptor) }
        if offload[token].profile.isDelegated { storeDelegated(token) }
        followUps.append(
            .offloadBegan(
                token, OffloadEngine.terms(of: offload[token].profile, descriptor),
                isAwaitingAnswer: offload[token].profile.isAwaitingAnswer))
    }

    func endOffload(_ token: SocketToken) {
        guard offload.contains(token) else { return }
        if let former = offload[token].formerKeepAlive.take() {
            if let descriptor = parked.descriptor(of: token) { former.apply(to: descriptor) }
            journal?.storeFormerOptions(nil, of: token)
        }
        guard offload[token].isActive || offload[token].hasLost else { return }
        offload[token].isActive = false
        let delegated = offload[token].profile.end()
        guard delegated != .nothing || offload[token].hasLost, let owner = ask({ $0.owner(of: token) }) else {
            return
        }
        offload[token].delegated = delegated
        offload.noteReturn(token, to: owner.slot)
    }

    private func setKeepAlive(_ token: SocketToken, _ settings: TCPSettings, _ descriptor: CInt) {
        if offload[token].formerKeepAlive == nil {
            guard let former = TCPKeepAlive(of: descriptor) else { return }
            offload[token].formerKeepAlive = former
            // Record first, then change: the next worker restores it.
            journal?.storeFormerOptions(former, of: token)
            journal?.link.flush()
        }
        TCPKeepAlive(settings).apply(to: descriptor)
    }

    /// Takes the state that owners delegate before they are stopped.
    ///
    /// - Returns: an error if any of it is invalid; none of it is taken then. An owner with a profile that
    ///   did not get the state it needs would sleep through traffic that should wake it.
    func takeDelegated(_ delegated: [WireDelegatedState], from client: ClientID) -> WireError? {
        var taken: [(SocketToken, DelegatedValues)] = []
        for wire in delegated {
            let token = SocketToken(rawValue: wire.token)
            guard supervision.owner(of: token) == client, offload.contains(token) else { continue }
            guard let value = DelegatedValues(wire), offload[token].settings.takes(value) else {
                return WireError(.invalidArgument, "the state delegated for socket \(wire.token) is invalid")
            }
            if !offload[token].isActive { taken.append((token, value)) }
        }
        for (token, value) in taken { offload[token].delegated = value }
        return nil
    }

    /// A client's delegated state as it has become; sent in the message that tells it that it runs again.
    func takeReturned(_ client: ClientID) -> [WireDelegatedState] {
        guard offload.owing.contains(client.slot) else { return [] }
        return offload.takeReturned(supervision.offloadedSockets(of: client), of: client.slot)
    }

    // MARK: Input

    /// A socket with a profile fired. Call `flush` afterwards.
    ///
    /// - Parameter ready: the event.
    /// - Returns: whether only noise has arrived, which changes nothing for the owner.
    func offloadedSocketFired(_ token: SocketToken, _ ready: Ready?) -> Bool {
        // An owner that has been thawed may read its sockets already.
        if let (owner, allowance) = ask({ $0.inspectionTerms(token, at: now) }),
            unsafe !earlyWaker.hasThawed(owner.slot), let inspection = inspect(token, ready, allowance)
        {
            supervision.noteInspection(token, inspection, at: now, into: &buffer)
            return !inspection.wakesOwner
        }
        guard let descriptor = parked.descriptor(of: token) else { return true }
        parked.noteFired(token)
        let conditions = Conditions(Poll.now(descriptor))
        supervision.handle(.fired(token, conditions), at: now, into: &buffer)
        return false
    }

    /// Inspects a sleeper's socket, and handles the noise. nil: its profile is not in effect.
    private func inspect(_ token: SocketToken, _ ready: Ready?, _ allowance: Int) -> InspectionResult? {
        guard let descriptor = parked.descriptor(of: token), offload.contains(token),
            let inspection = offload[token].inspect(
                token, descriptor, ready, allowance: allowance, with: &engine, journal)
        else { return nil }
        if inspection.wakesOwner { parked.noteFired(token) }
        return inspection
    }

    // MARK: Pings

    func sendPing(_ token: SocketToken, again: Bool) {
        guard offload.contains(token), offload[token].isActive,
            let descriptor = parked.descriptor(of: token)
        else { return }
        let former = offload[token].profile
        let isDelegated = former.isDelegated
        if isDelegated { journal?.invalidateDelegated(token) }
        defer { if isDelegated { storeDelegated(token) } }
        let random = again ? offload[token].pingRandom : engine.nextRandom(for: former)
        let peer = offload[token].peer
        guard engine.makePing(&offload[token].profile, peer: peer, random: random, again: again) else {
            if !again { followUps.append(.pingOmitted(token)) }
            return
        }
        if !again, former.usesRandomNumbers {
            offload[token].pingRandom = random
            journal?.notePing(random, of: token)
        }
        guard !engine.sendPing(on: descriptor, former.transport, again: again) else { return }
        offload[token].profile = former
        followUps.append(.pingFailed(token))
    }

    func lookForAnswer(_ token: SocketToken) {
        if let terms = ask({ $0.inspectionTerms(token, at: now) }),
            let inspection = inspect(token, nil, terms.allowance)
        {
            followUps.append(.inspected(token, inspection))
        }
        followUps.append(.answerLookedFor(token))
    }

    private func storeDelegated(_ token: SocketToken) {
        journal?.storeDelegated(offload[token].profile.delegated, of: token)
    }
}
