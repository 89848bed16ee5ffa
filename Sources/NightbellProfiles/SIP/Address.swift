/// The value of From or To (RFC 3261 §20.20, §20.39): a name and an address in brackets, or an address alone,
/// and then parameters.
struct Address {
    private(set) var hasTag = false

    init(_ bytes: Span<UInt8>, _ value: Range<Int>) throws(ParseStop) {
        var parameters = Parameters(try Self.parameters(bytes, value))
        while let parameter = try parameters.next(bytes) {
            if bytes.equalsIgnoringCase(parameter.name, "tag") { hasTag = true }
        }
        // A comma would begin another address.
        guard parameters.rest.isEmpty else { throw .significant(.malformed) }
    }

    /// The range of the parameters.
    private static func parameters(_ bytes: Span<UInt8>, _ value: Range<Int>) throws(ParseStop) -> Range<Int>
    {
        var index = value.lowerBound
        while index < value.upperBound {
            switch bytes[index] {
            case UInt8(ascii: "\""):
                index = try bytes.endOfQuoted(index..<value.upperBound)
            case UInt8(ascii: "<"):
                guard let close = (index..<value.upperBound).first(where: { bytes[$0] == UInt8(ascii: ">") })
                else { throw .significant(.malformed) }
                return (close + 1)..<value.upperBound
            case UInt8(ascii: ";"):
                // Without brackets, these are parameters of the header, not of the address (§20).
                return index..<value.upperBound
            case UInt8(ascii: ","), UInt8(ascii: ">"):
                throw .significant(.malformed)
            default:
                index += 1
            }
        }
        return index..<index
    }
}

/// Parameters of a header's value: `;name=value;name;name="value"`.
struct Parameters {
    struct Parameter {
        let name: Range<Int>
        /// The value behind `=`, quotes included; nil if there is none.
        let value: Range<Int>?
    }

    /// The unread rest.
    private(set) var rest: Range<Int>

    init(_ range: Range<Int>) {
        rest = range
    }

    /// The next one; none at the end or in front of a comma.
    mutating func next(_ bytes: Span<UInt8>) throws(ParseStop) -> Parameter? {
        var index = skipSpaces(rest.lowerBound, bytes)
        guard index < rest.upperBound, bytes[index] != UInt8(ascii: ",") else { return nil }
        guard bytes[index] == UInt8(ascii: ";") else { throw .significant(.malformed) }
        index = skipSpaces(index + 1, bytes)
        let name = index..<endOfToken(index, bytes)
        guard !name.isEmpty else { throw .significant(.malformed) }
        index = skipSpaces(name.upperBound, bytes)
        guard index < rest.upperBound, bytes[index] == UInt8(ascii: "=") else {
            // Spaces in front of what follows are read once more.
            rest = name.upperBound..<rest.upperBound
            return Parameter(name: name, value: nil)
        }
        index = skipSpaces(index + 1, bytes)
        guard index < rest.upperBound else { throw .significant(.malformed) }
        let end =
            bytes[index] == UInt8(ascii: "\"")
            ? try bytes.endOfQuoted(index..<rest.upperBound) : endOfToken(index, bytes)
        guard end > index else { throw .significant(.malformed) }
        rest = end..<rest.upperBound
        return Parameter(name: name, value: index..<end)
    }

    private func skipSpaces(_ start: Int, _ bytes: Span<UInt8>) -> Int {
        var index = start
        while index < rest.upperBound, bytes[index].isSpaceOrTab { index += 1 }
        return index
    }

    /// The end of a token, or of a host, which may have colons and brackets (RFC 3261 §25.1, gen-value).
    private func endOfToken(_ start: Int, _ bytes: Span<UInt8>) -> Int {
        var index = start
        while index < rest.upperBound, bytes[index].isToken || "[]:".utf8.contains(bytes[index]) {
            index += 1
        }
        return index
    }
}

extension Span where Element == UInt8 {
    /// Where the quoted string that begins the range ends.
    func endOfQuoted(_ range: Range<Int>) throws(ParseStop) -> Int {
        var index = range.lowerBound + 1
        while index < range.upperBound {
            switch self[index] {
            case UInt8(ascii: "\""): return index + 1
            case UInt8(ascii: "\\"): index += 2
            default: index += 1
            }
        }
        throw .significant(.malformed)
    }
}
