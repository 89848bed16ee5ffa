/// WebSocket's ping and pong frames, between the frames of a message as well as between messages.
///
/// | what | standard |
/// | --- | --- |
/// | frame header, reserved bits, lengths | RFC 6455 §5.2 |
/// | clients mask, servers do not; masks cannot be predicted | RFC 6455 §5.1, §5.3, §10.3 |
/// | control frames: whole, at most 125 bytes, allowed inside a fragmented message | RFC 6455 §5.4, §5.5 |
/// | ping, pong with the same payload, unsolicited pongs | RFC 6455 §5.5.2, §5.5.3 |
/// | compression does not touch control frames | RFC 7692 §5 |
///
/// Sent: a ping with a payload of eight random bytes. Answered: pings. Absorbed: pongs, ours and, if the
/// settings allow it, any other. Close frames, frames with data, reserved bits, wrong masking, and invalid
/// lengths of control frames wake the owner.
///
/// The position in a fragmented message does not matter, because no frame with data is ever absorbed: the
/// owner is suspended between two frames, and every absorbed frame ends at such a point.
package struct WebSocketProfile: ProtocolProfile {
    private let settings: WebSocketSettings
    /// The payload of the latest ping.
    private var payload: UInt64 = 0
    package private(set) var isAwaitingAnswer = false

    init(_ settings: WebSocketSettings) {
        self.settings = settings
    }

    /// Two bytes of header, four of mask, 125 of payload.
    var longestNoise: Int { 131 }

    var pinging: Pinging? {
        Pinging(latest: settings.interval, answerWithin: settings.answerWithin)
    }

    mutating func begin(delegating delegated: DelegatedValues) {
        isAwaitingAnswer = false
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: longestNoise)
        do {
            let frame = try Frame(&reader, bytes, isMasked: settings.role == .server)
            switch frame.opcode {
            case .ping:
                write(.pong, bytes, frame, profileContext, to: &replies)
                return .noise(length: reader.position, .ping)
            case .pong:
                if isAwaitingAnswer, frame.payload.count == 8, frame.number(bytes) == payload {
                    isAwaitingAnswer = false
                    return .noise(length: reader.position, .answer)
                }
                guard settings.absorbsOtherPongs else { return .significant(.unexpectedAnswer) }
                return .noise(length: reader.position, .filler)
            }
        } catch {
            return reader.verdict(of: error, over: .stream)
        }
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard !again else { return false }
        payload = UInt64(truncatingIfNeeded: profileContext.random >> 64)
        isAwaitingAnswer = true
        let mask = writeHeader(.ping, length: 8, profileContext, to: &output)
        for index in 0..<8 {
            let byte = UInt8(truncatingIfNeeded: payload >> (56 - 8 * UInt64(index)))
            output.append(byte ^ mask.byte(index))
        }
        return true
    }

    // MARK: Frames

    private enum Opcode: UInt8 {
        case ping = 0x9
        case pong = 0xA
    }

    private struct Mask {
        var value: UInt32

        func byte(_ index: Int) -> UInt8 {
            UInt8(truncatingIfNeeded: value >> (24 - 8 * UInt32(index & 3)))
        }
    }

    /// A whole control frame.
    private struct Frame {
        let opcode: Opcode
        let mask: Mask
        let payload: Range<Int>

        init(_ reader: inout Reader, _ bytes: Span<UInt8>, isMasked: Bool) throws(ParseStop) {
            let first = try reader.next(bytes)
            // Final, no reserved bits, ping or pong; anything else is significant.
            guard first & 0xF0 == 0x80, let opcode = Opcode(rawValue: first & 0x0F) else {
                throw .significant(first & 0x70 == 0 ? .message : .unusual)
            }
            let second = try reader.next(bytes)
            // 126 and 127 announce longer lengths, which a control frame must not have, whatever they say.
            guard second & 0x7F <= 125, (second & 0x80 != 0) == isMasked else {
                throw .significant(.malformed)
            }
            self.opcode = opcode
            let start = reader.position
            if isMasked { try reader.skip(4) }
            mask = Mask(value: isMasked ? UInt32(bytes.bigEndian(at: start, bytes: 4)) : 0)
            let length = Int(second & 0x7F)
            payload = reader.position..<(reader.position + length)
            try reader.skip(length)
        }

        func byte(_ index: Int, _ bytes: Span<UInt8>) -> UInt8 {
            bytes[payload.lowerBound + index] ^ mask.byte(index)
        }

        /// A payload of eight bytes as a number.
        func number(_ bytes: Span<UInt8>) -> UInt64 {
            var value: UInt64 = 0
            for index in 0..<8 { value = value << 8 | UInt64(byte(index, bytes)) }
            return value
        }
    }

    private func write(
        _ opcode: Opcode, _ bytes: Span<UInt8>, _ frame: Frame, _ profileContext: ProfileContext,
        to output: inout [UInt8]
    ) {
        let mask = writeHeader(opcode, length: frame.payload.count, profileContext, to: &output)
        for index in 0..<frame.payload.count {
            output.append(frame.byte(index, bytes) ^ mask.byte(index))
        }
    }

    /// Writes all but the payload; the mask that the payload has to have, which is none for a server.
    private func writeHeader(
        _ opcode: Opcode, length: Int, _ profileContext: ProfileContext, to output: inout [UInt8]
    ) -> Mask {
        output.append(0x80 | opcode.rawValue)
        guard settings.role == .client else {
            output.append(UInt8(length))
            return Mask(value: 0)
        }
        output.append(0x80 | UInt8(length))
        output.append(bigEndian: UInt64(profileContext.random32), bytes: 4)
        return Mask(value: profileContext.random32)
    }
}

package final class WebSocketSettings: Sendable {
    package enum Role: Sendable, Hashable, CaseIterable { case client, server }

    /// RFC 6455 §5.5.2 leaves it open. Proxies often close a connection that is idle for a minute.
    package static let interval = IntervalLimits(
        shortest: .seconds(5), standard: .seconds(45), longest: .translatedStream)

    package let role: Role
    package let interval: Duration
    package let answerWithin: Duration
    package let absorbsOtherPongs: Bool

    /// - Parameters:
    ///   - answerWithin: nil: 10 s; "as soon as is practical", says RFC 6455 §5.5.2.
    ///   - absorbsOtherPongs: whether pongs that answer no ping sent from here are noise. RFC 6455 §5.5.3 has
    ///     them as heartbeats that want no answer. An owner that falls asleep while a ping of its own is
    ///     under way does not hear of the answer.
    package init(
        role: Role = .client, interval: Duration? = nil, answerWithin: Duration? = nil,
        absorbsOtherPongs: Bool = true
    ) throws(SettingsError) {
        self.role = role
        self.interval = try Self.interval.checked(interval)
        self.answerWithin = try .answerTime(answerWithin, standard: .seconds(10))
        self.absorbsOtherPongs = absorbsOtherPongs
    }
}
