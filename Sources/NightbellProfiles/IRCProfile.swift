/// IRC's PING and PONG.
///
/// | what | standard |
/// | --- | --- |
/// | lines, prefixes, parameters | RFC 1459 §2.3, RFC 2812 §2.3 |
/// | PING is answered by PONG | RFC 1459 §4.6.2, RFC 2812 §3.7.2 |
/// | PONG | RFC 1459 §4.6.3, RFC 2812 §3.7.3 |
/// | a second parameter names another server to forward to | RFC 2812 §3.7.2 |
/// | tags in front of a line; `time` changes nothing | IRCv3 message tags, server-time |
///
/// Sent: PING with a random token. Answered: the server's PING with one parameter, plainly or behind a prefix
/// or a `time` tag, by PONG with the same. Absorbed: the PONG that has our token. Numerics are never noise.
package struct IRCProfile: ProtocolProfile {
    private let settings: IRCSettings
    private var token: UInt64 = 0
    package private(set) var isAwaitingAnswer = false
    private var hasAsked = false

    init(_ settings: IRCSettings) {
        self.settings = settings
    }

    /// 512 bytes (RFC 1459 §2.3), and a tag of the time.
    var longestNoise: Int { 512 + 64 }
    var pinging: Pinging? { Pinging(latest: settings.interval, answerWithin: settings.answerWithin) }

    mutating func begin(delegating delegated: DelegatedValues) {
        isAwaitingAnswer = false
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: longestNoise)
        do {
            let line = try Line(&reader, bytes)
            switch line.command {
            case .ping:
                replies.append("PONG :")
                replies.append(bytes, line.last)
                replies.append("\r\n")
                return .noise(length: reader.position, .ping)
            case .pong:
                guard hasAsked, isToken(line.last, bytes) else { return .significant(.unexpectedAnswer) }
                defer { isAwaitingAnswer = false }
                return .noise(length: reader.position, isAwaitingAnswer ? .answer : .filler)
            }
        } catch {
            return reader.verdict(of: error, over: .stream)
        }
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard !again else { return false }
        token = profileContext.random64
        (isAwaitingAnswer, hasAsked) = (true, true)
        output.append("PING :")
        writeToken(to: &output)
        output.append("\r\n")
        return true
    }

    private static let tokenPrefix = "nb-"

    private func writeToken(to output: inout [UInt8]) {
        output.append(Self.tokenPrefix)
        output.append(hex: token, digits: 16)
    }

    private func isToken(_ range: Range<Int>, _ bytes: Span<UInt8>) -> Bool {
        bytes.isIdentifier(range, prefix: Self.tokenPrefix, number: token)
    }

    // MARK: Lines

    private enum Command { case ping, pong }

    /// A PING with one parameter or a PONG with one or two.
    private struct Line {
        let command: Command
        let last: Range<Int>

        init(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
            if try reader.skip(ifNext: UInt8(ascii: "@"), bytes) { try Self.skipTag(&reader, bytes) }
            if try reader.skip(ifNext: UInt8(ascii: ":"), bytes) { try Self.skipPrefix(&reader, bytes) }
            try reader.expect("P", bytes, else: .message)
            switch try reader.next(bytes) {
            case UInt8(ascii: "I"): command = .ping
            case UInt8(ascii: "O"): command = .pong
            default: throw .significant(.message)
            }
            try reader.expect("NG ", bytes, else: .message)
            var (parameter, isLast) = try Self.parameter(&reader, bytes)
            if !isLast {
                guard command == .pong else { throw .significant(.unusual) }
                (parameter, isLast) = try Self.parameter(&reader, bytes)
            }
            guard isLast else { throw .significant(.unusual) }
            try reader.expect("\n", bytes, else: .malformed)
            last = parameter
        }

        /// Steps over `time=…` and the space after it.
        private static func skipTag(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
            try reader.expect("time=", bytes, else: .unusual)
            let value = try reader.run(bytes) { $0.isToken || $0 == UInt8(ascii: ":") }
            guard value.count <= 58 else { throw .significant(.tooLong) }
            try reader.expect(" ", bytes, else: .unusual)
        }

        /// Steps over the name of a server and the space after it. A name with `!` or `@` is a user.
        private static func skipPrefix(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
            let name = try reader.run(bytes) { $0.isText && !$0.isSpaceOrTab }
            if bytes.contains(UInt8(ascii: "!"), in: name) || bytes.contains(UInt8(ascii: "@"), in: name) {
                throw .significant(.message)
            }
            guard !name.isEmpty else { throw .significant(.malformed) }
            try reader.expect(" ", bytes, else: .malformed)
        }

        /// One parameter, and the space or the CR after it; whether it was the CR.
        private static func parameter(
            _ reader: inout Reader, _ bytes: Span<UInt8>
        ) throws(ParseStop) -> (Range<Int>, isLast: Bool) {
            let isTrailing = try reader.skip(ifNext: UInt8(ascii: ":"), bytes)
            let text = try reader.run(bytes) { $0.isText && (isTrailing || $0 != UInt8(ascii: " ")) }
            if text.isEmpty, !isTrailing { throw .significant(.malformed) }
            // The answer has to fit into 512 bytes as well.
            guard text.count <= 500 else { throw .significant(.tooLong) }
            switch try reader.next(bytes) {
            case UInt8(ascii: "\r"): return (text, true)
            case UInt8(ascii: " "): return (text, false)
            default: throw .significant(.malformed)
            }
        }
    }
}

package final class IRCSettings: Sendable {
    /// By RFC 2812 §3.7.2 servers ping a silent client, at intervals of their own: commonly 90 to 120 s.
    package static let interval = IntervalLimits(
        shortest: .seconds(10), standard: .seconds(120), longest: .translatedStream)

    package let interval: Duration
    package let answerWithin: Duration

    /// - Parameter answerWithin: nil: 30 s.
    package init(interval: Duration? = nil, answerWithin: Duration? = nil) throws(SettingsError) {
        self.interval = try Self.interval.checked(interval)
        self.answerWithin = try .answerTime(answerWithin, standard: .seconds(30))
    }
}
