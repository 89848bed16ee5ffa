/// One header field of a SIP message, on one line.
struct Header {
    /// The header names that matter for a keep-alive.
    enum Name {
        case via, from, to, callID, sequence, maxForwards, contentLength
        /// Asks for something that only the owner can do (RFC 3261 §8.2.2.3).
        case require
        /// Makes a request more than a keep-alive: credentials, a route past us, a body, another dialog.
        case unusual
        /// Understood or not, it changes nothing (RFC 3261 §8.2.2).
        case other
    }

    let name: Name
    let value: Range<Int>
    /// Where the next line begins.
    let next: Int

    /// Reads a line that lies within the limits of the reader.
    init(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        // A line that begins with a space continues the one before: legal, and never seen in a keep-alive.
        if try reader.peek(bytes).isSpaceOrTab { throw .significant(.unusual) }
        let name = try reader.run(bytes) { $0.isToken }
        guard !name.isEmpty else { throw .significant(.malformed) }
        _ = try reader.run(bytes) { $0.isSpaceOrTab }
        try reader.expect(":", bytes, else: .malformed)
        value = bytes.trimmed(try reader.line(bytes))
        next = reader.position
        self.name = Self.name(name, bytes)
    }

    /// Reads a line again.
    init?(_ bytes: Span<UInt8>, at start: Int, end: Int) {
        var reader = Reader(bytes, limit: end)
        do {
            try reader.skip(start)
            try self.init(&reader, bytes)
        } catch {
            return nil
        }
    }

    /// RFC 3261 §7.3.1, §7.3.3: whatever the case, in the short form too.
    private static func name(_ range: Range<Int>, _ bytes: Span<UInt8>) -> Name {
        range.count == 1 ? shortName(bytes[range.lowerBound].lowercased) : longName(range, bytes)
    }

    private static func shortName(_ letter: UInt8) -> Name {
        switch letter {
        case UInt8(ascii: "v"): .via
        case UInt8(ascii: "f"): .from
        case UInt8(ascii: "t"): .to
        case UInt8(ascii: "i"): .callID
        case UInt8(ascii: "l"): .contentLength
        // Content-Type, Content-Encoding, Event, Refer-To.
        case UInt8(ascii: "c"), UInt8(ascii: "e"), UInt8(ascii: "o"), UInt8(ascii: "r"): .unusual
        default: .other
        }
    }

    private static func longName(_ range: Range<Int>, _ bytes: Span<UInt8>) -> Name {
        func isName(_ text: String) -> Bool { bytes.equalsIgnoringCase(range, text) }
        return switch range.count {
        case 2 where isName("to"): .to
        case 3 where isName("via"): .via
        case 4 where isName("from"): .from
        case 4 where isName("cseq"): .sequence
        case 7 where isName("call-id"): .callID
        case 12 where isName("max-forwards"): .maxForwards
        case 14 where isName("content-length"): .contentLength
        case 7 where isName("require"): .require
        case 13 where isName("proxy-require"): .require
        case 4 where isName("join"): .unusual
        case 5 where isName("route") || isName("event"): .unusual
        case 8 where isName("replaces") || isName("refer-to"): .unusual
        case 12 where isName("content-type"): .unusual
        case 13 where isName("authorization"): .unusual
        case 16 where isName("content-encoding"): .unusual
        case 19 where isName("proxy-authorization") || isName("content-disposition"): .unusual
        default: .other
        }
    }
}
