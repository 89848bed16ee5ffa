package import NIOCore

/// The message boundaries in a peer's stream. A decoder in the pipeline may hold the beginning of a message,
/// which is not visible from outside; until its end the channel is not hibernated.
public struct StreamFraming: Sendable {
    private enum Kind: Sendable {
        case unknown
        case webSocket
        case delimiter(UInt8)
    }

    private let kind: Kind
    private var header = FrameHeader()
    /// The bytes of a frame's payload that are still to come.
    private var missing: UInt64 = 0
    private var isInMessage = false
    /// Whether the last frame of a fragmented message is still to come.
    private var isFragmented = false

    private init(_ kind: Kind) {
        self.kind = kind
    }

    /// The pipeline's ``HibernatableHandler`` tracks boundaries itself.
    public static var unknown: StreamFraming { StreamFraming(.unknown) }
    /// Messages of WebSocket (RFC 6455), after the handshake. Pings and pongs of either side are no activity.
    public static var webSocket: StreamFraming { StreamFraming(.webSocket) }
    /// Messages that end with this byte, such as lines with `\n`.
    public static func delimiter(_ byte: UInt8) -> StreamFraming { StreamFraming(.delimiter(byte)) }

    /// Whether all input so far ends with a whole message.
    package var isAtBoundary: Bool { !isInMessage }

    var isWebSocket: Bool {
        if case .webSocket = kind { true } else { false }
    }

    /// Processes new input.
    ///
    /// - Returns: whether it had anything but pings and pongs.
    package mutating func note(_ buffer: ByteBuffer) -> Bool {
        switch kind {
        case .unknown:
            return true
        case .delimiter(let delimiter):
            let view = buffer.readableBytesView
            if let last = view.last { isInMessage = last != delimiter }
            return true
        case .webSocket:
            return noteFrames(buffer.readableBytesView)
        }
    }

    private mutating func noteFrames(_ view: ByteBufferView) -> Bool {
        var hasData = false
        var index = view.startIndex
        while index < view.endIndex {
            if missing > 0 {
                let count = min(missing, UInt64(view.endIndex - index))
                missing -= count
                index += Int(count)
            } else {
                if header.take(view[index]) { endHeader() }
                // Also for a frame with a payload that is still to come.
                if !header.isControl { hasData = true }
                index += 1
            }
        }
        isInMessage = isFragmented || header.isUnfinished || missing > 0
        return hasData
    }

    private mutating func endHeader() {
        if header.isOfMessage { isFragmented = !header.isFinal }
        missing = header.payloadLength
    }
}

/// The header of a WebSocket frame (RFC 6455, section 5.2), byte by byte.
private struct FrameHeader {
    private var first: UInt8 = 0
    private(set) var payloadLength: UInt64 = 0
    /// The number of bytes that have arrived, and the expected number as far as known.
    private var count = 0
    private var expected = 2
    private var lengthEnd = 2

    var isUnfinished: Bool { count > 0 && count < expected }
    var isFinal: Bool { first & 0x80 != 0 }
    /// Opcodes below 8 are messages. 8 is the close, which has to be answered; those above are pings and
    /// pongs.
    var isOfMessage: Bool { first & 0x0F < 8 }
    var isControl: Bool { first & 0x0F > 8 }

    /// Consumes the next byte, which begins another header if the last one was complete.
    ///
    /// - Returns: whether it is complete now.
    mutating func take(_ byte: UInt8) -> Bool {
        if count == expected { self = FrameHeader() }
        switch count {
        case 0:
            first = byte
        case 1:
            let short = byte & 0x7F
            lengthEnd = short == 126 ? 4 : short == 127 ? 10 : 2
            expected = lengthEnd + (byte & 0x80 == 0 ? 0 : 4)
            payloadLength = lengthEnd == 2 ? UInt64(short) : 0
        case ..<lengthEnd:
            payloadLength = payloadLength << 8 | UInt64(byte)
        default:
            // The mask.
            break
        }
        count += 1
        return count == expected
    }
}

/// Tracks writes, as far as needed to tell whether they are more than pings and pongs. Every message to each
/// of its receivers passes through here.
package struct OutboundFraming: Sendable {
    private let isWebSocket: Bool
    /// The rest of a ping's or pong's payload that is written separately.
    private var missing = 0

    package init(_ framing: StreamFraming) {
        isWebSocket = framing.isWebSocket
    }

    /// Whether the next write is not the payload of a ping or pong.
    package var isAtBoundary: Bool { missing == 0 }

    /// - Parameter buffer: whole frames, or a header and then its payload, as encoders write them.
    /// - Returns: whether it is more than a ping or a pong.
    package mutating func note(_ buffer: ByteBuffer) -> Bool {
        guard isWebSocket else { return true }
        if missing > 0 {
            missing = max(0, missing - buffer.readableBytes)
            return false
        }
        guard let first = buffer.getInteger(at: buffer.readerIndex, as: UInt8.self) else { return false }
        guard first & 0x0F == 9 || first & 0x0F == 10,
            let second = buffer.getInteger(at: buffer.readerIndex + 1, as: UInt8.self)
        else { return true }
        let count = 2 + (second & 0x80 == 0 ? 0 : 4) + Int(second & 0x7F)
        missing = max(0, count - buffer.readableBytes)
        // Another frame may follow in the same buffer.
        return buffer.readableBytes > count
    }
}
