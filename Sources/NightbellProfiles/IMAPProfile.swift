/// IMAP's IDLE: absorbs a server's messages that keep an idle client from timing out, and renews IDLE in
/// time.
///
/// | what | standard |
/// | --- | --- |
/// | IDLE, its continuation request, DONE | RFC 2177 §3, RFC 9051 §6.3.13 |
/// | renew it at least every 29 minutes | RFC 2177 §3, RFC 9051 §6.3.13 |
/// | a server waits at least 30 minutes before it logs a client out | RFC 9051 §5.4 |
/// | untagged OK, response codes | RFC 9051 §7.1, §7.1.1 |
/// | continuation request | RFC 9051 §7.6 |
///
/// Renewal is one ping in two steps: `DONE`; the tagged OK of the command that it ends is answered by `IDLE`
/// with a new tag; the server's `+` is the answer to the whole. The owner has to delegate its tag, and gets
/// back the tag of the command that is under way then, with the phase of the renewal.
///
/// Absorbed: untagged OKs with a text of the settings' list and without a response code. Everything else is
/// significant.
package struct IMAPProfile: ProtocolProfile {
    private let settings: IMAPSettings
    private var idle: Idle?
    private var renewals: UInt32 = 0

    init(_ settings: IMAPSettings) {
        self.settings = settings
    }

    var longestNoise: Int { 512 }
    var isAwaitingAnswer: Bool { idle.map { $0.phase != .idling } ?? false }
    /// The delegated state, as it is now.
    var delegated: DelegatedValues { idle.map(DelegatedValues.idle) ?? .nothing }

    var pinging: Pinging? {
        guard idle != nil else { return nil }
        return Pinging(latest: settings.interval, answerWithin: settings.answerWithin)
    }

    mutating func begin(delegating delegated: DelegatedValues) {
        guard case .idle(let idle) = delegated else { return idle = nil }
        self.idle = idle
        // A later profile on this connection, even in a new process, must not reuse these tags.
        if let number = settings.number(of: idle.tag) { renewals = max(renewals, number) }
    }

    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        var reader = Reader(bytes, limit: longestNoise)
        do {
            switch (try reader.peek(bytes), idle?.phase) {
            case (UInt8(ascii: "*"), _):
                try readFiller(&reader, bytes)
                return .noise(length: reader.position, .filler)
            case (UInt8(ascii: "+"), .starting):
                reader.advance()
                try readContinuation(&reader, bytes)
                idle?.phase = .idling
                return .noise(length: reader.position, .answer)
            case (_, .ending):
                try readCompletion(&reader, bytes)
                startAgain(&replies)
                return .noise(length: reader.position, .step)
            case (_, .idling), (_, .starting), (_, nil):
                return .significant(.message)
            }
        } catch {
            return reader.verdict(of: error, over: .stream)
        }
    }

    /// `* OK`, a text of the list.
    private func readFiller(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        try reader.expect("* ", bytes, else: .message)
        for letter in "ok ".utf8 {
            guard try reader.next(bytes).lowercased == letter else { throw .significant(.message) }
        }
        let text = try reader.line(bytes)
        guard settings.fillers.contains(where: { bytes.equalsIgnoringCase(text, $0) }) else {
            throw .significant(.message)
        }
    }

    private func readContinuation(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        let text = try reader.line(bytes)
        // RFC 9051 §7.6 wants a space; some servers send none when there is no text.
        guard text.isEmpty || bytes[text.lowerBound] == UInt8(ascii: " ") else {
            throw .significant(.malformed)
        }
    }

    /// The tagged OK of the command that DONE has ended.
    private func readCompletion(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        guard let tag = idle?.tag else { throw .significant(.message) }
        for index in 0..<tag.count {
            guard try reader.next(bytes) == tag[index] else { throw .significant(.message) }
        }
        try reader.expect(" ", bytes, else: .message)
        let rest = try reader.line(bytes)
        let status = rest.lowerBound..<min(rest.lowerBound + 3, rest.upperBound)
        guard bytes.equalsIgnoringCase(status, "ok ") else { throw .significant(.refused) }
        if rest.count > 3, bytes[rest.lowerBound + 3] == UInt8(ascii: "[") { throw .significant(.message) }
    }

    private mutating func startAgain(_ replies: inout [UInt8]) {
        renewals &+= 1
        let start = replies.count
        replies.append(contentsOf: settings.tagPrefix.utf8)
        replies.append(decimal: UInt64(renewals))
        if let tag = Idle.Tag(replies.span, start..<replies.count) { idle = Idle(tag: tag, phase: .starting) }
        replies.append(" IDLE\r\n")
    }

    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool {
        guard idle?.phase == .idling, !again else { return false }
        idle?.phase = .ending
        output.append("DONE\r\n")
        return true
    }
}

