/// The name of a header. Compact forms (RFC 3261 §7.3.3) and differences of case are the same name.
public struct SIPHeaderName: Sendable, Hashable, ExpressibleByStringLiteral, CustomStringConvertible {
    /// As it is written.
    public let text: String
    private let key: String

    public init(_ name: String) {
        let lowercased = name.lowercased()
        if let full = Self.fullForms[lowercased] {
            text = full
            key = full.lowercased()
        } else {
            text = name
            key = lowercased
        }
    }

    public init(stringLiteral value: String) { self.init(value) }

    public static func == (left: Self, right: Self) -> Bool { left.key == right.key }
    public func hash(into hasher: inout Hasher) { hasher.combine(key) }
    public var description: String { text }

    private static let fullForms = [
        "a": "Accept-Contact", "b": "Referred-By", "c": "Content-Type", "d": "Request-Disposition",
        "e": "Content-Encoding", "f": "From", "i": "Call-ID", "j": "Reject-Contact", "k": "Supported",
        "l": "Content-Length", "m": "Contact", "o": "Event", "r": "Refer-To", "s": "Subject", "t": "To",
        "u": "Allow-Events", "v": "Via", "x": "Session-Expires", "y": "Identity",
    ]

    public static let allow: SIPHeaderName = "Allow"
    public static let authorization: SIPHeaderName = "Authorization"
    public static let callID: SIPHeaderName = "Call-ID"
    public static let contact: SIPHeaderName = "Contact"
    public static let contentLength: SIPHeaderName = "Content-Length"
    public static let contentType: SIPHeaderName = "Content-Type"
    public static let cSeq: SIPHeaderName = "CSeq"
    public static let expires: SIPHeaderName = "Expires"
    public static let from: SIPHeaderName = "From"
    public static let maxForwards: SIPHeaderName = "Max-Forwards"
    public static let minExpires: SIPHeaderName = "Min-Expires"
    public static let proxyAuthenticate: SIPHeaderName = "Proxy-Authenticate"
    public static let proxyAuthorization: SIPHeaderName = "Proxy-Authorization"
    public static let recordRoute: SIPHeaderName = "Record-Route"
    public static let retryAfter: SIPHeaderName = "Retry-After"
    public static let route: SIPHeaderName = "Route"
    public static let supported: SIPHeaderName = "Supported"
    public static let to: SIPHeaderName = "To"
    public static let userAgent: SIPHeaderName = "User-Agent"
    public static let via: SIPHeaderName = "Via"
    public static let wwwAuthenticate: SIPHeaderName = "WWW-Authenticate"
}

/// The headers of a message, in the order of the wire.
public struct SIPHeaders: Sendable, Equatable, ExpressibleByDictionaryLiteral {
    public struct Field: Sendable, Equatable {
        public var name: SIPHeaderName
        public var value: String
    }

    public private(set) var fields: [Field] = []

    public init() {}

    public init(dictionaryLiteral elements: (SIPHeaderName, String)...) {
        fields = elements.map { Field(name: $0, value: $1) }
    }

    /// The first value of that name. Setting replaces all of them in the place of the first; nil removes all.
    public subscript(_ name: SIPHeaderName) -> String? {
        get { fields.first { $0.name == name }?.value }
        set {
            replace(name, with: newValue.map { [$0] } ?? [])
        }
    }

    /// All header fields of that name, each as it stands (it may hold a list).
    public func all(_ name: SIPHeaderName) -> [String] {
        fields.filter { $0.name == name }.map(\.value)
    }

    /// All values of a header that may be a list, whether on one line or on several. Only for the headers
    /// with a grammar that allows it: not for `WWW-Authenticate`, `Date` and the like.
    public func list(_ name: SIPHeaderName) -> [String] {
        all(name).flatMap { splitList($0) }
    }

    public mutating func append(_ name: SIPHeaderName, _ value: String) {
        fields.append(Field(name: name, value: value))
    }

    /// Puts one more value before the others of that name, as a proxy does with its `Via`.
    public mutating func prepend(_ name: SIPHeaderName, _ value: String) {
        let place = fields.firstIndex { $0.name == name } ?? 0
        fields.insert(Field(name: name, value: value), at: place)
    }

    /// Replaces all values of that name, in the place of the first of them or else at the end.
    public mutating func replace(_ name: SIPHeaderName, with values: [String]) {
        let place = fields.firstIndex { $0.name == name } ?? fields.endIndex
        fields.removeAll { $0.name == name }
        fields.insert(contentsOf: values.map { Field(name: name, value: $0) }, at: place)
    }
}

/// Splits at commas that stand neither in a quoted string nor in angle brackets.
func splitList(_ value: String) -> [String] {
    split(value, at: UInt8(ascii: ","))
}

/// Splits at `separator`, except in quoted strings and angle brackets. Pieces are trimmed; empty ones
/// dropped.
func split(_ value: String, at separator: UInt8) -> [String] {
    var pieces: [String] = []
    var piece: [UInt8] = []
    var quotes = QuotedStrings()
    var bracketed = false
    for byte in value.utf8 {
        if quotes.contains(byte) {
            // No separator.
        } else if byte == UInt8(ascii: "<") {
            bracketed = true
        } else if byte == UInt8(ascii: ">") {
            bracketed = false
        } else if byte == separator && !bracketed {
            pieces.append(trimmed(piece))
            piece.removeAll(keepingCapacity: true)
            continue
        }
        piece.append(byte)
    }
    pieces.append(trimmed(piece))
    return pieces.filter { !$0.isEmpty }
}

/// The text without white space at its ends.
func trimmed(_ bytes: some BidirectionalCollection<UInt8>) -> String {
    func isSpace(_ byte: UInt8) -> Bool { byte == 0x20 || byte == 0x09 }
    var rest = bytes[...]
    while let first = rest.first, isSpace(first) { rest.removeFirst() }
    while let last = rest.last, isSpace(last) { rest.removeLast() }
    return String(decoding: rest, as: UTF8.self)
}

/// Follows the quoted strings of a header, with their escapes (RFC 3261 §25.1).
struct QuotedStrings {
    private var isQuoted = false
    private var isEscaped = false

    /// Whether the next byte is part of a quoted string, quotation marks included.
    mutating func contains(_ byte: UInt8) -> Bool {
        guard isQuoted else {
            isQuoted = byte == UInt8(ascii: "\"")
            return isQuoted
        }
        if isEscaped {
            isEscaped = false
        } else if byte == UInt8(ascii: "\\") {
            isEscaped = true
        } else if byte == UInt8(ascii: "\"") {
            isQuoted = false
        }
        return true
    }
}
