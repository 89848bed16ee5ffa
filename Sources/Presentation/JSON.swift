import LinuxSystem

/// A JSON value with objects that keep the order of their members.
package enum JSON: Sendable, Equatable {
    case null
    case bool(Bool)
    case integer(Int64)
    case unsigned(UInt64)
    case number(Double)
    case string(String)
    case array([JSON])
    case object([Member])

    package struct Member: Sendable, Equatable {
        package var name: String
        package var value: JSON

        package init(name: String, value: JSON) {
            self.name = name
            self.value = value
        }
    }

    /// The value on one line, without spaces (RFC 8259). A number that is not finite is written as `null`.
    package var text: String {
        // Bytes, because appending to a string is several times as slow.
        var bytes: [UInt8] = []
        bytes.reserveCapacity(256)
        write(to: &bytes)
        return String(decoding: bytes, as: UTF8.self)
    }

    /// Appends `text`.
    package func write(to bytes: inout [UInt8]) {
        switch self {
        case .null: bytes += "null".utf8
        case .bool(let value): bytes += (value ? "true" : "false").utf8
        case .integer(let value):
            if value < 0 { bytes.append(UInt8(ascii: "-")) }
            Self.write(value.magnitude, to: &bytes)
        case .unsigned(let value): Self.write(value, to: &bytes)
        case .number(let value): bytes += (value.isFinite ? String(value) : "null").utf8
        case .string(let value): Self.write(value, to: &bytes)
        case .array(let values):
            bytes.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                value.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "]"))
        case .object(let members):
            bytes.append(UInt8(ascii: "{"))
            for (index, member) in members.enumerated() {
                if index > 0 { bytes.append(UInt8(ascii: ",")) }
                Self.write(member.name, to: &bytes)
                bytes.append(UInt8(ascii: ":"))
                member.value.write(to: &bytes)
            }
            bytes.append(UInt8(ascii: "}"))
        }
    }

    private static func write(_ number: UInt64, to bytes: inout [UInt8]) {
        let start = bytes.count
        var rest = number
        repeat {
            bytes.append(UInt8(ascii: "0") + UInt8(truncatingIfNeeded: rest % 10))
            rest /= 10
        } while rest > 0
        var (low, high) = (start, bytes.count - 1)
        while low < high {
            bytes.swapAt(low, high)
            (low, high) = (low + 1, high - 1)
        }
    }

    private static func write(_ string: String, to bytes: inout [UInt8]) {
        bytes.append(UInt8(ascii: "\""))
        let isWritten = unsafe string.utf8.withContiguousStorageIfAvailable { text in
            guard unsafe text.allSatisfy(isPlain) else { return false }
            unsafe bytes += text
            return true
        }
        if isWritten != true {
            if string.unicodeScalars.contains(where: isEscaped) {
                writeEscaped(string, to: &bytes)
            } else {
                bytes += string.utf8
            }
        }
        bytes.append(UInt8(ascii: "\""))
    }

    /// Whether it is a character that is written as it is. Nearly all are.
    private static func isPlain(_ byte: UInt8) -> Bool {
        (0x20..<0x7F).contains(byte) && byte != UInt8(ascii: "\"") && byte != UInt8(ascii: "\\")
    }

    private static func isEscaped(_ scalar: Unicode.Scalar) -> Bool {
        scalar == "\"" || scalar == "\\" || Escaping.isControl(scalar)
    }

    private static func writeEscaped(_ string: String, to bytes: inout [UInt8]) {
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": bytes += "\\\"".utf8
            case "\\": bytes += "\\\\".utf8
            case "\n": bytes += "\\n".utf8
            case "\r": bytes += "\\r".utf8
            case "\t": bytes += "\\t".utf8
            case _ where Escaping.isControl(scalar):
                var escaped = ""
                Escaping.append(scalar, to: &escaped)
                bytes += escaped.utf8
            default: bytes += Unicode.UTF8.encode(scalar) ?? Unicode.UTF8.encodedReplacementCharacter
            }
        }
    }
}

extension JSON: ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral, ExpressibleByStringLiteral,
    ExpressibleByBooleanLiteral, ExpressibleByIntegerLiteral
{
    package init(dictionaryLiteral elements: (String, JSON)...) {
        self = .object(elements.map { Member(name: $0.0, value: $0.1) })
    }

    package init(integerLiteral value: Int64) { self = .integer(value) }

    package init(arrayLiteral elements: JSON...) { self = .array(elements) }
    package init(stringLiteral value: String) { self = .string(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
}
