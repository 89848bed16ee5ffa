/// A stanza or a part of one, as simple as keep-alives are: a start tag with attributes in any order, a value
/// in either kind of quotes. It may be closed at once or by an end tag.
struct Element {
    /// More attributes than a keep-alive has.
    private static let mostAttributes = 8

    /// A value as it stands between its quotes, with references left as they are.
    struct Value: Equatable {
        let range: Range<Int>
        let quote: UInt8
    }

    private(set) var id: Value?
    private(set) var type: Value?
    private(set) var from: Value?
    private(set) var to: Value?
    private(set) var xmlns: Value?
    private(set) var lang: Value?
    /// Whether the tag ended in `/>`.
    private(set) var isClosed = false

    /// Reads what follows the name in a start tag, to its end. An attribute of another name, or one given
    /// twice, is unusual.
    init(attributesIn reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        for _ in 0...Self.mostAttributes {
            let space = try reader.run(bytes) { $0.isXMLSpace }
            switch try reader.peek(bytes) {
            case UInt8(ascii: "/"):
                reader.advance()
                try reader.expect(">", bytes, else: .malformed)
                isClosed = true
                return
            case UInt8(ascii: ">"):
                reader.advance()
                return
            default:
                guard !space.isEmpty else { throw .significant(.message) }
                try readAttribute(&reader, bytes)
            }
        }
        throw .significant(.unusual)
    }

    private mutating func readAttribute(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        let name = try reader.run(bytes) { $0.isLetter || $0 == UInt8(ascii: ":") }
        try reader.expect("=", bytes, else: .unusual)
        let value = try Self.value(&reader, bytes)
        if bytes.equals(name, "id") {
            try set(&id, value)
        } else if bytes.equals(name, "type") {
            try set(&type, value)
        } else if bytes.equals(name, "from") {
            try set(&from, value)
        } else if bytes.equals(name, "to") {
            try set(&to, value)
        } else if bytes.equals(name, "xmlns") {
            try set(&xmlns, value)
        } else if bytes.equals(name, "xml:lang") {
            try set(&lang, value)
        } else {
            throw .significant(.unusual)
        }
    }

    private func set(_ attribute: inout Value?, _ value: Value) throws(ParseStop) {
        guard attribute == nil else { throw .significant(.malformed) }
        attribute = value
    }

    private static func value(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) -> Value {
        let quote = try reader.next(bytes)
        guard quote == UInt8(ascii: "'") || quote == UInt8(ascii: "\"") else {
            throw .significant(.malformed)
        }
        let range = try reader.run(bytes) { $0 != quote && $0 != UInt8(ascii: "<") && $0.isText }
        guard try reader.next(bytes) == quote else { throw .significant(.malformed) }
        // It may be written back: malformed text must not be sent for the owner.
        guard bytes.hasLegalReferences(range), bytes.isUnicode(range) else { throw .significant(.malformed) }
        return Value(range: range, quote: quote)
    }

    /// Steps over the end tag, unless there is none.
    func end(_ name: String, _ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        guard !isClosed else { return }
        try reader.expect("</", bytes, else: .message)
        try reader.expect(name, bytes, else: .message)
        _ = try reader.run(bytes) { $0.isXMLSpace }
        try reader.expect(">", bytes, else: .malformed)
    }
}

extension Element {
    /// Steps over children, whatever they are, and the end tag of this element, unless there is none.
    func skipContent(
        endedBy name: String, _ reader: inout Reader, _ bytes: Span<UInt8>
    ) throws(ParseStop) {
        var depth = isClosed ? 0 : 1
        while depth > 0 {
            _ = try reader.run(bytes) { $0 != UInt8(ascii: "<") }
            reader.advance()
            switch try reader.peek(bytes) {
            case UInt8(ascii: "/"):
                reader.advance()
                let tag = try reader.run(bytes) { $0 != UInt8(ascii: ">") && !$0.isXMLSpace }
                _ = try reader.run(bytes) { $0.isXMLSpace }
                try reader.expect(">", bytes, else: .malformed)
                depth -= 1
                guard depth > 0 || bytes.equals(tag, name) else { throw .significant(.malformed) }
            case UInt8(ascii: "!"), UInt8(ascii: "?"):
                // Nothing of that is in a stream (RFC 6120 §11.1), CDATA aside.
                throw .significant(.unusual)
            default:
                if try !Self.skipTag(&reader, bytes) { depth += 1 }
            }
        }
    }

    /// Steps over the rest of a start tag; whether it is an end tag, too.
    private static func skipTag(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) -> Bool {
        var last: UInt8 = 0
        while true {
            let byte = try reader.next(bytes)
            switch byte {
            case UInt8(ascii: ">"):
                return last == UInt8(ascii: "/")
            case UInt8(ascii: "<"):
                throw .significant(.malformed)
            case UInt8(ascii: "'"), UInt8(ascii: "\""):
                _ = try reader.run(bytes) { $0 != byte }
                reader.advance()
            default:
                break
            }
            last = byte
        }
    }
}

extension UInt8 {
    /// White space of XML 1.0 §2.3.
    var isXMLSpace: Bool { self == 0x20 || self == 0x0A || self == 0x0D || self == 0x09 }
}

extension Span where Element == UInt8 {
    /// Whether every `&` begins one of the five references to characters that XMPP knows (RFC 6120 §11.1
    /// allows no other entities). Numeric ones are legal, but not expected in a keep-alive.
    fileprivate func hasLegalReferences(_ range: Range<Int>) -> Bool {
        var index = range.lowerBound
        while index < range.upperBound {
            if self[index] == UInt8(ascii: "&") {
                guard let length = referenceLength(index..<range.upperBound) else { return false }
                index += length
            } else {
                index += 1
            }
        }
        return true
    }

    private func referenceLength(_ range: Range<Int>) -> Int? {
        func length(_ text: String) -> Int? {
            let count = text.utf8.count
            guard range.count >= count else { return nil }
            return equals(range.lowerBound..<(range.lowerBound + count), text) ? count : nil
        }
        return length("&amp;") ?? length("&lt;") ?? length("&gt;") ?? length("&apos;") ?? length("&quot;")
    }

    /// In valid UTF-8: U+FFFE and U+FFFF, which XML 1.0 §2.2 has none of, and the control characters U+0080
    /// to U+009F, which it discourages. Those of ASCII are no text at all.
    private func hasIllegalCharacters(_ range: Range<Int>) -> Bool {
        for index in range {
            let left = range.upperBound - index
            if self[index] == 0xC2, left > 1, self[index + 1] < 0xA0 { return true }
            if self[index] == 0xEF, left > 2, self[index + 1] == 0xBF, self[index + 2] >= 0xBE { return true }
        }
        return false
    }

    fileprivate func isUnicode(_ range: Range<Int>) -> Bool {
        do {
            _ = try UTF8Span(validating: extracting(range))
            return !hasIllegalCharacters(range)
        } catch {
            return false
        }
    }
}
