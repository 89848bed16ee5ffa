/// An OPTIONS request as short and plain as those that only check reachability.
struct OptionsRequest {
    /// Nothing longer is a keep-alive.
    static let longest = 4_096
    private static let mostHeaders = 48

    /// The lines of the headers, without the empty one.
    private(set) var headers: Range<Int>
    /// Up to the end of the empty line: there is no body.
    private(set) var length: Int
    private(set) var topVia: Range<Int>
    private(set) var from: Range<Int>
    private(set) var to: Range<Int>
    private(set) var callID: Range<Int>
    private(set) var sequence: Range<Int>

    init(
        _ reader: inout Reader, _ bytes: Span<UInt8>, over transport: Transport, users: [String]
    ) throws(ParseStop) {
        try Self.readRequestLine(&reader, bytes, users: users)
        let start = reader.position
        var found = Found()
        for _ in 0...Self.mostHeaders {
            if try reader.peek(bytes) == UInt8(ascii: "\r") {
                let end = reader.position
                try reader.expect("\r\n", bytes, else: .malformed)
                guard let via = found.via, let from = found.from, let to = found.to,
                    let callID = found.callID, let sequence = found.sequence,
                    found.hasContentLength || transport == .datagram
                else { throw .significant(.malformed) }
                (headers, length) = (start..<end, reader.position)
                (topVia, self.from, self.to) = (via, from, to)
                (self.callID, self.sequence) = (callID, sequence)
                return
            }
            try found.add(try Header(&reader, bytes), bytes)
        }
        throw .significant(.tooLong)
    }

    /// `OPTIONS sip:alice@192.0.2.1 SIP/2.0` (RFC 3261 §7.1).
    private static func readRequestLine(
        _ reader: inout Reader, _ bytes: Span<UInt8>, users: [String]
    ) throws(ParseStop) {
        try reader.expect("OPTIONS ", bytes, else: .message)
        let uri = try reader.run(bytes) { $0 > 0x20 && $0 < 0x7F }
        try reader.expect(" SIP/2.0\r\n", bytes, else: .malformed)
        // Of another scheme, it would have to be refused (§8.2.2.1).
        let scheme = uri.lowerBound..<min(uri.lowerBound + 5, uri.upperBound)
        let isSecure = bytes.equalsIgnoringCase(scheme, "sips:")
        guard isSecure || bytes.equalsIgnoringCase(scheme.dropLast(scheme.count == 5 ? 1 : 0), "sip:") else {
            throw .significant(.unusual)
        }
        guard !users.isEmpty else { return }
        let rest = (uri.lowerBound + (isSecure ? 5 : 4))..<uri.upperBound
        guard let user = user(rest, bytes), users.contains(where: { bytes.equals(user, $0) }) else {
            throw .significant(.notForUs)
        }
    }

    /// The part before the `@`, without a password.
    private static func user(_ range: Range<Int>, _ bytes: Span<UInt8>) -> Range<Int>? {
        guard let at = range.first(where: { bytes[$0] == UInt8(ascii: "@") }) else { return nil }
        let info = range.lowerBound..<at
        return info.lowerBound..<(info.first { bytes[$0] == UInt8(ascii: ":") } ?? at)
    }

    /// The headers found so far.
    private struct Found {
        var via: Range<Int>?
        var from: Range<Int>?
        var to: Range<Int>?
        var callID: Range<Int>?
        var sequence: Range<Int>?
        var hasMaxForwards = false
        var hasContentLength = false

        mutating func add(_ header: Header, _ bytes: Span<UInt8>) throws(ParseStop) {
            let value = header.value
            switch header.name {
            case .via:
                guard !value.isEmpty else { throw .significant(.malformed) }
                if via == nil { via = value }
            case .from:
                try set(&from, value)
                _ = try Address(bytes, value)
            case .to:
                try set(&to, value)
                if try Address(bytes, value).hasTag { throw .significant(.inDialog) }
            case .callID:
                try set(&callID, value)
                if bytes.contains(UInt8(ascii: " "), in: value) { throw .significant(.malformed) }
            case .sequence:
                try set(&sequence, value)
                try Self.checkSequence(value, bytes)
            case .maxForwards:
                guard !hasMaxForwards, bytes.decimal(value, maximum: 255) != nil else {
                    throw .significant(.malformed)
                }
                hasMaxForwards = true
            case .contentLength:
                guard !hasContentLength, let length = bytes.decimal(value, maximum: .max) else {
                    throw .significant(.malformed)
                }
                guard length == 0 else { throw .significant(.unusual) }
                hasContentLength = true
            case .require: throw .significant(.extensionRequired)
            case .unusual: throw .significant(.unusual)
            case .other: break
            }
        }

        private func set(_ field: inout Range<Int>?, _ value: Range<Int>) throws(ParseStop) {
            guard field == nil, !value.isEmpty else { throw .significant(.malformed) }
            field = value
        }

        /// RFC 3261 §20.16: a number below 2^31 and the method of the request.
        private static func checkSequence(_ value: Range<Int>, _ bytes: Span<UInt8>) throws(ParseStop) {
            let digits = value.lowerBound..<(value.first { !bytes[$0].isDigit } ?? value.upperBound)
            let method = bytes.trimmed(digits.upperBound..<value.upperBound)
            guard bytes.decimal(digits, maximum: 0x7FFF_FFFF) != nil, method.lowerBound > digits.upperBound,
                bytes.equals(method, "OPTIONS")
            else { throw .significant(.malformed) }
        }
    }
}
