/// XMPP's pings: white space between stanzas, XEP-0199, and requests for acknowledgement of XEP-0198.
///
/// | what | standard |
/// | --- | --- |
/// | white space between stanzas keeps the connection alive | RFC 6120 §4.6.1, §11.7 |
/// | attributes of a stanza: `to`, `from`, `id`, `type` | RFC 6120 §8.1 |
/// | every IQ request is answered once, with its `id` | RFC 6120 §8.2.3 |
/// | ping from the server, ping to the server | XEP-0199 §4.1, §4.2 |
/// | which pings to answer: presence must not leak | XEP-0199 §7 |
/// | `<r/>`, `<a h='…'/>`, what is counted | XEP-0198 §4 |
///
/// Sent: a space, which gets no answer, or a ping of XEP-0199. Answered: such pings of the server (no `from`,
/// or the settings' server; if they name none, the domain or the account of their address, RFC 6120
/// §8.1.2.1), not those of other entities, domains among them, because the server passes on their stanzas;
/// `<r/>`, if the owner has delegated its counters. Absorbed: white space, the result of our ping, or an
/// error in its place, which also shows that the path works.
///
/// With stream management both sides count stanzas, so that pings and their answers change the owner's
/// counters: without delegated counters only white space is handled, and delegated ones are returned as they
/// are then.
package struct XMPPProfile: ProtocolProfile {
    private let settings: XMPPSettings
    private var pingID: UInt64 = 0
    private var received: UInt32 = 0
    private var sent: UInt32 = 0
    private var hasCounters = false
    package private(set) var isAwaitingAnswer = false
    private var hasAsked = false

    init(_ settings: XMPPSettings) {
        self.settings = settings
    }

    var longestNoise: Int { 2_048 }
    /// The delegated state, as it is now.
    var delegated: DelegatedValues {
        hasCounters ? .stanzaCounters(received: received, sent: sent) : .nothing
    }

    var pinging: Pinging? {
        switch settings.ping {
        case .whiteSpace: Pinging(latest: settings.interval, answerWithin: nil)
        case .query where !mayCount: nil
        case .query: Pinging(latest: settings.interval, answerWithin: settings.answerWithin)
        }
    }

    /// Whether stanzas may be received and sent for the owner.
    private var mayCount: Bool { hasCounters || !settings.usesStreamManagement }

    mutating func begin(delegating delegated: DelegatedValues) {
        isAwaitingAnswer = false
        switch delegated {
        case .stanzaCounters(let received, let sent):
            (self.received, self.sent, hasCounters) = (received, sent, settings.usesStreamManagement)
        case .nothing, .idle:
            hasCounters = false
        }
    }

    // MARK: Inspecting

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: longestNoise)
        do {
            if try reader.peek(bytes).isXMLSpace { return whiteSpace(bytes) }
            try reader.expect("<", bytes, else: .message)
            switch try reader.next(bytes) {
            case UInt8(ascii: "i"):
                try reader.expect("q", bytes, else: .message)
                return try inspectQuery(&reader, bytes, &replies)
            case UInt8(ascii: "r"):
                try inspectRequest(&reader, bytes)
                replies.append("<a xmlns='urn:xmpp:sm:3' h='")
                replies.append(decimal: UInt64(received))
                replies.append("'/>")
                return .noise(length: reader.position, .ping)
            default:
                return .significant(.message)
            }
        } catch {
            return reader.verdict(of: error, over: .stream)
        }
    }

    /// The white space at the head, up to a limit: the rest is inspected next.
    private func whiteSpace(_ bytes: Span<UInt8>) -> Verdict {
        let end = min(bytes.count, longestNoise)
        var count = 1
        while count < end, bytes[count].isXMLSpace { count += 1 }
        return .noise(length: count, .filler)
    }

    private func inspectRequest(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        let element = try Element(attributesIn: &reader, bytes)
        guard let space = element.xmlns, bytes.equals(space.range, "urn:xmpp:sm:3"),
            element.hasOnlyNamespace
        else { throw .significant(.unusual) }
        try element.end("r", &reader, bytes)
        guard hasCounters else { throw .significant(.notDelegated) }
    }

    private mutating func inspectQuery(
        _ reader: inout Reader, _ bytes: Span<UInt8>, _ replies: inout [UInt8]
    ) throws(ParseStop) -> Verdict {
        let query = try Element(attributesIn: &reader, bytes)
        guard let type = query.type, let id = query.id, !id.range.isEmpty else {
            throw .significant(.malformed)
        }
        if let space = query.xmlns, !bytes.equals(space.range, "jabber:client") {
            throw .significant(.unusual)
        }
        if bytes.equals(type.range, "result") {
            try query.end("iq", &reader, bytes)
            try checkResult(id, bytes)
            received &+= 1
            defer { isAwaitingAnswer = false }
            return .noise(length: reader.position, isAwaitingAnswer ? .answer : .filler)
        }
        if bytes.equals(type.range, "error"), isOurs(id, bytes) {
            // An error that says that pings are unknown is an answer as well (XEP-0199 §4.2).
            try query.skipContent(endedBy: "iq", &reader, bytes)
            guard mayCount else { throw .significant(.notDelegated) }
            received &+= 1
            defer { isAwaitingAnswer = false }
            return .noise(length: reader.position, isAwaitingAnswer ? .answer : .filler)
        }
        guard bytes.equals(type.range, "get"), !query.isClosed else { throw .significant(.message) }
        try inspectPing(&reader, bytes)
        try query.end("iq", &reader, bytes)
        try checkAddresses(query, bytes)
        guard mayCount else { throw .significant(.notDelegated) }
        received &+= 1
        sent &+= 1
        writeResult(query, id, bytes, to: &replies)
        return .noise(length: reader.position, .ping)
    }

    private func checkResult(_ id: Element.Value, _ bytes: Span<UInt8>) throws(ParseStop) {
        guard isOurs(id, bytes) else { throw .significant(.unexpectedAnswer) }
        guard mayCount else { throw .significant(.notDelegated) }
    }

    private func isOurs(_ id: Element.Value, _ bytes: Span<UInt8>) -> Bool {
        hasAsked && bytes.isIdentifier(id.range, prefix: Self.idPrefix, number: pingID)
    }

    /// `<ping xmlns='urn:xmpp:ping'/>`.
    private func inspectPing(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        try reader.expect("<ping", bytes, else: .message)
        let ping = try Element(attributesIn: &reader, bytes)
        guard let space = ping.xmlns, bytes.equals(space.range, "urn:xmpp:ping"), ping.hasOnlyNamespace
        else { throw .significant(.unusual) }
        try ping.end("ping", &reader, bytes)
    }

    /// Only the server may know that we are here (XEP-0199 §7).
    private func checkAddresses(_ query: Element, _ bytes: Span<UInt8>) throws(ParseStop) {
        if let to = query.to, let address = settings.address, !bytes.equals(to.range, address) {
            throw .significant(.notForUs)
        }
        guard let from = query.from else { return }
        guard settings.speakers.contains(where: { bytes.equals(from.range, $0) }) else {
            throw .significant(.notForUs)
        }
    }

    // MARK: Writing

    private static let idPrefix = "nb-"

    /// Values are copied with their quotes, and so are as legal as they were.
    private func writeResult(
        _ query: Element, _ id: Element.Value, _ bytes: Span<UInt8>, to output: inout [UInt8]
    ) {
        output.append("<iq type='result'")
        write("id", id, bytes, to: &output)
        if let from = query.from { write("to", from, bytes, to: &output) }
        if let to = query.to { write("from", to, bytes, to: &output) }
        output.append("/>")
    }

    private func write(
        _ name: String, _ value: Element.Value, _ bytes: Span<UInt8>, to output: inout [UInt8]
    ) {
        output.append(" ")
        output.append(name)
        output.append("=")
        output.append(value.quote)
        output.append(bytes, value.range)
        output.append(value.quote)
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard !again else { return false }
        switch settings.ping {
        case .whiteSpace:
            output.append(" ")
        case .query:
            guard mayCount else { return false }
            pingID = profileContext.random64
            (isAwaitingAnswer, hasAsked) = (true, true)
            sent &+= 1
            output.append("<iq type='get' id='")
            output.append(Self.idPrefix)
            output.append(hex: pingID, digits: 16)
            if let server = settings.server {
                output.append("' to='")
                output.append(server)
            }
            output.append("'><ping xmlns='urn:xmpp:ping'/></iq>")
        }
        return true
    }
}

