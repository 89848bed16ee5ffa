/// Identifies a task of this user's transfers, for ever: numbers are not used again.
package struct TaskID: Hashable, Comparable, Sendable {
    package let rawValue: Int64

    package init(_ rawValue: Int64) { self.rawValue = rawValue }

    package static func < (left: TaskID, right: TaskID) -> Bool { left.rawValue < right.rawValue }
}

/// Identifies a session of this user's transfers.
package struct SessionID: Hashable, Comparable, Sendable {
    package let rawValue: Int64

    package init(_ rawValue: Int64) { self.rawValue = rawValue }

    package static func < (left: SessionID, right: SessionID) -> Bool { left.rawValue < right.rawValue }
}

package struct HeaderField: Hashable, Sendable {
    package var name: String
    package var value: String

    package init(_ name: String, _ value: String) {
        self.name = name
        self.value = value
    }

    /// Whether it can be sent: a line break in it would begin another field (RFC 9110 section 5.5).
    package var isValid: Bool {
        !name.isEmpty && name.utf8.allSatisfy { $0 > 0x20 && $0 < 0x7F && $0 != UInt8(ascii: ":") }
            && value.utf8.allSatisfy { $0 >= 0x20 && $0 != 0x7F || $0 == 0x09 }
    }

    /// Fields that the engine writes itself.
    package var isReserved: Bool {
        ["range", "if-range", "content-length", "transfer-encoding", "accept-encoding", "connection", "host"]
            .contains(name.lowercased())
    }
}

/// The things that a client asks for in one task.
package struct TransferTask: Hashable, Sendable {
    package enum Kind: Int, Hashable, Sendable {
        case download = 0
        /// The body is a file of the session, a copy of the client's.
        case upload = 1
    }

    package var kind: Kind
    package var url: TransferURL
    /// `GET` of a download; `PUT` or `POST` of an upload.
    package var method: String
    package var fields: [HeaderField]
    /// The address of a proxy, with or without a scheme; nil: as the environment says.
    package var proxy: String?
    /// Compute the SHA-256 of the file.
    package var wantsDigest: Bool
    /// The SHA-256 that the file must have; 32 bytes.
    package var expectedDigest: [UInt8]?
    /// It waits for a good moment.
    package var isDiscretionary: Bool

    package init(
        kind: Kind = .download, url: TransferURL, method: String? = nil, fields: [HeaderField] = [],
        proxy: String? = nil, wantsDigest: Bool = false, expectedDigest: [UInt8]? = nil,
        isDiscretionary: Bool = false
    ) {
        self.kind = kind
        self.url = url
        self.method = method ?? (kind == .download ? "GET" : "PUT")
        self.fields = fields
        self.proxy = proxy
        self.wantsDigest = wantsDigest
        self.expectedDigest = expectedDigest
        self.isDiscretionary = isDiscretionary
    }

    /// Whether it can be sent twice with the effect of once (RFC 9110 section 9.2.2).
    package var isIdempotent: Bool { method != "POST" && method != "PATCH" }

    package static let methods: Set = ["GET", "PUT", "POST", "PATCH"]
    /// In bytes of UTF-8, of all fields together.
    package static let maximumFieldBytes = 16 * 1024

    /// The reason why it cannot be done; nil: it can.
    package var flaw: String? {
        guard Self.methods.contains(method), (kind == .download) == (method == "GET") else {
            return "the method \(method) is not for this kind of task"
        }
        if let field = fields.first(where: { !$0.isValid || $0.isReserved }) {
            return "the header field \(field.name) cannot be set"
        }
        guard fields.reduce(0, { $0 + $1.name.utf8.count + $1.value.utf8.count }) <= Self.maximumFieldBytes
        else { return "the header fields are longer than \(Self.maximumFieldBytes) bytes" }
        if let proxy, !Self.isProxy(proxy) {
            return "the proxy \(proxy.debugDescription) is no address of one"
        }
        if let expectedDigest, expectedDigest.count != 32 { return "a SHA-256 has 32 bytes" }
        return nil
    }

    private static let proxySchemes: Set = ["http", "https", "socks4", "socks4a", "socks5", "socks5h"]

    /// libcurl takes others for names of hosts, and such a task would wait until they can be resolved.
    private static func isProxy(_ text: String) -> Bool {
        var rest = text[...]
        if let end = rest.firstRange(of: "://") {
            guard proxySchemes.contains(rest[..<end.lowerBound].lowercased()) else { return false }
            rest = rest[end.upperBound...]
        }
        if rest.last == "/" { rest.removeLast() }
        return !rest.contains { "/?#".contains($0) } && TransferURL("http://\(rest)") != nil
    }
}
