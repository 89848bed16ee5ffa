/// The reason why reading stopped.
enum ParseStop: Error {
    /// The input ends before the message does.
    case end
    case significant(Significance)
}

/// Reads bytes one after another, up to a limit: bytes beyond it count as absent, so that a verdict does not
/// depend on how much has arrived. It holds only positions; the bytes are passed to each call.
struct Reader {
    private(set) var position = 0
    private let end: Int
    private let isFull: Bool
    private let limit: Int

    /// - Parameter limit: the most bytes that may be read.
    init(_ bytes: Span<UInt8>, limit: Int) {
        end = min(bytes.count, limit)
        isFull = bytes.count >= limit
        self.limit = limit
    }

    /// The next byte, left in place.
    func peek(_ bytes: Span<UInt8>) throws(ParseStop) -> UInt8 {
        guard position < end else { throw .end }
        return bytes[position]
    }

    mutating func next(_ bytes: Span<UInt8>) throws(ParseStop) -> UInt8 {
        let byte = try peek(bytes)
        position += 1
        return byte
    }

    /// Steps over a byte that has been peeked at.
    mutating func advance() {
        position += 1
    }

    /// Steps over `count` bytes, which must be there.
    mutating func skip(_ count: Int) throws(ParseStop) {
        guard count <= end - position else { throw .end }
        position += count
    }

    /// Steps over the byte if it is the next one; tells whether.
    mutating func skip(ifNext byte: UInt8, _ bytes: Span<UInt8>) throws(ParseStop) -> Bool {
        guard try peek(bytes) == byte else { return false }
        position += 1
        return true
    }

    /// Steps over exactly these bytes. The first one that differs is significant for the given reason.
    mutating func expect(
        _ text: String, _ bytes: Span<UInt8>, else reason: Significance
    ) throws(ParseStop) {
        for byte in text.utf8 {
            guard try next(bytes) == byte else { throw .significant(reason) }
        }
    }

    /// Steps over bytes as long as they pass; the range of those that did.
    mutating func run(
        _ bytes: Span<UInt8>, while passes: (UInt8) -> Bool
    ) throws(ParseStop) -> Range<Int> {
        let start = position
        while passes(try peek(bytes)) { position += 1 }
        return start..<position
    }

    /// Reads to the end of a line and steps over the CRLF; the range of what precedes it. Anything but tabs,
    /// printable characters and those beyond ASCII is malformed, a CR or LF by itself included.
    mutating func line(_ bytes: Span<UInt8>) throws(ParseStop) -> Range<Int> {
        let content = try run(bytes) { $0.isText }
        try expect("\r\n", bytes, else: .malformed)
        return content
    }

    /// The verdict for this reason.
    func verdict(of obstacle: ParseStop, over transport: Transport) -> Verdict {
        switch obstacle {
        case .significant(let reason): .significant(reason)
        case .end where transport == .datagram: .significant(isFull ? .tooLong : .malformed)
        case .end: isFull ? .significant(.tooLong) : .needMore(limit: limit)
        }
    }
}
