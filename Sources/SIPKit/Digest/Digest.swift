internal import Crypto

/// The hash functions of digest authentication (RFC 7616 §3.2, RFC 8760 for SIP), weakest first.
public enum DigestAlgorithm: String, Sendable, CaseIterable {
    case md5 = "MD5"
    case sha256 = "SHA-256"

    /// The hash as lower-case hexadecimal digits.
    public func hash(_ text: String) -> String {
        switch self {
        case .md5: hexadecimal(digest(Insecure.MD5.self, text))
        case .sha256: hexadecimal(digest(SHA256.self, text))
        }
    }

    private func digest<Function: HashFunction>(_: Function.Type, _ text: String) -> Function.Digest {
        var function = Function()
        Array(text.utf8).withUnsafeBytes { function.update(bufferPointer: $0) }
        return function.finalize()
    }
}

/// Two lower-case digits for each byte.
func hexadecimal(_ bytes: some Sequence<UInt8>) -> String {
    let digits = Array("0123456789abcdef".utf8)
    var text: [UInt8] = []
    for byte in bytes {
        text.append(digits[Int(byte >> 4)])
        text.append(digits[Int(byte & 0xF)])
    }
    return String(decoding: text, as: UTF8.self)
}

/// The parts of a `Digest …` header value.
struct DigestFields {
    private var values: [String: String] = [:]

    /// Nil unless the scheme is Digest.
    init?(parsing value: String) {
        guard let space = value.utf8.firstIndex(where: { $0 == 0x20 || $0 == 0x09 }),
            value[..<space].lowercased() == "digest"
        else { return nil }
        for piece in splitList(String(value[value.index(after: space)...])) {
            guard let equals = piece.utf8.firstIndex(of: UInt8(ascii: "=")) else { return nil }
            let name = trimmed(piece[..<equals].utf8).lowercased()
            let text = trimmed(piece[piece.index(after: equals)...].utf8)
            // A parameter that stands there twice could be read in two ways: refuse it.
            guard values.updateValue(unquoted(text), forKey: name) == nil else { return nil }
        }
    }

    subscript(_ name: String) -> String? { values[name] }
}

private func unquoted(_ text: String) -> String {
    guard text.utf8.count >= 2, text.utf8.first == UInt8(ascii: "\""), text.utf8.last == UInt8(ascii: "\"")
    else {
        return text
    }
    var bytes: [UInt8] = []
    var escaped = false
    for byte in text.utf8.dropFirst().dropLast() {
        if !escaped && byte == UInt8(ascii: "\\") {
            escaped = true
        } else {
            bytes.append(byte)
            escaped = false
        }
    }
    return String(decoding: bytes, as: UTF8.self)
}

func quoted(_ text: String) -> String {
    let escaped = text.utf8.flatMap { byte -> [UInt8] in
        byte == UInt8(ascii: "\"") || byte == UInt8(ascii: "\\") ? [UInt8(ascii: "\\"), byte] : [byte]
    }
    return "\"\(String(decoding: escaped, as: UTF8.self))\""
}

/// A server's demand for credentials.
public struct DigestChallenge: Sendable, Equatable {
    public var realm: String
    public var nonce: String
    public var opaque: String?
    public var algorithm: DigestAlgorithm
    /// Whether the server offers `qop=auth`; without it the response is computed as in RFC 2069.
    public var offersAuth: Bool
    /// The nonce had run out, the password was right.
    public var isStale: Bool

    public init(realm: String, nonce: String, algorithm: DigestAlgorithm, isStale: Bool = false) {
        self.realm = realm
        self.nonce = nonce
        self.algorithm = algorithm
        self.isStale = isStale
        opaque = nil
        offersAuth = true
    }

