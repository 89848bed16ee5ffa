/// Limits of a message. A peer cannot make its receiver keep more than `head` + `body` bytes.
public struct SIPLimits: Sendable {
    public var headBytes = 16_384
    public var bodyBytes = 65_536
    public var headers = 128

    public init() {}
}

/// Cuts a stream of bytes into messages (RFC 3261 §18.3). Any way of cutting the stream into pieces gives the
/// same messages.
///
/// After an error the start of the next message is unknown: the connection has to be closed, and the parser
/// keeps throwing the same error.
public struct SIPStreamParser: Sendable {
    private enum State {
        case head
        case body(head: SIPMessage, length: Int)
        case failed(SIPParseError)
    }

    private let limits: SIPLimits
    private var state = State.head
    private var buffer: [UInt8] = []
    /// The bytes of the buffer that belong to messages already taken.
    private var consumed = 0
    /// Up to here no end of the headers was found, so a head that trickles in is searched only once.
    private var searched = 0

    public init(limits: SIPLimits = SIPLimits()) {
        self.limits = limits
    }

    /// Bytes of a message that is not yet complete.
    public var pendingBytes: Int { buffer.count - consumed }

    public mutating func append(_ bytes: some Collection<UInt8>) {
        if consumed > 0 {
            buffer.removeFirst(consumed)
            searched -= consumed
            consumed = 0
        }
        buffer.append(contentsOf: bytes)
    }

    /// The next complete message; nil when more bytes are needed.
    public mutating func next() throws(SIPParseError) -> SIPMessage? {
        do {
            return try advance()
        } catch {
            state = .failed(error)
            throw error
        }
    }

    private mutating func advance() throws(SIPParseError) -> SIPMessage? {
        switch state {
        case .failed(let error):
            throw error
        case .head:
            guard let head = try takeHead() else { return nil }
            guard let length = try contentLength(of: head) else { throw .missingContentLength }
            guard length <= limits.bodyBytes else { throw .bodyTooLong(limit: limits.bodyBytes) }
            state = .body(head: head, length: length)
            return try advance()
        case .body(var message, let length):
            guard buffer.count - consumed >= length else { return nil }
            message.body = Array(buffer[consumed..<consumed + length])
            consumed += length
            searched = consumed
            state = .head
            return message
        }
    }

    private mutating func takeHead() throws(SIPParseError) -> SIPMessage? {
        // Empty lines before a message are keep-alives (RFC 3261 §7.5, RFC 5626 §3.5.1).
        while consumed < buffer.count, buffer[consumed] == 0x0D || buffer[consumed] == 0x0A { consumed += 1 }
        searched = max(searched, consumed)
        guard let end = endOfHead(in: buffer[consumed...], from: searched) else {
            guard pendingBytes <= limits.headBytes else { throw .headTooLong(limit: limits.headBytes) }
            searched = max(consumed, buffer.count - 3)
            return nil
        }
        guard end - consumed <= limits.headBytes else { throw .headTooLong(limit: limits.headBytes) }
        let head = try parseHead(buffer[consumed..<end], limits: limits)
        consumed = end
        return head
    }
}

extension SIPMessage {
    /// Reads a message out of one datagram. Without `Content-Length` the body reaches to its end, with it
    /// what follows the body is dropped (RFC 3261 §18.3). Nil: a keep-alive that holds only empty lines.
    public init?(datagram: [UInt8], limits: SIPLimits = SIPLimits()) throws(SIPParseError) {
        let bytes = datagram.drop { $0 == 0x0D || $0 == 0x0A || $0 == 0x00 }
        guard !bytes.isEmpty else { return nil }
        guard let end = endOfHead(in: bytes, from: bytes.startIndex) else {
            throw bytes.count > limits.headBytes ? .headTooLong(limit: limits.headBytes) : .truncated
        }
        guard end - bytes.startIndex <= limits.headBytes else { throw .headTooLong(limit: limits.headBytes) }
        self = try parseHead(bytes[..<end], limits: limits)
        let available = bytes.endIndex - end
        let length = try contentLength(of: self) ?? available
        guard length <= limits.bodyBytes else { throw .bodyTooLong(limit: limits.bodyBytes) }
        guard length <= available else { throw .truncated }
        body = Array(bytes[end..<end + length])
    }
}

