/// A STUN binding message (RFC 8489 §5), found to be well formed as far as a keep-alive goes.
struct STUNMessage {
    /// The bits of the type that tell one from the other; the method is Binding in all of them.
    enum Kind: UInt64 {
        case request = 0x0001
        case indication = 0x0011
        case success = 0x0101
        case error = 0x0111
    }

    /// The transaction identifier: 96 bits.
    struct Transaction: Sendable, Equatable {
        // The narrow part last, so that what follows in memory fills the gap.
        var low: UInt64
        var high: UInt32
    }

    static let magicCookie: UInt64 = 0x2112_A442
    static let headerLength = 20
    /// Without knowing more of the path, no message over UDP is longer: 576 bytes, less the headers of IP and
    /// UDP (RFC 8489 §6.1).
    static let longest = 548

    let kind: Kind
    let transaction: Transaction
    let length: Int
    /// The value of the XOR-MAPPED-ADDRESS attribute.
    private(set) var mapped: Endpoint?

    /// Reads one message. Each part of the header is checked as soon as it arrives: other bytes wake the
    /// owner without waiting for twenty of them.
    init(_ reader: inout Reader, _ bytes: Span<UInt8>) throws(ParseStop) {
        let type = try Self.number(2, &reader, bytes)
        guard let kind = Kind(rawValue: type) else { throw .significant(.message) }
        let attributes = Int(try Self.number(2, &reader, bytes))
        guard attributes & 3 == 0 else { throw .significant(.malformed) }
        let length = Self.headerLength + attributes
        guard length <= Self.longest else { throw .significant(.tooLong) }
        guard try Self.number(4, &reader, bytes) == Self.magicCookie else { throw .significant(.message) }
        let high = try Self.number(4, &reader, bytes)
        let low = try Self.number(8, &reader, bytes)
        self.kind = kind
        self.length = length
        transaction = Transaction(low: low, high: UInt32(high))
        let body = reader.position..<length
        try reader.skip(attributes)
        try readAttributes(bytes, body)
    }

    private static func number(
        _ count: Int, _ reader: inout Reader, _ bytes: Span<UInt8>
    ) throws(ParseStop) -> UInt64 {
        let start = reader.position
        // The first byte tells STUN from everything else on the same port (RFC 8489 §5): two zero bits.
        if start == 0, try reader.peek(bytes) & 0xC0 != 0 { throw .significant(.message) }
        try reader.skip(count)
        return bytes.bigEndian(at: start, bytes: count)
    }

    // MARK: Attributes (RFC 8489 §14)

    private enum Attribute {
        static let mappedAddress: UInt64 = 0x0001
        static let xorMappedAddress: UInt64 = 0x0020
        static let fingerprint: UInt64 = 0x8028
        /// Types below this one have to be understood.
        static let optional: UInt64 = 0x8000
    }

    private mutating func readAttributes(_ bytes: Span<UInt8>, _ body: Range<Int>) throws(ParseStop) {
        var index = body.lowerBound
        while index < body.upperBound {
            // The length of the whole is a multiple of four, so type and length are there.
            let type = bytes.bigEndian(at: index, bytes: 2)
            let count = Int(bytes.bigEndian(at: index + 2, bytes: 2))
            let value = index + 4
            guard count <= body.upperBound - value else { throw .significant(.malformed) }
            switch type {
            case Attribute.xorMappedAddress:
                // Of several with one type, the first counts (§14).
                let address = try xorAddress(bytes, value..<(value + count))
                if mapped == nil { mapped = address }
            case Attribute.mappedAddress:
                break
            case Attribute.fingerprint:
                try verifyChecksum(bytes, at: index, count: count, end: body.upperBound)
            case Attribute.optional...:
                break
            default:
                // Errors carry attributes that only the reader of the error has to understand.
                guard kind == .error else { throw .significant(.unusual) }
            }
            index = value + (count + 3) & ~3
        }
    }

    /// RFC 8489 §14.2: the port and the address, both combined with the cookie and the transaction
    /// identifier.
    private func xorAddress(_ bytes: Span<UInt8>, _ value: Range<Int>) throws(ParseStop) -> Endpoint {
        let start = value.lowerBound
        guard value.count >= 8 else { throw .significant(.malformed) }
        let port = UInt16(bytes.bigEndian(at: start + 2, bytes: 2) ^ Self.magicCookie >> 16)
        switch (bytes[start + 1], value.count) {
        case (1, 8):
            let address = bytes.bigEndian(at: start + 4, bytes: 4) ^ Self.magicCookie
            return Endpoint(v4: UInt32(address), port: port)
        case (2, 20):
            let high = bytes.bigEndian(at: start + 4, bytes: 8)
            let low = bytes.bigEndian(at: start + 12, bytes: 8)
            let mask = Self.magicCookie << 32 | UInt64(transaction.high)
            return Endpoint(v6: high ^ mask, low ^ transaction.low, port: port)
        case (_, _):
            throw .significant(.malformed)
        }
    }

    /// RFC 8489 §14.7: the last attribute, over all that precedes it.
    private func verifyChecksum(
        _ bytes: Span<UInt8>, at index: Int, count: Int, end: Int
    ) throws(ParseStop) {
        guard count == 4, index + 8 == end,
            bytes.bigEndian(at: index + 4, bytes: 4) == Self.checksum(of: bytes, 0..<index)
        else { throw .significant(.malformed) }
    }

    private static func checksum(of bytes: Span<UInt8>, _ range: Range<Int>) -> UInt64 {
        // The cyclic redundancy check of ITU V.42, bit by bit: it is rarely asked for, and never of much.
        var remainder = UInt32.max
        for index in range {
            remainder ^= UInt32(bytes[index])
            for _ in 0..<8 { remainder = remainder >> 1 ^ (remainder & 1 == 0 ? 0 : 0xEDB8_8320) }
        }
        return UInt64(~remainder ^ 0x5354_554E)
    }

    /// Appends a message without attributes but, if wanted, a fingerprint.
    static func write(
        _ kind: Kind, _ transaction: Transaction, withFingerprint: Bool, to output: inout [UInt8]
    ) {
        let start = output.count
        output.append(bigEndian: kind.rawValue, bytes: 2)
        output.append(bigEndian: withFingerprint ? 8 : 0, bytes: 2)
        output.append(bigEndian: magicCookie, bytes: 4)
        output.append(bigEndian: UInt64(transaction.high), bytes: 4)
        output.append(bigEndian: transaction.low, bytes: 8)
        guard withFingerprint else { return }
        let sum = checksum(of: output.span, start..<output.count)
        output.append(bigEndian: Attribute.fingerprint, bytes: 2)
        output.append(bigEndian: 4, bytes: 2)
        output.append(bigEndian: sum, bytes: 4)
    }
}
