/// `bytes` and `line`: keep-alives of protocols that Nightbell does not know, given by their exact bytes. No
/// standard; a pattern must be such that no other message begins like it.
///
/// Sent: a fixed payload, if there is one, with an exact answer, if there is one. Answered: exact patterns,
/// each by its own reply, or by none. Everything else is significant, from the first byte that fits no
/// pattern.
package struct PatternProfile: ProtocolProfile {
    private let settings: PatternSettings
    private let transport: Transport
    package private(set) var isAwaitingAnswer = false
    /// The owner was woken while an answer was awaited: it may have read it, or it is still to come.
    private var mayBeLate = false

    init(_ settings: PatternSettings, over transport: Transport) {
        self.settings = settings
        self.transport = transport
    }

    var longestNoise: Int { settings.longest }

    var pinging: Pinging? { settings.pinging }

    mutating func begin(delegating delegated: DelegatedValues) {
        if isAwaitingAnswer { mayBeLate = true }
        isAwaitingAnswer = false
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var mayFollow = false
        if let answer = settings.ping?.answer {
            switch match(answer, bytes) {
            case .whole:
                guard isAwaitingAnswer || mayBeLate else { return .significant(.unexpectedAnswer) }
                // The first of two is the answer, whichever ping it is to.
                if !isAwaitingAnswer { mayBeLate = false }
                defer { isAwaitingAnswer = false }
                return .noise(length: answer.count, isAwaitingAnswer ? .answer : .filler)
            case .beginning: mayFollow = true
            case .none: break
            }
        }
        for exchange in settings.exchanges {
            switch match(exchange.pattern, bytes) {
            case .whole:
                replies.append(contentsOf: exchange.reply)
                return .noise(length: exchange.pattern.count, exchange.reply.isEmpty ? .filler : .ping)
            case .beginning: mayFollow = true
            case .none: break
            }
        }
        return mayFollow ? .needMore(limit: settings.longest) : .significant(.message)
    }

    private enum Match { case whole, beginning, none }

    private func match(_ pattern: [UInt8], _ bytes: Span<UInt8>) -> Match {
        if transport == .datagram, bytes.count != pattern.count { return .none }
        let count = min(pattern.count, bytes.count)
        for index in 0..<count where pattern[index] != bytes[index] { return .none }
        return count == pattern.count ? .whole : .beginning
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard let ping = settings.ping, !again else { return false }
        output.append(contentsOf: ping.payload)
        isAwaitingAnswer = ping.answer != nil
        return true
    }
}

package final class PatternSettings: Sendable {
    /// A message of the peer and the reply.
    package struct Exchange: Sendable, Hashable {
        package var pattern: [UInt8]
        /// Empty: the pattern is absorbed without an answer.
        package var reply: [UInt8]

        package init(_ pattern: [UInt8], reply: [UInt8] = []) {
            self.pattern = pattern
            self.reply = reply
        }
    }

    /// A ping to the peer.
    package struct Ping: Sendable, Hashable {
        package var payload: [UInt8]
        /// The peer's answer. An answer without a ping from here is significant; one that may be late,
        /// because the owner was woken while it was awaited, is absorbed, once.
        package var answer: [UInt8]?
        /// nil: the standard.
        package var interval: Duration?
        /// nil: 10 s.
        package var answerWithin: Duration?

        package init(
            _ payload: [UInt8], answer: [UInt8]? = nil, interval: Duration? = nil,
            answerWithin: Duration? = nil
        ) {
            self.payload = payload
            self.answer = answer
            self.interval = interval
            self.answerWithin = answerWithin
        }
    }

    package static let interval = IntervalLimits(
        shortest: .seconds(1), standard: .seconds(60), longest: .translatedStream)
    package static let mostExchanges = 32
    package static let longestText = 4_096

    package let exchanges: [Exchange]
    package let ping: Ping?
    let pinging: Pinging?
    let longest: Int

    private init(_ exchanges: [Exchange], _ ping: Ping?) throws(SettingsError) {
        guard exchanges.count <= Self.mostExchanges else {
            throw .tooMany("exchanges", limit: Self.mostExchanges)
        }
        let patterns = exchanges.map(\.pattern) + [ping?.answer].compactMap(\.self)
        for text in patterns + [ping?.payload].compactMap(\.self) where text.isEmpty {
            throw .illegalText("pattern")
        }
        for text in patterns + exchanges.map(\.reply) + [ping?.payload ?? []]
        where text.count > Self.longestText {
            throw .tooLong("pattern", limit: Self.longestText)
        }
        for (index, pattern) in patterns.enumerated() {
            for (other, longer) in patterns.enumerated()
            where other != index && longer.starts(with: pattern) {
                throw .ambiguousPatterns
            }
        }
        pinging = try ping.map { ping throws(SettingsError) in
            let answerWithin = try Duration.answerTime(ping.answerWithin, standard: .seconds(10))
            return Pinging(
                latest: try Self.interval.checked(ping.interval),
                answerWithin: ping.answer == nil ? nil : answerWithin)
        }
        self.exchanges = exchanges
        self.ping = ping
        longest = patterns.map(\.count).max() ?? 0
    }

    /// The profile `bytes`: patterns of any bytes.
    package static func bytes(_ exchanges: [Exchange], ping: Ping? = nil) throws(SettingsError)
        -> PatternSettings
    {
        try PatternSettings(exchanges, ping)
    }
}