/// The place after the empty line that ends the headers.
private func endOfHead(in bytes: ArraySlice<UInt8>, from start: Int) -> Int? {
    var index = start
    while index + 3 < bytes.endIndex {
        if bytes[index] == 0x0D, bytes[index + 1] == 0x0A, bytes[index + 2] == 0x0D, bytes[index + 3] == 0x0A
        {
            return index + 4
        }
        index += 1
    }
    return nil
}

private func contentLength(of message: SIPMessage) throws(SIPParseError) -> Int? {
    let values = Set(message.headers.all(.contentLength))
    guard let value = values.first else { return nil }
    guard values.count == 1, let length = Int(decimal: value) else {
        throw .invalidContentLength(values.sorted().joined(separator: ", "))
    }
    return length
}

private func parseHead(_ bytes: ArraySlice<UInt8>, limits: SIPLimits) throws(SIPParseError) -> SIPMessage {
    var lines = try unfoldedLines(bytes.dropLast(4), limits: limits)
    var message = SIPMessage(try parseStartLine(lines.removeFirst()))
    for line in lines {
        guard let colon = line.utf8.firstIndex(of: UInt8(ascii: ":")) else { throw .malformedHeader(line) }
        let name = trimmed(line[..<colon].utf8)
        guard isToken(name) else { throw .malformedHeader(line) }
        message.headers.append(SIPHeaderName(name), trimmed(line[line.index(after: colon)...].utf8))
    }
    return message
}

/// The lines of a head. A line that begins with white space continues the one before (RFC 3261 §7.3.1).
private func unfoldedLines(
    _ bytes: ArraySlice<UInt8>, limits: SIPLimits
) throws(SIPParseError) -> [String] {
    var lines: [String] = []
    var rest = bytes
    while true {
        let end = rest.firstIndex { $0 == 0x0D || $0 == 0x0A || $0 == 0x00 } ?? rest.endIndex
        guard let line = String(validating: rest[..<end], as: UTF8.self) else { throw .notUTF8 }
        if let first = line.utf8.first, first == 0x20 || first == 0x09 {
            guard lines.count > 1, let last = lines.popLast() else { throw .malformedHeader(line) }
            lines.append("\(last) \(trimmed(line.utf8))")
        } else {
            lines.append(line)
            guard lines.count <= limits.headers + 1 else { throw .tooManyHeaders(limit: limits.headers) }
        }
        guard end < rest.endIndex else { return lines }
        guard rest[end] == 0x0D, end + 1 < rest.endIndex, rest[end + 1] == 0x0A else {
            throw .malformedHeader(line)
        }
        rest = rest[(end + 2)...]
    }
}

private func parseStartLine(_ line: String) throws(SIPParseError) -> SIPMessage.StartLine {
    let parts = line.split(separator: " ", maxSplits: 2, omittingEmptySubsequences: false).map(String.init)
    guard parts.count >= 2 else { throw .malformedStartLine(line) }
    if parts[0].uppercased().utf8.starts(with: "SIP/".utf8) {
        guard parts[0].uppercased() == "SIP/2.0" else { throw .unsupportedVersion(line) }
        guard let status = Int(decimal: parts[1]), (100...699).contains(status) else {
            throw .malformedStartLine(line)
        }
        return .response(status: status, reason: parts.count == 3 ? parts[2] : "")
    }
    guard parts.count == 3, isToken(parts[0]), !parts[1].isEmpty else { throw .malformedStartLine(line) }
    guard parts[2].uppercased() == "SIP/2.0" else {
        throw parts[2].uppercased().utf8.starts(with: "SIP/".utf8)
            ? .unsupportedVersion(line) : .malformedStartLine(line)
    }
    return .request(method: SIPMethod(rawValue: parts[0]), uri: parts[1])
}

/// RFC 3261 §25.1.
private func isToken(_ text: String) -> Bool {
    !text.isEmpty
        && text.utf8.allSatisfy { byte in
            switch byte {
            case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
                UInt8(ascii: "0")...UInt8(ascii: "9"):
                true
            default:
                "-.!%*_+`'~".utf8.contains(byte)
            }
        }
}
