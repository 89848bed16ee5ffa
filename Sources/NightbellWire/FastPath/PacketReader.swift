/// Parses the encoding of protobuf, for the few messages that are decoded by hand.
struct PacketReader {
    private let bytes: [UInt8]
    private(set) var position = 0

    init(_ bytes: [UInt8]) {
        self.bytes = bytes
    }

    var isAtEnd: Bool { position == bytes.count }

    mutating func byte() -> UInt8? {
        guard position < bytes.count else { return nil }
        defer { position += 1 }
        return bytes[position]
    }

    mutating func varint() -> UInt64? {
        var value: UInt64 = 0
        for shift in stride(from: UInt64(0), through: 63, by: 7) {
            guard let byte = byte() else { return nil }
            value |= UInt64(byte & 0x7F) << shift
            if byte < 0x80 { return value }
        }
        return nil
    }

    /// The number of an enumeration's case. More than 31 bits are left to the general decoder, which
    /// truncates them.
    mutating func number() -> Int? {
        guard let value = varint(), value <= UInt64(Int32.max) else { return nil }
        return Int(value)
    }

    mutating func fixed64() -> UInt64? {
        guard bytes.count - position >= 8 else { return nil }
        var value: UInt64 = 0
        for offset in (0..<8).reversed() { value = value << 8 | UInt64(bytes[position + offset]) }
        position += 8
        return value
    }

    /// The end of a length-delimited value, which begins after its length.
    mutating func end() -> Int? {
        guard let length = varint(), length <= bytes.count - position else { return nil }
        return position + Int(length)
    }

    /// Whether the same bytes are in both ranges.
    func areEqual(_ one: Range<Int>, _ other: Range<Int>) -> Bool {
        one.count == other.count && bytes[one].elementsEqual(bytes[other])
    }

    /// False: fewer bytes are left.
    mutating func skip(_ count: Int) -> Bool {
        guard bytes.count - position >= count else { return false }
        position += count
        return true
    }

    /// - Parameter end: the result of `end()`.
    mutating func skip(to end: Int) { position = end }

    /// The text up to `end`; nil if it is not valid UTF-8.
    mutating func text(until end: Int) -> String? {
        defer { position = end }
        return String(validating: bytes[position..<end], as: UTF8.self)
    }
}

extension [UInt8] {
    mutating func appendVarint(_ value: UInt64) {
        var rest = value
        while rest >= 0x80 {
            append(UInt8(truncatingIfNeeded: rest) | 0x80)
            rest >>= 7
        }
        append(UInt8(rest))
    }
}