    /// Nil when the scheme, the algorithm or all of the qop values are unknown.
    public init?(parsing value: String) {
        guard let fields = DigestFields(parsing: value), let realm = fields["realm"],
            let nonce = fields["nonce"]
        else { return nil }
        let name = (fields["algorithm"] ?? "MD5").uppercased()
        guard let algorithm = DigestAlgorithm(rawValue: name) else { return nil }
        let qualities = fields["qop"].map { splitList($0).map { $0.lowercased() } }
        if let qualities, !qualities.contains("auth") { return nil }
        self.realm = realm
        self.nonce = nonce
        self.algorithm = algorithm
        opaque = fields["opaque"]
        offersAuth = qualities != nil
        isStale = fields["stale"]?.lowercased() == "true"
    }

    public var headerValue: String {
        var value = "Digest realm=\(quoted(realm)), nonce=\(quoted(nonce)), algorithm=\(algorithm.rawValue)"
        if offersAuth { value += ", qop=\"auth\"" }
        if let opaque { value += ", opaque=\(quoted(opaque))" }
        if isStale { value += ", stale=true" }
        return value
    }
}

/// The answer to a challenge.
public struct DigestCredentials: Sendable, Equatable {
    public var username: String
    public var realm: String
    public var nonce: String
    public var uri: String
    public var response: String
    public var algorithm: DigestAlgorithm
    public var opaque: String?
    /// With `qop=auth`.
    public var quality: (cnonce: String, count: UInt32)? {
        get { cnonce.map { ($0, count) } }
        set {
            cnonce = newValue?.cnonce
            count = newValue?.count ?? 0
        }
    }
    private var cnonce: String?
    private var count: UInt32 = 0

    /// Computes the response. `count` is how often this nonce has been used, this time included.
    public init(
        username: String, password: String, challenge: DigestChallenge, method: SIPMethod, uri: String,
        cnonce: String, count: UInt32
    ) {
        self.username = username
        self.uri = uri
        realm = challenge.realm
        nonce = challenge.nonce
        algorithm = challenge.algorithm
        opaque = challenge.opaque
        response = ""
        quality = challenge.offersAuth ? (cnonce, count) : nil
        response = expectedResponse(password: password, method: method)
    }

    public init?(parsing value: String) {
        guard let fields = DigestFields(parsing: value), let username = fields["username"],
            let realm = fields["realm"], let nonce = fields["nonce"], let uri = fields["uri"],
            let response = fields["response"],
            let algorithm = DigestAlgorithm(rawValue: (fields["algorithm"] ?? "MD5").uppercased())
        else { return nil }
        self.username = username
        self.realm = realm
        self.nonce = nonce
        self.uri = uri
        self.response = response.lowercased()
        self.algorithm = algorithm
        opaque = fields["opaque"]
        guard let quality = fields["qop"] else { return }
        guard quality.lowercased() == "auth", let cnonce = fields["cnonce"], let digits = fields["nc"],
            digits.utf8.count == 8, let count = UInt32(digits, radix: 16)
        else { return nil }
        self.quality = (cnonce, count)
    }

    /// The valid `response` for that password (RFC 7616 §3.4.1).
    public func expectedResponse(password: String, method: SIPMethod) -> String {
        let secret = algorithm.hash("\(username):\(realm):\(password)")
        let request = algorithm.hash("\(method.rawValue):\(uri)")
        guard let quality else { return algorithm.hash("\(secret):\(nonce):\(request)") }
        let count = countDigits(quality.count)
        return algorithm.hash("\(secret):\(nonce):\(count):\(quality.cnonce):auth:\(request)")
    }

    public var headerValue: String {
        var value = "Digest username=\(quoted(username)), realm=\(quoted(realm)), nonce=\(quoted(nonce)), "
        value += "uri=\(quoted(uri)), response=\"\(response)\", algorithm=\(algorithm.rawValue)"
        if let quality {
            value += ", qop=auth, nc=\(countDigits(quality.count)), cnonce=\(quoted(quality.cnonce))"
        }
        if let opaque { value += ", opaque=\(quoted(opaque))" }
        return value
    }

    public static func == (left: Self, right: Self) -> Bool { left.headerValue == right.headerValue }
}

private func countDigits(_ count: UInt32) -> String {
    let digits = String(count, radix: 16)
    return String(repeating: "0", count: 8 - digits.utf8.count) + digits
}
