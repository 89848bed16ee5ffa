/// Escapes foreign text for a log, a terminal or JSON.
///
/// Text from a client is shown to people: its directory, its arguments, the names of its sockets. Control
/// characters (C0, DEL and C1) could move the cursor or end a line, characters that set the direction of
/// writing could make a line look like another one, and line and paragraph separators end a line for some
/// readers.
package enum Escaping {
    /// Whether a character has to be escaped.
    package static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        // Most are ASCII, and the tables of Unicode are slow.
        if scalar.value < 0x7F { return scalar.value < 0x20 }
        switch scalar.properties.generalCategory {
        case .control, .format, .lineSeparator, .paragraphSeparator: return true
        default: return false
        }
    }

    /// Appends the escape of JSON and most languages: `\u` and four digits, twice for a surrogate pair.
    package static func append(_ scalar: Unicode.Scalar, to text: inout String) {
        for unit in String(scalar).utf16 {
            let digits = String(unit, radix: 16)
            text += "\\u" + String(repeating: "0", count: 4 - digits.count) + digits
        }
    }

    /// The text, cut after this many characters: what was read may be as long as its file.
    package static func clipped(_ text: String, to limit: Int) -> String {
        let scalars = text.unicodeScalars
        guard let end = scalars.index(scalars.startIndex, offsetBy: limit, limitedBy: scalars.endIndex),
            end < scalars.endIndex
        else { return text }
        return String(scalars[..<end]) + "…"
    }

    /// The text with these characters escaped.
    package static func escaped(_ text: String) -> String {
        guard text.unicodeScalars.contains(where: isControl) else { return text }
        var result = ""
        for scalar in text.unicodeScalars {
            if isControl(scalar) {
                append(scalar, to: &result)
            } else {
                result.unicodeScalars.append(scalar)
            }
        }
        return result
    }
}
