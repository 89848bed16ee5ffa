/// A `sip:` or `sips:` URI (RFC 3261 §19.1). Escapes in the user part are kept as they are.
public struct SIPURI: Sendable, Equatable, CustomStringConvertible {
    public var isSecure: Bool
    public var user: String?
    /// A name, an IPv4 address, or an IPv6 address in brackets.
    public var host: String
    public var port: UInt16?
    public var parameters: SIPParameters
    /// The part after the question mark, if any.
    public var headers: String?

    public init(user: String? = nil, host: String, port: UInt16? = nil) {
        isSecure = false
        self.user = user
        self.host = host
        self.port = port
        parameters = SIPParameters()
        headers = nil
    }

    public init(parsing text: String) throws(SIPParseError) {
        func fail() -> SIPParseError { .malformedValue("URI: \(text)") }
        guard let colon = text.utf8.firstIndex(of: UInt8(ascii: ":")) else { throw fail() }
        switch text[..<colon].lowercased() {
        case "sip": isSecure = false
        case "sips": isSecure = true
        default: throw .unsupportedScheme(text)
        }
        var rest = text[text.index(after: colon)...]
        if let at = rest.utf8.lastIndex(of: UInt8(ascii: "@")) {
            // A password, which is deprecated, stays part of the user.
            user = String(rest[..<at])
            rest = rest[rest.index(after: at)...]
            if user?.isEmpty ?? true { throw fail() }
        }
        if let question = rest.utf8.firstIndex(of: UInt8(ascii: "?")) {
            headers = String(rest[rest.index(after: question)...])
            rest = rest[..<question]
        }
        var pieces = rest.split(separator: ";", omittingEmptySubsequences: true).map(String.init)
        guard !pieces.isEmpty, rest.utf8.first != UInt8(ascii: ";") else { throw fail() }
        (host, port) = try parseHostPort(pieces.removeFirst())
        parameters = SIPParameters(pieces)
    }

    public var description: String {
        var text = isSecure ? "sips:" : "sip:"
        if let user { text += "\(user)@" }
        text += host
        if let port { text += ":\(port)" }
        text += parameters.description
        if let headers { text += "?\(headers)" }
        return text
    }
}

/// An address with a display name and parameters, as in `From`, `To`, `Contact`, `Route` (RFC 3261 §20.10).
public struct NameAddress: Sendable, Equatable, CustomStringConvertible {
    /// As it stands on the wire, quotes included.
    public var displayName: String?
    public var uri: SIPURI
    /// Those of the header, not of the URI.
    public var parameters: SIPParameters

    public init(_ uri: SIPURI, displayName: String? = nil) {
        self.displayName = displayName
        self.uri = uri
        parameters = SIPParameters()
    }

    public init(parsing text: String) throws(SIPParseError) {
        // Quotes and brackets protect semicolons, so the first piece is the address, the rest parameters.
        var pieces = split(text, at: UInt8(ascii: ";"))
        guard !pieces.isEmpty else { throw .malformedValue("address: \(text)") }
        let address = pieces.removeFirst()
        parameters = SIPParameters(pieces)
        guard let open = bracket(in: address) else {
            uri = try SIPURI(parsing: address)
            return
        }
        guard address.utf8.last == UInt8(ascii: ">") else { throw .malformedValue("address: \(text)") }
        let name = trimmed(address[..<open].utf8)
        displayName = name.isEmpty ? nil : name
        let inner = address[address.index(after: open)...].dropLast()
        uri = try SIPURI(parsing: trimmed(inner.utf8))
    }

    public var description: String {
        let name = displayName.map { "\($0) " } ?? ""
        return "\(name)<\(uri)>\(parameters)"
    }
}

/// The place of the opening bracket that is not in the quoted display name.
private func bracket(in text: String) -> String.Index? {
    var quotes = QuotedStrings()
    return text.utf8.indices.first { index in
        !quotes.contains(text.utf8[index]) && text.utf8[index] == UInt8(ascii: "<")
    }
}

/// Reads `host[:port]`; an IPv6 address stands in brackets.
func parseHostPort(_ text: String) throws(SIPParseError) -> (host: String, port: UInt16?) {
    let bytes = text.utf8
    var end = bytes.endIndex
    var port: UInt16?
    let afterAddress =
        bytes.first == UInt8(ascii: "[") ? bytes.firstIndex(of: UInt8(ascii: "]")) : bytes.startIndex
    guard let afterAddress else { throw .malformedValue("host: \(text)") }
    if let colon = bytes[afterAddress...].firstIndex(of: UInt8(ascii: ":")) {
        guard let number = UInt16(decimal: trimmed(bytes[bytes.index(after: colon)...])) else {
            throw .malformedValue("port: \(text)")
        }
        port = number
        end = colon
    }
    let host = trimmed(bytes[..<end])
    let isHostByte = { (byte: UInt8) in byte > 0x20 && byte != 0x7F && !"<>\"@,;".utf8.contains(byte) }
    guard !host.isEmpty, host.utf8.allSatisfy(isHostByte) else { throw .malformedValue("host: \(text)") }
    return (host, port)
}