extension Element {
    fileprivate var hasOnlyNamespace: Bool {
        id == nil && type == nil && from == nil && to == nil && lang == nil
    }
}

package final class XMPPSettings: Sendable {
    package enum Ping: Sendable, Hashable, CaseIterable {
        /// A space: keeps translators from forgetting, but shows nothing about the server.
        case whiteSpace
        /// XEP-0199: is answered.
        case query
    }

    /// Neither RFC 6120 nor XEP-0199 gives a number.
    package static let interval = IntervalLimits(
        shortest: .seconds(30), standard: .minutes(5), longest: .translatedStream)

    package let ping: Ping
    package let interval: Duration
    package let answerWithin: Duration
    package let server: String?
    package let address: String?
    package let usesStreamManagement: Bool
    /// The values of `from` that count as the server.
    let speakers: [String]

    /// - Parameters:
    ///   - answerWithin: nil: 30 s.
    ///   - server: the server's domain, as it writes it. None: that of the address; without an address, only
    ///     pings without `from` are the server's.
    ///   - address: the owner's full address. None: whatever arrives is for the owner.
    ///   - usesStreamManagement: whether XEP-0198 is enabled on the stream; then the owner delegates its
    ///     counters each time it sleeps.
    package init(
        ping: Ping = .query, interval: Duration? = nil, answerWithin: Duration? = nil,
        server: String? = nil, address: String? = nil, usesStreamManagement: Bool = false
    ) throws(SettingsError) {
        try Self.check(server, "server")
        try Self.check(address, "address")
        self.ping = ping
        self.interval = try Self.interval.checked(interval)
        self.answerWithin = try .answerTime(answerWithin, standard: .seconds(30))
        self.server = server
        self.address = address
        self.usesStreamManagement = usesStreamManagement
        speakers = server.map { [$0] } ?? Self.account(address)
    }

    /// The values of `from` for an account: its domain, its bare address, and the full one.
    private static func account(_ address: String?) -> [String] {
        guard let address else { return [] }
        let bare = address.prefix { $0 != "/" }
        let domain = bare.split(separator: "@", omittingEmptySubsequences: false).last ?? bare
        return [String(domain), String(bare), address]
    }

    private static func check(_ text: String?, _ name: String) throws(SettingsError) {
        guard let text else { return }
        // RFC 6122 and 7622: at most 1,023 bytes for each of the three parts of an address.
        guard text.utf8.count <= 3_071 else { throw .tooLong(name, limit: 3_071) }
        let isLegal = text.utf8.allSatisfy { $0.isText && !"<>&'\"\t".utf8.contains($0) }
        guard isLegal, !text.isEmpty else { throw .illegalText(name) }
    }
}
