import Glibc
package import LinuxSystem
package import NightbellCore
package import NightbellProfiles

/// Handles noise on sockets of sleeping owners, and sends their pings: peeks, inspects with a profile,
/// answers, consumes. The core decides when, and what follows.
///
/// No reply is ever incomplete between two calls: it is sent at once and whole, or not at all. So a socket
/// can be handed back at any moment.
package struct OffloadEngine: ~Copyable {
    private var random = RandomNumbers()
    /// For peeking at input; reused. Longer than any noise.
    private var buffer: [UInt8] = []
    /// For output.
    private var output: [UInt8] = []

    private static let bufferLength = 16_384
    /// Replies must fit into a small send buffer.
    private static let mostReplies = 4_096

    package init() {}

    /// 0 for a profile that uses no random numbers.
    package mutating func nextRandom(for profile: Profile) -> UInt128 {
        profile.usesRandomNumbers ? random.next() : 0
    }

    /// No socket has a profile any more.
    package mutating func giveMemoryBack() {
        buffer = []
    }

    // MARK: Input

    /// Inspects the input of a socket, and handles the noise.
    ///
    /// - Parameters:
    ///   - peer: the other end, if the socket is connected and the peer has an address.
    ///   - isLocal: whether it `mayCarryDescriptors`. Data that comes with descriptors is for the owner.
    ///   - allowance: how many pieces of noise are handled at most.
    ///   - conditions: those of the socket. Conditions that arise later must lead to another inspection.
    ///   - mayHaveMark: whether urgent data, read or unread, may be among the stream's input.
    package mutating func inspect(
        _ descriptor: CInt, _ profile: inout Profile, peer: Endpoint?, isLocal: Bool, allowance: Int,
        _ conditions: Conditions, mayHaveMark: Bool = true
    ) -> InspectionResult {
        if buffer.isEmpty { buffer = [UInt8](repeating: 0, count: Self.bufferLength) }
        var inspection = InspectionResult()
        if conditions.contains(.error) || conditions.contains(.hangUp) {
            // Nothing is read: that would clear the error.
            inspection.rest = .significant(Self.withPath(conditions, profile.transport, descriptor))
        } else {
            switch profile.transport {
            case .stream:
                inspectStream(
                    descriptor, &profile, peer, isLocal: isLocal, mayHaveMark: mayHaveMark, allowance,
                    &inspection)
            case .datagram:
                let isEnded = conditions.contains(.peerClosed)
                inspectDatagrams(
                    descriptor, &profile, peer, isLocal: isLocal, isEnded: isEnded, allowance, &inspection)
            }
            switch inspection.rest {
            case .nothing, .partial:
                // The end follows the noise.
                if conditions.contains(.peerClosed) { inspection.rest = .significant(conditions) }
            case .significant(let found):
                inspection.rest = .significant(found.union(conditions.intersection(.peerClosed)))
            case .noise, .unanswerable:
                break
            }
        }
        inspection.isAwaitingAnswer = profile.isAwaitingAnswer
        return inspection
    }

    /// Adds whether a connection broke because nothing arrives any more.
    private static func withPath(
        _ conditions: Conditions, _ transport: Transport, _ descriptor: CInt
    ) -> Conditions {
        let isLost = transport == .stream && TCPState.wasGivenUp(descriptor)
        return isLost ? conditions.union(.pathLost) : conditions
    }

    private mutating func inspectStream(
        _ descriptor: CInt, _ profile: inout Profile, _ peer: Endpoint?, isLocal: Bool, mayHaveMark: Bool,
        _ allowance: Int, _ inspection: inout InspectionResult
    ) {
        var (allowance, mayHaveMark) = (allowance, mayHaveMark)
        var mostReplies = Self.mostReplies
        if mayHaveMark, SocketTraffic.isAtMark(descriptor) {
            return inspection.rest = .significant(.readable)
        }
        while true {
            switch SocketTraffic.peek(descriptor, into: &buffer, isLocal: isLocal) {
            case .nothing:
                return
            case .accompanied:
                return inspection.rest = .significant(.readable)
            case .end:
                return inspection.rest = .significant([.readable, .peerClosed])
            case .failed:
                return inspection.rest = .significant([.readable, .error])
            case .bytes(let count):
                let (former, formerAllowance) = (profile, allowance)
                var found = inspection
                let length = inspect(count, &profile, peer, mostReplies, &allowance, &found)
                guard reply(on: descriptor, &profile, former, &inspection) else {
                    // A small send buffer may take one reply after the other.
                    guard inspection.rest.isUnanswerable, mostReplies > 1 else { return }
                    (mostReplies, allowance, inspection.rest) = (1, formerAllowance, .nothing)
                    continue
                }
                inspection = found
                guard length > 0 else { return }
                guard SocketTraffic.consume(descriptor, length, using: &buffer) else {
                    // Another process that shares the socket reads it: its stream position is no longer
                    // known.
                    return inspection.rest = .significant(.readable)
                }
                FaultInjection.point("offload: after noise is taken")
                if !inspection.rest.isNothing { return }
                let isAll = length == count && count < buffer.count
                if isAll, !mayHaveMark { return }
                // The peek may have stopped before urgent data, and the kernel does not report again what
                // lies behind it. Urgent data may also have arrived since.
                if SocketTraffic.isAtMark(descriptor) { return inspection.rest = .significant(.readable) }
                if isAll { return }
                mayHaveMark = true
            }
        }
    }

    /// Inspects the peeked bytes from their beginning.
    ///
    /// - Parameter mostReplies: it stops once the replies have this many bytes.
    /// - Returns: how many of the bytes are noise. The replies are in `output`.
    private mutating func inspect(
        _ count: Int, _ profile: inout Profile, _ peer: Endpoint?, _ mostReplies: Int,
        _ allowance: inout Int, _ inspection: inout InspectionResult
    ) -> Int {
        var output: [UInt8] = []
        swap(&output, &self.output)
        defer { swap(&output, &self.output) }
        output.removeAll(keepingCapacity: true)
        var position = 0
        while position < count, output.count < mostReplies {
            guard allowance > 0 else {
                inspection.rest = .noise
                return position
            }
            let random = nextRandom(for: profile)
            let profileContext = ProfileContext(random: random, peer: peer)
            let verdict = profile.inspect(
                buffer.span.extracting(position..<count), profileContext, replies: &output)
            switch verdict {
            case .noise(let length, let noise):
                position += length
                allowance -= 1
                inspection.note(noise)
            case .needMore:
                inspection.rest = .partial
                return position
            case .significant:
                inspection.rest = .significant(.readable)
                return position
            }
        }
        return position
    }

    /// Sends the replies. False: they could not be sent, and nothing has changed.
    private func reply(
        on descriptor: CInt, _ profile: inout Profile, _ former: Profile, _ inspection: inout InspectionResult
    ) -> Bool {
        guard !output.isEmpty else { return true }
        FaultInjection.point("offload: before an answer")
        let sent = sendOutput(on: descriptor, isStream: true)
        FaultInjection.point("offload: after an answer")
        switch sent {
        case .all:
            return true
        case .nothing:
            inspection.rest = .unanswerable
        case .part:
            // The owner's next message must not follow half a reply.
            SocketTraffic.breakOff(descriptor)
            inspection.rest = .significant([.hangUp, .unanswerable])
        case .failed:
            inspection.rest = .significant([.readable, .error])
        }
        profile = former
        return false
    }

    private func sendOutput(on descriptor: CInt, isStream: Bool) -> SocketTraffic.Sent {
        let isCertain = !isStream || output.count <= 64
        guard isCertain || SocketTraffic.hasRoom(descriptor, for: output.count) else { return .nothing }
        return SocketTraffic.send(output, on: descriptor)
    }

    private mutating func inspectDatagrams(
        _ descriptor: CInt, _ profile: inout Profile, _ peer: Endpoint?, isLocal: Bool, isEnded: Bool,
        _ allowance: Int, _ inspection: inout InspectionResult
    ) {
        var allowance = allowance
        // An unconnected socket may have been addressed at any of its addresses, and answers from that one.
        var route = DatagramRoute(of: descriptor, namesDestinations: peer == nil && !isLocal)
        defer { route.restore() }
        while true {
            let peeked = SocketTraffic.peekDatagram(
                descriptor, into: &buffer, along: &route, isLocal: isLocal)
            switch peeked {
            case .nothing, .end:
                return
            case .bytes(0) where isEnded:
                // Behind the last datagram there is an empty one, again and again.
                return
            case .accompanied:
                return inspection.rest = .significant(.readable)
            case .failed:
                return inspection.rest = .significant([.readable, .error])
            case .bytes(let count):
                guard allowance > 0 else { return inspection.rest = .noise }
                guard count <= buffer.count else { return inspection.rest = .significant(.readable) }
                // It arrived before the socket was connected.
                let sender = Endpoint(route.sender)
                if let peer, peer != sender { return inspection.rest = .significant(.readable) }
                let former = profile
                guard let noise = inspectDatagram(count, &profile, sender) else {
                    return inspection.rest = .significant(.readable)
                }
                if !output.isEmpty {
                    switch isLocal ? SocketTraffic.send(output, on: descriptor) : route.answer(output) {
                    case .all:
                        break
                    case .part, .nothing, .failed:
                        profile = former
                        return inspection.rest = .unanswerable
                    }
                }
                allowance -= 1
                inspection.note(noise)
                guard SocketTraffic.consume(descriptor, count, using: &buffer) else {
                    return inspection.rest = .significant(.readable)
                }
            }
        }
    }

    /// nil: it is for the owner.
    private mutating func inspectDatagram(
        _ count: Int, _ profile: inout Profile, _ sender: Endpoint?
    ) -> Noise? {
        var output: [UInt8] = []
        swap(&output, &self.output)
        defer { swap(&output, &self.output) }
        output.removeAll(keepingCapacity: true)
        let random = nextRandom(for: profile)
        let profileContext = ProfileContext(random: random, peer: sender)
        let verdict = profile.inspect(buffer.span.extracting(0..<count), profileContext, replies: &output)
        switch verdict {
        case .noise(_, let noise): return noise
        case .significant, .needMore: return nil
        }
    }

    // MARK: Pings

    /// Makes a ping, or repeats the last one from its random number. False: there is none to be sent.
    package mutating func makePing(
        _ profile: inout Profile, peer: Endpoint?, random: UInt128, again: Bool
    ) -> Bool {
        output.removeAll(keepingCapacity: true)
        let profileContext = ProfileContext(random: random, peer: peer)
        return profile.ping(again: again, profileContext, into: &output)
    }

    /// Sends the ping that `makePing` has made. False: it could not be sent, and the profile must be restored
    /// to its former value.
    package func sendPing(on descriptor: CInt, _ transport: Transport, again: Bool) -> Bool {
        FaultInjection.point("offload: before a ping")
        let sent = sendOutput(on: descriptor, isStream: transport == .stream)
        FaultInjection.point("offload: after a ping")
        switch sent {
        case .all:
            return true
        case .part:
            SocketTraffic.breakOff(descriptor)
            return false
        case .nothing, .failed:
            // A repeated ping may get lost.
            return again
        }
    }

    /// A peer that cannot be reached without an address is sent no pings.
    package static func terms(of profile: Profile, _ descriptor: CInt) -> PingTerms? {
        guard let pinging = profile.pinging else { return nil }
        if profile.transport == .datagram, SocketAddress(peerOf: descriptor) == nil { return nil }
        return PingTerms(
            earliest: pinging.earliest, latest: pinging.latest, answerWithin: pinging.answerWithin,
            repeatAfter: pinging.repetition?.first ?? .zero, repetitions: pinging.repetition?.count ?? 0)
    }
}

