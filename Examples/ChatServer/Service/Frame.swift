package import NIOCore
package import NIOWebSocket

/// A frame that the server sends: made once, for all receivers, awake or asleep.
package struct Frame: Sendable {
    /// For hibernated members.
    package let bytes: [UInt8]
    /// For members with a channel: the same bytes.
    package let buffer: ByteBuffer

    /// A whole message, which a server does not mask (RFC 6455, section 5.2).
    package init(_ opcode: WebSocketOpcode, _ payload: some Collection<UInt8>) {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(payload.count + 10)
        bytes.append(0x80 | UInt8(webSocketOpcode: opcode))
        switch payload.count {
        case ..<126:
            bytes.append(UInt8(payload.count))
        case ..<65_536:
            bytes.append(126)
            bytes.append(UInt8(payload.count >> 8))
            bytes.append(UInt8(payload.count & 0xFF))
        default:
            bytes.append(127)
            for shift in stride(from: 56, through: 0, by: -8) {
                bytes.append(UInt8(truncatingIfNeeded: payload.count >> shift))
            }
        }
        bytes.append(contentsOf: payload)
        self.bytes = bytes
        buffer = ByteBuffer(bytes: bytes)
    }

    static func close(_ code: WebSocketErrorCode) -> Frame {
        let number = UInt16(webSocketErrorCode: code)
        return Frame(.connectionClose, [UInt8(number >> 8), UInt8(number & 0xFF)])
    }
}
