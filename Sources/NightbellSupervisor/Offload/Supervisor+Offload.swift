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
        offload[token].peer = SocketAddress(peerOf: descriptor).flatMap { Endpoint($0) }
        offload[token].isLocal = SocketTraffic.mayCarryDescriptors(descriptor)
        if !isTakenUp {
            offload[token].profile.begin(delegating: offload[token].delegated)
            offload[token].isActive = true
        }
        if case .tcp(let settings) = offload[token].settings { setKeepAlive(token, settings, descriptor) }
        if offload[token].profile.delegated != .nothing { storeDelegated(token) }
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
    /// - Returns: an error if any of it is invalid; none of it is taken then. An owner with a profile that did not
    ///   get the state it needs would sleep through traffic that should wake it.
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

    /// A socket with a profile fired.
    func offloadedSocketFired(_ token: SocketToken) {
        guard let owner = ask({ $0.isOffloading(token) ? $0.owner(of: token) : nil }),
            offload.contains(token), offload[token].isActive,
            // It may read its sockets already.
            unsafe !earlyWaker.hasThawed(owner.slot)
        else {
            guard let descriptor = parked.descriptor(of: token) else { return }
            parked.noteFired(token)
            return feed(.fired(token, Conditions(Poll.now(descriptor))))
        }
        if let inspection = inspect(token) { feed(.inspected(token, inspection)) }
    }

    /// Inspects a sleeper's socket, and handles the noise.
    private func inspect(_ token: SocketToken) -> InspectionResult? {
        guard let descriptor = parked.descriptor(of: token) else { return nil }
        let isDelegated = offload[token].profile.delegated != .nothing
        if isDelegated { journal?.invalidateDelegated(token) }
        let allowance = ask { $0.noiseAllowance(token, at: now) }
        let (peer, isLocal) = (offload[token].peer, offload[token].isLocal)
        let inspection = engine.inspect(
            descriptor, &offload[token].profile, peer: peer, isLocal: isLocal, allowance: allowance)
        switch inspection.rest {
        case .nothing, .partial: break
        case .significant, .noise, .unanswerable: parked.noteFired(token)
        }
        if isDelegated { storeDelegated(token) }
        return inspection
    }

    // MARK: Pings

    func sendPing(_ token: SocketToken, again: Bool) {
        guard offload.contains(token), offload[token].isActive,
            let descriptor = parked.descriptor(of: token)
        else { return }
        let former = offload[token].profile
        let isDelegated = former.delegated != .nothing
        if isDelegated { journal?.invalidateDelegated(token) }
        defer { if isDelegated { storeDelegated(token) } }
        let random = again ? offload[token].pingRandom : engine.nextRandom()
        let peer = offload[token].peer
        guard engine.makePing(&offload[token].profile, peer: peer, random: random, again: again) else {
            if !again { followUps.append(.pingOmitted(token)) }
            return
        }
        if !again {
            offload[token].pingRandom = random
            journal?.notePing(random, of: token)
        }
        guard !engine.sendPing(on: descriptor, former.transport, again: again) else { return }
        offload[token].profile = former
        followUps.append(.pingFailed(token))
    }

    func lookForAnswer(_ token: SocketToken) {
        if ask({ $0.isOffloading(token) }), offload.contains(token), let inspection = inspect(token) {
            followUps.append(.inspected(token, inspection))
        }
        followUps.append(.answerLookedFor(token))
    }

    private func storeDelegated(_ token: SocketToken) {
        journal?.storeDelegated(offload[token].profile.delegated, of: token)
    }
}