/// An IDLE command that is under way.
package struct Idle: Sendable, Equatable {
    package enum Phase: UInt8, Sendable, CaseIterable {
        /// The server has sent `+`.
        case idling
        /// DONE was sent; the tagged response has not arrived yet.
        case ending
        /// IDLE was sent again; the server has not sent `+` yet.
        case starting
    }

    /// A tag of up to 15 characters, in place.
    package struct Tag: Sendable, Equatable {
        package static let longest = 15
        private var characters: UInt128 = 0
        var count: Int { Int(UInt8(truncatingIfNeeded: characters >> 120)) }

        /// Nil, unless all of its characters are allowed in a tag (RFC 9051 §9).
        package init?(_ text: String) {
            self.init(Array(text.utf8).span, 0..<text.utf8.count)
        }

        init?(_ bytes: Span<UInt8>, _ range: Range<Int>) {
            guard (1...Self.longest).contains(range.count) else { return nil }
            for (offset, index) in range.enumerated() {
                guard Self.isLegal(bytes[index]) else { return nil }
                characters |= UInt128(bytes[index]) << (8 * UInt128(offset))
            }
            characters |= UInt128(range.count) << 120
        }

        package var text: String { String(decoding: (0..<count).map { self[$0] }, as: UTF8.self) }

        static func isLegal(_ byte: UInt8) -> Bool {
            byte.isText && byte < 0x80 && !"(){ %*\"\\]+\t".utf8.contains(byte)
        }

        subscript(index: Int) -> UInt8 {
            UInt8(truncatingIfNeeded: characters >> (8 * UInt128(index)))
        }
    }

    package var tag: Tag
    package var phase: Phase

    package init(tag: Tag, phase: Phase = .idling) {
        self.tag = tag
        self.phase = phase
    }
}

extension Idle.Tag: CustomStringConvertible {
    package var description: String {
        String(decoding: (0..<count).map { self[$0] }, as: UTF8.self)
    }
}

extension IMAPSettings {
    /// The number of the renewal with this tag; nil, if it is not one of ours.
    fileprivate func number(of tag: Idle.Tag) -> UInt32? {
        let text = tag.text
        return text.hasPrefix(tagPrefix) ? UInt32(text.dropFirst(tagPrefix.utf8.count)) : nil
    }
}

package final class IMAPSettings: Sendable {
    /// 29 minutes at most (RFC 2177 §3). Address translators may want it much more often.
    package static let interval = IntervalLimits(
        shortest: .minutes(1), standard: .minutes(28), longest: .minutes(29))
    package static let longestTagPrefix = 5

    package let interval: Duration
    package let answerWithin: Duration
    /// In lower case.
    let fillers: [String]
    package let tagPrefix: String

    /// - Parameters:
    ///   - answerWithin: from DONE to `+`; nil: 30 s, no standard.
    ///   - fillers: the texts of untagged OKs that are noise, whatever their case; none: Dovecot's.
    ///   - tagPrefix: tags of renewals are this and a number; empty: `NB`. The owner must not use such tags
    ///     itself.
    package init(
        interval: Duration? = nil, answerWithin: Duration? = nil, fillers: [String] = [],
        tagPrefix: String = ""
    ) throws(SettingsError) {
        let fillers = fillers.isEmpty ? ["Still here"] : fillers
        let tagPrefix = tagPrefix.isEmpty ? "NB" : tagPrefix
        guard fillers.count <= 16 else { throw .tooMany("fillers", limit: 16) }
        for text in fillers {
            guard !text.isEmpty, text.utf8.allSatisfy({ $0.isText && $0 < 0x80 }) else {
                throw .illegalText("fillers")
            }
            guard text.utf8.count <= 256 else { throw .tooLong("fillers", limit: 256) }
        }
        guard tagPrefix.utf8.count <= Self.longestTagPrefix else {
            throw .tooLong("tagPrefix", limit: Self.longestTagPrefix)
        }
        guard Idle.Tag(tagPrefix) != nil else { throw .illegalText("tagPrefix") }
        self.interval = try Self.interval.checked(interval)
        self.answerWithin = try .answerTime(answerWithin, standard: .seconds(30))
        self.fillers = fillers.map { String(decoding: $0.utf8.map(\.lowercased), as: UTF8.self) }
        self.tagPrefix = tagPrefix
    }
}