extension TCPKeepAlive {
    /// From a profile's settings.
    package init(_ settings: TCPSettings) {
        self.init(
            isOn: true, idleSeconds: settings.idleSeconds, intervalSeconds: settings.intervalSeconds,
            probes: settings.probes,
            userTimeoutMilliseconds: Int32(clamping: settings.userTimeoutMilliseconds))
    }
}

extension InspectionResult {
    fileprivate mutating func note(_ noise: Noise) {
        switch noise {
        case .ping: answered += 1
        case .answer: confirmed += 1
        case .step, .filler: otherNoise += 1
        }
    }
}

/// Unpredictable numbers, fetched from the kernel in bulk: pings and masks are made of them.
package struct RandomNumbers: Sendable {
    private var pool: [UInt128] = []

    package init() {}

    package mutating func next() -> UInt128 {
        if pool.isEmpty { fill() }
        return pool.removeLast()
    }

    private mutating func fill() {
        // The most that one call returns.
        pool = [UInt128](repeating: 0, count: 256 / 16)
        let result = unsafe pool.withUnsafeMutableBytes { bytes in
            guard let base = bytes.baseAddress else { preconditionFailure("there is room for some") }
            return unsafe getentropy(base, bytes.count)
        }
        precondition(result == 0, "the kernel has random numbers")
    }
}

extension Endpoint {
    package init?(_ address: SocketAddress) {
        switch address.internet {
        case .v4(let address, let port): self.init(v4: address, port: port)
        case .v6(let high, let low, let port): self.init(v6: high, low, port: port)
        case nil: return nil
        }
    }
}

extension Conditions {
    package init(_ readiness: Readiness) {
        // The bits that both have are equal; testing them one by one shows in profiles.
        self.init(rawValue: readiness.rawValue & 0xF)
        if readiness.contains(.invalid) { insert(.error) }
    }
}
