package import NightbellCore

/// Messages that clients send by themselves, sensible or not.
extension World {
    mutating func speak(_ client: SimulatedClient) {
        let isFlood = client.behaviour == .malicious && random.once(in: 32)
        for _ in 0..<(isFlood ? 24 : 1) {
            if client.behaviour == .malicious, random.once(in: 2) {
                say(lie(client), client)
            } else {
                say(request(client), client)
            }
        }
    }

    mutating func request(_ client: SimulatedClient) -> ClientMessage {
        if client.isUnmodified { return requestForProgram(client) }
        switch random.below(17) {
        case 14: return .hibernate
        case 15, 16: return .saveState(byteCount: random.below(1_200))
        case 0, 1:
            return .handOver((0...random.below(3)).map { _ in offer() })
        case 2:
            return .release(random.pick(client.sockets)?.token ?? SocketToken(rawValue: random.next()))
        case 3, 4, 5, 6, 7: return .enterBackground
        case 8: return .enterForeground
        case 9: return .setKeepAliveTimeout(.milliseconds(1_000 + random.below(59_000)))
        case 10: return random.once(in: 2) ? .clearKeepAliveTimeout : .backgroundTimeRemaining
        case 11: return .beginBackgroundTask(name: "task")
        case 12: return .endBackgroundTask(random.pick(client.tasks) ?? 0)
        default: return .mediaActivity
        }
    }

    /// Whatever speaks for an unmodified program has no use for other requests.
    private mutating func requestForProgram(_ client: SimulatedClient) -> ClientMessage {
        switch random.below(8) {
        case 0:
            return .handOver(
                (0...random.below(3)).map { _ in offer() })
        case 1: return .release(random.pick(client.sockets)?.token ?? SocketToken(rawValue: random.next()))
        case 2, 3: return .enterForeground
        default: return .enterBackground
        }
    }

    /// Messages that no honest client sends.
    mutating func lie(_ client: SimulatedClient) -> ClientMessage {
        switch random.below(8) {
        case 0: .release(random.pick(clients)?.sockets.first?.token ?? SocketToken(rawValue: 0))
        case 1: .release(random.pick(formerTokens) ?? SocketToken(rawValue: random.next()))
        case 2: .wakeDone(wakeID: random.once(in: 2) ? .max : client.lastWakeID)
        case 3: .readyToSuspend(epoch: client.lastEpoch &+ UInt64(random.below(3)) &- 1, notIdle: [])
        case 4: .readyToSuspend(epoch: random.next(), notIdle: [SocketToken(rawValue: random.next())])
        case 5: .endBackgroundTask(UInt64(random.below(20)))
        case 6: .backgroundEntered
        default: .setKeepAliveTimeout(random.once(in: 2) ? .zero : .seconds(Int64.max / 2))
        }
    }

    private mutating func offer() -> SocketOffer {
        var offer = SocketOffer(tag: random.once(in: 8) ? .device : .voip)
        switch random.below(24) {
        case 0: offer.isPollable = false
        case 1: offer.isListening = true
        case 2: offer.hasPendingError = offer.tag == .voip
        case 3: offer.isConnected = false
        case 4...7: offer.isStream = false
        case 8: offer.profileRefusal = .invalidProfile
        default: break
        }
        offer.survives = random.once(in: 2)
        offer.isRouted = offer.tag == .voip && random.once(in: 2)
        if offer.tag == .voip, offer.profileRefusal == nil, random.once(in: 2) { offer.profile = 1 }
        return offer
    }

    mutating func registration() -> Event {
        let number = random.below(16)
        guard let identifier = ClientIdentifier("client.\(number)") else { return .timer }
        let user = random.once(in: 16) ? 7 : UserID(number % 3)
        var registration = Registration(
            identifier: identifier, user: user,
            modes: number == 11 ? [] : [.voip, .audio, .externalAccessory],
            wakeLimitPolicy: number % 5 == 0 ? .terminate : .linger)
        registration.isLaunchable = number % 4 != 3
        registration.exitsOnSuspend = number == 6
        registration.wantsNetworkChanges = number % 3 == 1
        registration.waitsForUnlock = number % 7 == 2
        if number == 4 { registration.keepAliveTimeout = .seconds(5) }
        if number % 5 == 3 { registration.modes.remove(.externalAccessory) }
        if number == 14 { registration.modes = [.audio, .bluetoothPeripheral] }
        if number == 13 {
            // Declared by a manifest, or not.
            registration.isLaunchable = random.once(in: 2)
            registration.modes = registration.isLaunchable ? .voip : []
            registration.wantsNetworkChanges = false
            registration.isUnmodified = true
        }
        return .registration(registration, nextKey())
    }

    /// Events with tokens and identifiers that name nothing, or nothing any more.
    package mutating func nonsense() -> Event {
        let raw = random.once(in: 2) ? random.next() : UInt64(random.below(40)) | 9 << 40
        let client = ClientID(rawValue: raw)
        let token = SocketToken(rawValue: raw)
        switch random.below(11) {
        case 9: return .ended(client, .failed)
        case 0: return .message(.release(token), from: client, nextKey())
        case 1: return .message(.enterBackground, from: client, nextKey())
        case 2: return .command(.wake, client, nextKey())
        case 3: return .fired(token, [.readable, .error])
        case 4: return .frozen(client, epoch: 1)
        case 5: return .notFrozenYet(client, epoch: 1)
        case 6: return .freezeFailed(client, epoch: 1)
        case 7: return .gone(client)
        case 8: return .foundRunning(client)
        default: return .timer
        }
    }
}
