/// Converts between State and bytes.
extension WireState {
    package init(_ bytes: [UInt8]) {
        self.init()
        size = UInt32(bytes.count)
        words = stride(from: 0, to: bytes.count, by: 8).map { start in
            bytes[start..<min(start + 8, bytes.count)].reversed().reduce(0) { $0 << 8 | UInt64($1) }
        }
    }

    /// Nil if its length exceeds its words.
    package var bytes: [UInt8]? {
        guard words.count == (Int(size) + 7) / 8 else { return nil }
        return (0..<Int(size)).map { UInt8(truncatingIfNeeded: words[$0 / 8] >> UInt64($0 % 8 * 8)) }
    }
}
