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
        var result = ""
        write(to: &result)
        return result
    }

    private func write(to result: inout String) {
        switch self {
        case .null: result += "null"
        case .bool(let value): result += value ? "true" : "false"
        case .integer(let value): result += String(value)
        case .unsigned(let value): result += String(value)
        case .number(let value): result += value.isFinite ? String(value) : "null"
        case .string(let value): Self.write(value, to: &result)
        case .array(let values):
            result += "["
            for (index, value) in values.enumerated() {
                if index > 0 { result += "," }
                value.write(to: &result)
            }
            result += "]"
        case .object(let members):
            result += "{"
            for (index, member) in members.enumerated() {
                if index > 0 { result += "," }
                Self.write(member.name, to: &result)
                result += ":"
                member.value.write(to: &result)
            }
            result += "}"
        }
    }

    private static func write(_ string: String, to result: inout String) {
        result += "\""
        for scalar in string.unicodeScalars {
            switch scalar {
            case "\"": result += "\\\""
            case "\\": result += "\\\\"
            case "\n": result += "\\n"
            case "\r": result += "\\r"
            case "\t": result += "\\t"
            case _ where Escaping.isControl(scalar): Escaping.append(scalar, to: &result)
            default: result.unicodeScalars.append(scalar)
            }
        }
        result += "\""
    }
}

extension JSON: ExpressibleByDictionaryLiteral, ExpressibleByArrayLiteral, ExpressibleByStringLiteral,
    ExpressibleByBooleanLiteral
{
    package init(dictionaryLiteral elements: (String, JSON)...) {
        self = .object(elements.map { Member(name: $0.0, value: $0.1) })
    }

    package init(arrayLiteral elements: JSON...) { self = .array(elements) }
    package init(stringLiteral value: String) { self = .string(value) }
    package init(booleanLiteral value: Bool) { self = .bool(value) }
}
