/// The packet of a `ReadyToSuspend` that lists no socket, encoded by hand and without a heap allocation: half
/// of all sleepers are stopped while they send it, and any cleanup afterwards would delay the wake. The bytes
/// are the same as from `WireClientMessage`.
package struct ReadyPacket {
    /// The lowest byte comes first: at most two of the message, one of the field and ten of the number.
    private var bytes: UInt128 = 0
    private var count = 0

    package init(_ epoch: UInt64) {
        var digits = 0
        var rest = epoch
        while rest != 0 {
            digits += 1
            rest >>= 7
        }
        append(14 << 3 | 2)
        // Zero is the default of a missing field.
        append(digits == 0 ? 0 : UInt8(1 + digits))
        guard digits > 0 else { return }
        append(1 << 3)
        rest = epoch
        for digit in 1...digits {
            append(UInt8(rest & 0x7F) | (digit == digits ? 0 : 0x80))
            rest >>= 7
        }
    }

    private mutating func append(_ byte: UInt8) {
        bytes |= UInt128(byte) << (8 * count)
        count += 1
    }

    package func withBytes<Result>(_ body: (UnsafeRawBufferPointer) -> Result) -> Result {
        unsafe withUnsafeBytes(of: bytes.littleEndian) {
            unsafe body(UnsafeRawBufferPointer(rebasing: $0.prefix(count)))
        }
    }
}
