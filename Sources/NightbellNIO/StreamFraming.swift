package import NIOCore

/// Where messages begin and end in what a peer sends. A pipeline may hold the beginning of a message in a decoder that
/// nobody can look into; as long as it does, its channel is not hibernated.
public struct StreamFraming: Sendable {
    private enum Kind: Sendable {
        case unknown
        case webSocket
        case delimiter(UInt8)
    }

    private let kind: Kind
    /// Of a WebSocket frame, what has arrived of its header.
    private var header: [UInt8] = []
    /// How many bytes of its payload are still to come.
    private var missing: UInt64 = 0
    private var isInMessage = false
    /// Whether the last frame of a message in several frames is still to come.
    private var isFragmented = false

    private init(_ kind: Kind) {
        self.kind = kind
    }

    /// The pipeline's ``HibernatableHandler`` knows for itself.
    public static var unknown: StreamFraming { StreamFraming(.unknown) }
    /// Messages of WebSocket (RFC 6455), after the handshake. Pings and pongs of either side are no activity.
    public static var webSocket: StreamFraming { StreamFraming(.webSocket) }
    /// Messages that end with this byte, such as lines with `\n`.
    public static func delimiter(_ byte: UInt8) -> StreamFraming { StreamFraming(.delimiter(byte)) }

    /// Whether everything that has arrived ends with a whole message.
    package var isAtBoundary: Bool { !isInMessage }

    var isWebSocket: Bool {
        if case .webSocket = kind { true } else { false }
    }

    /// Takes note of what has arrived.
    ///
    /// - Returns: whether there was anything but pings and pongs in it.
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
                header.append(view[index])
                index += 1
                takeHeader(&hasData)
            }
        }
        isInMessage = isFragmented || !header.isEmpty || missing > 0
        return hasData
    }

    /// Once the header of a frame is complete, it is its payload's turn.
    private mutating func takeHeader(_ hasData: inout Bool) {
        // Opcodes from 8 on are of control frames; 8 is the close, which somebody has to answer.
        if header[0] & 0x0F <= 8 { hasData = true }
        guard header.count >= 2 else { return }
        let lengthBytes = header[1] & 0x7F == 126 ? 2 : header[1] & 0x7F == 127 ? 8 : 0
        let maskBytes = header[1] & 0x80 == 0 ? 0 : 4
        guard header.count == 2 + lengthBytes + maskBytes else { return }
        if header[0] & 0x0F < 8 { isFragmented = header[0] & 0x80 == 0 }
        missing = UInt64(header[1] & 0x7F)
        if lengthBytes > 0 {
            missing = header[2..<2 + lengthBytes].reduce(0) { $0 << 8 | UInt64($1) }
        }
        header.removeAll(keepingCapacity: true)
    }
}

/// What is written, as far as it matters whether it is more than pings and pongs. Every message passes through here, to
/// each of those who hear it.
package struct OutboundFraming: Sendable {
    private let isWebSocket: Bool
    /// Of a ping or pong whose payload is written on its own, so much is still to come.
    private var missing = 0

    package init(_ framing: StreamFraming) {
        isWebSocket = framing.isWebSocket
    }

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
        // Something may follow it in the same buffer.
        return buffer.readableBytes > count
    }
}
