extension UInt8 {
    /// A tab, a printable character of ASCII, or part of a character beyond it.
    var isText: Bool { self >= 0x20 && self != 0x7F || self == 0x09 }
    var isSpaceOrTab: Bool { self == 0x20 || self == 0x09 }
    var isDigit: Bool { self &- 0x30 < 10 }
    var isLetter: Bool { (self | 0x20) &- 0x61 < 26 }
    var lowercased: UInt8 { self &- 0x41 < 26 ? self | 0x20 : self }
    /// A character of a SIP token (RFC 3261 §25.1), which is also what names of its header fields are made
    /// of.
    var isToken: Bool {
        if isDigit || isLetter { return true }
        return switch self {
        case UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "!"), UInt8(ascii: "%"), UInt8(ascii: "*"),
            UInt8(ascii: "_"), UInt8(ascii: "+"), UInt8(ascii: "`"), UInt8(ascii: "'"), UInt8(ascii: "~"):
            true
        default: false
        }
    }
}

extension Span where Element == UInt8 {
    /// Whether the bytes of the range are those of the text.
    func equals(_ range: Range<Int>, _ text: String) -> Bool {
        guard range.count == text.utf8.count else { return false }
        var index = range.lowerBound
        for byte in text.utf8 {
            guard self[index] == byte else { return false }
            index += 1
        }
        return true
    }

    /// The same, whatever the case of ASCII letters. The text is in lower case.
    func equalsIgnoringCase(_ range: Range<Int>, _ text: String) -> Bool {
        guard range.count == text.utf8.count else { return false }
        var index = range.lowerBound
        for byte in text.utf8 {
            guard self[index].lowercased == byte else { return false }
            index += 1
        }
        return true
    }

    func equals(_ range: Range<Int>, _ other: [UInt8]) -> Bool {
        guard range.count == other.count else { return false }
        for index in 0..<other.count where self[range.lowerBound + index] != other[index] { return false }
        return true
    }

    /// Whether the range has the prefix and 16 hexadecimal digits that make up the number.
    func isIdentifier(_ range: Range<Int>, prefix: String, number: UInt64) -> Bool {
        let digits = range.lowerBound + prefix.utf8.count
        guard range.upperBound == digits + 16, equals(range.lowerBound..<digits, prefix) else { return false }
        for index in 0..<16 {
            let digit = UInt8(truncatingIfNeeded: number >> (60 - 4 * UInt64(index))) & 15
            let expected = digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10
            guard self[digits + index] == expected else { return false }
        }
        return true
    }

    func contains(_ byte: UInt8, in range: Range<Int>) -> Bool {
        for index in range where self[index] == byte { return true }
        return false
    }

    /// The range without spaces and tabs at its ends.
    func trimmed(_ range: Range<Int>) -> Range<Int> {
        var (start, end) = (range.lowerBound, range.upperBound)
        while start < end, self[start].isSpaceOrTab { start += 1 }
        while start < end, self[end - 1].isSpaceOrTab { end -= 1 }
        return start..<end
    }

    /// The decimal number that the bytes spell, if it is not above the maximum.
    func decimal(_ range: Range<Int>, maximum: UInt64) -> UInt64? {
        guard !range.isEmpty, range.count <= 19 else { return nil }
        var value: UInt64 = 0
        for index in range {
            guard self[index].isDigit else { return nil }
            value = value * 10 + UInt64(self[index] - 0x30)
        }
        return value <= maximum ? value : nil
    }

    /// So many bytes from `index` as a number, the most significant one first.
    func bigEndian(at index: Int, bytes count: Int) -> UInt64 {
        var value: UInt64 = 0
        for offset in 0..<count { value = value << 8 | UInt64(self[index + offset]) }
        return value
    }
}

extension [UInt8] {
    mutating func append(_ text: String) {
        append(contentsOf: text.utf8)
    }

    mutating func append(_ bytes: Span<UInt8>, _ range: Range<Int>) {
        reserveRoom(for: range.count)
        for index in range { append(bytes[index]) }
    }

    mutating func append(decimal value: UInt64) {
        if value >= 10 { append(decimal: value / 10) }
        append(UInt8(ascii: "0") + UInt8(value % 10))
    }

    /// In lower case, with at least so many digits.
    mutating func append(hex value: UInt64, digits: Int) {
        if value >= 16 || digits > 1 { append(hex: value >> 4, digits: digits - 1) }
        let digit = UInt8(value & 15)
        append(digit < 10 ? UInt8(ascii: "0") + digit : UInt8(ascii: "a") + digit - 10)
    }

    /// So many bytes of the number, the most significant one first.
    mutating func append(bigEndian value: UInt64, bytes count: Int) {
        for index in (0..<count).reversed() {
            append(UInt8(truncatingIfNeeded: value >> (8 * UInt64(index))))
        }
    }

    /// Makes room at once and still grows by doubling.
    private mutating func reserveRoom(for count: Int) {
        if capacity - self.count < count { reserveCapacity(Swift.max(self.count + count, 2 * capacity)) }
    }
}
