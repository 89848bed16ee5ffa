/// STUN binding requests or indications that keep a path through address translators open.
///
/// | what | standard |
/// | --- | --- |
/// | header, magic cookie, telling STUN from other protocols | RFC 8489 §5 |
/// | longest message when the path is not known | RFC 8489 §6.1 |
/// | repetitions and the time for an answer | RFC 8489 §6.2.1, §6.2.2 |
/// | checks of responses, unknown attributes | RFC 8489 §6.3, §6.3.3, §6.3.4 |
/// | XOR-MAPPED-ADDRESS, FINGERPRINT | RFC 8489 §14.2, §14.7 |
/// | indications as keep-alives, not more than one in 15 s | RFC 8445 §11 |
/// | a changed address is a failure of the flow | RFC 5626 §4.4.2 |
///
/// Sent: a request, or an indication, which gets no answer. Absorbed: the success response to the latest
/// request, and indications. A response with a changed mapped address wakes the owner, and so do errors,
/// responses to requests that were not sent from here, and requests, which are for the owner to answer.
package struct STUNProfile: ProtocolProfile {
    private let settings: STUNSettings
    private var exchange = STUNExchange()
    // Last, so that it needs no room of its own.
    private let transport: Transport

    init(_ settings: STUNSettings, over transport: Transport) {
        self.settings = settings
        self.transport = transport
    }

    var longestNoise: Int { STUNMessage.longest }
    var isAwaitingAnswer: Bool { exchange.isAwaitingAnswer }

    var pinging: Pinging? {
        switch (settings.ping, transport) {
        case (.indication, _): Pinging(latest: settings.interval, answerWithin: nil)
        case (.request, .datagram):
            Pinging(
                latest: settings.interval, answerWithin: STUNExchange.answerWithin,
                repetition: STUNExchange.repetition)
        case (.request, .stream):
            Pinging(latest: settings.interval, answerWithin: STUNExchange.answerWithinOnStream)
        }
    }

    mutating func begin(delegating delegated: DelegatedValues) {
        exchange.begin()
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: STUNMessage.longest)
        do {
            let message = try STUNMessage(&reader, bytes)
            if transport == .datagram, message.length != bytes.count { return .significant(.malformed) }
            switch message.kind {
            case .success, .error: return try exchange.inspect(message)
            case .indication: return .noise(length: message.length, .filler)
            case .request: return .significant(.message)
            }
        } catch {
            return reader.verdict(of: error, over: transport)
        }
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        switch settings.ping {
        case .request:
            return exchange.request(
                again: again, profileContext.random, withFingerprint: settings.withFingerprint, into: &output)
        case .indication:
            guard !again else { return false }
            let transaction = STUNMessage.Transaction(
                low: profileContext.random64, high: UInt32(truncatingIfNeeded: profileContext.random >> 64))
            STUNMessage.write(
                .indication, transaction, withFingerprint: settings.withFingerprint, to: &output)
            return true
        }
    }
}

package final class STUNSettings: Sendable {
    package enum Ping: Sendable, Hashable, CaseIterable {
        /// Is answered, and so tells that the path works in both directions.
        case request
        /// Is not answered.
        case indication
    }

    /// Not more often than RFC 8445 §11 allows; 29 s as RFC 5626 §4.4 has it for UDP; not more rarely than
    /// translators must bear.
    package static let interval = IntervalLimits(
        shortest: .seconds(15), standard: .seconds(29), longest: .translatedDatagrams)

    package let ping: Ping
    package let interval: Duration
    package let withFingerprint: Bool

    /// - Parameter withFingerprint: whether pings carry the attribute that tells STUN from other protocols on
    ///   the same port (RFC 8489 §7); media servers ask for it.
    package init(
        ping: Ping = .request, interval: Duration? = nil, withFingerprint: Bool = false
    ) throws(SettingsError) {
        self.ping = ping
        self.interval = try Self.interval.checked(interval)
        self.withFingerprint = withFingerprint
    }
}
