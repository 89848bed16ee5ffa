/// SIP's keep-alives: CRLF on streams, STUN on UDP, and the OPTIONS requests by which proxies and PBXes find
/// out whether a phone is still there.
///
/// | what | standard |
/// | --- | --- |
/// | empty lines before a message are ignored | RFC 3261 §7.5 |
/// | double CRLF is answered by a CRLF | RFC 5626 §3.5.1, §4.4.1 |
/// | 95 to 120 s on streams, 24 to 29 s on UDP, 80 to 100 % of what the registrar asks for | RFC 5626 §4.4 |
/// | the CRLF has to come within 10 s | RFC 5626 §4.4.1 |
/// | STUN on the same UDP flow, a changed address is a failure | RFC 5626 §3.5.2, §4.4.2, §8 |
/// | OPTIONS outside a dialog, its answer | RFC 3261 §11.2 |
/// | headers of the answer | RFC 3261 §8.2.6 |
/// | what else has to be checked first | RFC 3261 §8.2.1 to §8.2.3 |
/// | `received`, `rport`, where the answer goes | RFC 3261 §18.2.1, §18.2.2, RFC 3581 §4 |
/// | Content-Length is required on streams | RFC 3261 §18.3, §20.14 |
///
/// CRLFs on a stream, which all look the same, however they are cut:
///
/// | state | input | meaning |
/// | --- | --- | --- |
/// | our ping is not answered | CRLF | its answer |
/// | otherwise | CRLF CRLF | the peer's ping, answered by CRLF |
/// | otherwise | CRLF, then anything else | absorbed |
/// | otherwise | CRLF, then nothing | the beginning of a ping: for the owner if nothing follows in time |
///
/// If the peer's ping and its answer to ours cross, the three CRLFs are an answer and a ping, whatever their
/// order. A peer that sends single CRLFs wakes the owner once. From the next sleep on, and in a sleep that
/// begins while an answer may be in flight or read by the owner, each CRLF is absorbed by itself, and every
/// second one in a row is answered. On UDP, datagrams with only CRLFs, with no bytes, or with the four zero
/// bytes of Kamailio's and OpenSIPS's nathelper are absorbed without an answer.
package struct SIPProfile: ProtocolProfile {
    private let settings: SIPSettings
    private var exchange = STUNExchange()
    private let transport: Transport
    private var lineEnds: LineEnds = []

    /// The state of CRLF handling.
    private struct LineEnds: OptionSet {
        let rawValue: UInt8

        /// The next one answers our ping.
        static let awaited = LineEnds(rawValue: 1)
        /// One has arrived, and another may follow. If the owner wakes before that, the peer may send no
        /// pairs.
        static let single = LineEnds(rawValue: 2)
        /// Each one is absorbed by itself.
        static let byThemselves = LineEnds(rawValue: 4)
        /// The last absorbed CRLF was a single one that was neither an answer nor answered.
        static let odd = LineEnds(rawValue: 8)
    }

    init(_ settings: SIPSettings, over transport: Transport) {
        self.settings = settings
        self.transport = transport
    }

    var longestNoise: Int { OptionsRequest.longest }
    var isAwaitingAnswer: Bool { lineEnds.contains(.awaited) || exchange.isAwaitingAnswer }

    var pinging: Pinging? {
        guard settings.sendsPings else { return nil }
        return switch transport {
        case .stream:
            Pinging(latest: settings.streamInterval, answerWithin: .seconds(10))
        case .datagram:
            Pinging(
                latest: settings.datagramInterval, answerWithin: STUNExchange.answerWithin,
                repetition: STUNExchange.repetition)
        }
    }

    mutating func begin(delegating delegated: DelegatedValues) {
        let areByThemselves = !lineEnds.isDisjoint(with: [.single, .awaited])
        lineEnds.formIntersection(.single)
        if areByThemselves { lineEnds.insert(.byThemselves) }
        exchange.begin()
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard settings.sendsPings else { return false }
        switch transport {
        case .stream:
            guard !again else { return false }
            output.append("\r\n\r\n")
            lineEnds.remove(.odd)
            lineEnds.insert(.awaited)
            return true
        case .datagram:
            return exchange.request(
                again: again, profileContext.random, withFingerprint: false, into: &output)
        }
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        switch transport {
        case .stream: inspectStream(bytes, profileContext, &replies)
        case .datagram: inspectDatagram(bytes, profileContext, &replies)
        }
    }

    // MARK: Streams

    private mutating func inspectStream(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, _ replies: inout [UInt8]
    ) -> Verdict {
        guard bytes[0] == UInt8(ascii: "\r") else { return inspectOptions(bytes, profileContext, &replies) }
        guard bytes.count > 1 else {
            return .needMore(limit: lineEnds.isDisjoint(with: [.awaited, .byThemselves]) ? 4 : 2)
        }
        guard bytes[1] == UInt8(ascii: "\n") else { return .significant(.malformed) }
        if lineEnds.remove(.awaited) != nil { return .noise(length: 2, .answer) }
        return lineEnds.contains(.byThemselves) ? inspectLineEnd(&replies) : inspectLineEnds(bytes, &replies)
    }

    private mutating func inspectLineEnd(_ replies: inout [UInt8]) -> Verdict {
        lineEnds.formSymmetricDifference(.odd)
        if lineEnds.contains(.odd) { return .noise(length: 2, .filler) }
        replies.append("\r\n")
        return .noise(length: 2, .ping)
    }

    /// The first CRLF has arrived.
    private mutating func inspectLineEnds(_ bytes: Span<UInt8>, _ replies: inout [UInt8]) -> Verdict {
        let mayFollow = bytes.count < 3 || bytes[2] == UInt8(ascii: "\r")
        if mayFollow, bytes.count < 4 {
            lineEnds.insert(.single)
            return .needMore(limit: 4)
        }
        lineEnds.remove(.single)
        guard mayFollow, bytes[3] == UInt8(ascii: "\n") else { return .noise(length: 2, .filler) }
        replies.append("\r\n")
        return .noise(length: 4, .ping)
    }

    private mutating func inspectOptions(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, _ replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: OptionsRequest.longest)
        do {
            let request = try OptionsRequest(&reader, bytes, over: transport, users: settings.users)
            let via = try Via(bytes, request.topVia, over: transport)
            let amendment = try via.amendment(
                for: profileContext.peer, bytes, over: transport, scratch: &replies)
            guard transport == .stream || request.length == bytes.count else {
                return .significant(.unusual)
            }
            lineEnds.remove(.odd)
            write(request, amendment, bytes, to: &replies)
            return .noise(length: request.length, .ping)
        } catch {
            return reader.verdict(of: error, over: transport)
        }
    }

    // MARK: Datagrams

    private mutating func inspectDatagram(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, _ replies: inout [UInt8]
    ) -> Verdict {
        if isFiller(bytes) { return .noise(length: bytes.count, .filler) }
        // No SIP message begins with a byte of 0 or 1, and every STUN message of ours does (RFC 5626 §8).
        guard bytes[0] < 2 else { return inspectOptions(bytes, profileContext, &replies) }
        var reader = Reader(bytes, limit: STUNMessage.longest)
        do {
            let message = try STUNMessage(&reader, bytes)
            guard message.length == bytes.count else { return .significant(.malformed) }
            switch message.kind {
            case .success, .error: return try exchange.inspect(message)
            case .request, .indication: return .significant(.message)
            }
        } catch {
            return reader.verdict(of: error, over: .datagram)
        }
    }

    private func isFiller(_ bytes: Span<UInt8>) -> Bool {
        guard bytes.count <= 4 else { return false }
        return bytes.isEmpty || bytes.equals(0..<bytes.count, "\r\n")
            || bytes.equals(0..<bytes.count, "\r\n\r\n")
            || bytes.equals(0..<bytes.count, "\0\0\0\0")
    }

    // MARK: The answer

    /// RFC 3261 §8.2.6.2: Via, From, To, Call-ID and CSeq as they came; a tag for To.
    private func write(
        _ request: OptionsRequest, _ amendment: Via.Amendment, _ bytes: Span<UInt8>, to output: inout [UInt8]
    ) {
        output.append("SIP/2.0 200 OK\r\n")
        writeVias(request, amendment, bytes, to: &output)
        output.append("From: ")
        output.append(bytes, request.from)
        output.append("\r\nTo: ")
        output.append(bytes, request.to)
        output.append(";tag=")
        output.append(hex: tag(for: request, bytes), digits: 16)
        output.append("\r\nCall-ID: ")
        output.append(bytes, request.callID)
        output.append("\r\nCSeq: ")
        output.append(bytes, request.sequence)
        output.append("\r\n")
        output.append(contentsOf: settings.headers)
        output.append("Content-Length: 0\r\n\r\n")
    }

    /// All of them in their order, the first one amended.
    private func writeVias(
        _ request: OptionsRequest, _ amendment: Via.Amendment, _ bytes: Span<UInt8>, to output: inout [UInt8]
    ) {
        var line = request.headers.lowerBound
        while line < request.headers.upperBound {
            // These lines were parsed before, so their errors need no handling.
            guard let header = Header(bytes, at: line, end: request.headers.upperBound) else { return }
            line = header.next
            guard header.name == .via else { continue }
            output.append("Via: ")
            if header.value == request.topVia {
                amendment.write(header.value, bytes, to: &output)
            } else {
                output.append(bytes, header.value)
            }
            output.append("\r\n")
        }
    }

    /// The same tag for every repetition of a request, without storing any (RFC 3261 §8.2.7), for the
    /// lifetime of the key, that is, of a worker. Not predictable by others (§19.3).
    private func tag(for request: OptionsRequest, _ bytes: Span<UInt8>) -> UInt64 {
        var hash = SipHash(key: settings.tagKey)
        hash.add(bytes, request.topVia)
        hash.add(bytes, request.from)
        hash.add(bytes, request.callID)
        hash.add(bytes, request.sequence)
        return hash.finish()
    }
}
