/// Parses the kernel's small tables byte by byte: lines of fields separated by blanks. Parsing them as
/// `String`, character by character, costs thirty times as much.
struct ByteFields {
    private let bytes: [UInt8]
    private var position: Int

    init(_ bytes: [UInt8], from position: Int = 0) {
        self.bytes = bytes
        self.position = position
    }

    /// The next field of this line; nil at its end.
    mutating func next() -> ArraySlice<UInt8>? {
        while position < bytes.count, Self.isBlank(bytes[position]) { position += 1 }
        let start = position
        while position < bytes.count, !Self.isBlank(bytes[position]), bytes[position] != UInt8(ascii: "\n") {
            position += 1
        }
        return position > start ? bytes[start..<position] : nil
    }

    mutating func skip(_ count: Int) {
        for _ in 0..<count { _ = next() }
    }

    /// Goes to the beginning of the next line; false: this was the last.
    mutating func nextLine() -> Bool {
        while position < bytes.count, bytes[position] != UInt8(ascii: "\n") { position += 1 }
        position += 1
        return position < bytes.count
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
    }

    /// The value of a field of decimal digits; nil if it has other bytes or does not fit.
    static func number(_ field: ArraySlice<UInt8>?) -> UInt64? {
        guard let field, !field.isEmpty else { return nil }
        var value: UInt64 = 0
        for byte in field {
            guard byte >= UInt8(ascii: "0"), byte <= UInt8(ascii: "9") else { return nil }
            let (tens, overflows) = value.multipliedReportingOverflow(by: 10)
            let (sum, isTooLarge) = tens.addingReportingOverflow(UInt64(byte - UInt8(ascii: "0")))
            guard !overflows, !isTooLarge else { return nil }
            value = sum
        }
        return value
    }
}
