/// Parses the kernel's small tables byte by byte: lines of fields separated by blanks. Parsing them as
/// `String`, character by character, costs thirty times as much.
package struct ByteFields {
    private let bytes: [UInt8]
    private var position: Int

    package init(_ bytes: [UInt8], from position: Int = 0) {
        self.bytes = bytes
        self.position = position
    }

    /// The next field of this line; nil at its end.
    package mutating func next() -> ArraySlice<UInt8>? {
        while position < bytes.count, Self.isBlank(bytes[position]) { position += 1 }
        let start = position
        while position < bytes.count, !Self.isBlank(bytes[position]), bytes[position] != UInt8(ascii: "\n") {
            position += 1
        }
        return position > start ? bytes[start..<position] : nil
    }

    /// The remaining fields of this line.
    package mutating func restOfLine() -> [ArraySlice<UInt8>] {
        var fields: [ArraySlice<UInt8>] = []
        while let field = next() { fields.append(field) }
        return fields
    }

    mutating func skip(_ count: Int) {
        for _ in 0..<count { _ = next() }
    }

    /// Goes to the beginning of the next line; false: this was the last.
    package mutating func nextLine() -> Bool {
        while position < bytes.count, bytes[position] != UInt8(ascii: "\n") { position += 1 }
        position += 1
        return position < bytes.count
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == UInt8(ascii: " ") || byte == UInt8(ascii: "\t")
    }

    /// The value of a field of digits; nil if it has other bytes or does not fit.
    package static func number(_ field: ArraySlice<UInt8>?, radix: UInt8 = 10) -> UInt64? {
        guard let field, !field.isEmpty else { return nil }
        var value: UInt64 = 0
        for byte in field {
            guard let digit = digit(byte), digit < radix else { return nil }
            let (shifted, overflows) = value.multipliedReportingOverflow(by: UInt64(radix))
            let (sum, isTooLarge) = shifted.addingReportingOverflow(UInt64(digit))
            guard !overflows, !isTooLarge else { return nil }
            value = sum
        }
        return value
    }

    private static func digit(_ byte: UInt8) -> UInt8? {
        switch byte {
        case UInt8(ascii: "0")...UInt8(ascii: "9"): byte - UInt8(ascii: "0")
        case UInt8(ascii: "a")...UInt8(ascii: "f"): byte - UInt8(ascii: "a") + 10
        default: nil
        }
    }
}
