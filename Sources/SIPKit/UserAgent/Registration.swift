/// The reason why a registration failed.
public enum RegistrationFailure: Error, Sendable, Equatable, CustomStringConvertible {
    /// No answer came.
    case timedOut
    /// The connection was lost before the answer came.
    case disconnected
    case refused(status: Int, reason: String)

    public var description: String {
        switch self {
        case .timedOut: "no answer"
        case .disconnected: "connection lost"
        case .refused(let status, let reason): "\(status) \(reason)"
        }
    }
}

/// The binding of a user's address to its current contact (RFC 3261 §10), with digest authentication.
/// `Call-ID` and `CSeq` continue through all refreshes.
struct Registration: Sendable {
    enum Step: Sendable, Equatable {
        case send(SIPMessage)
        case granted(Duration)
        case failed(RegistrationFailure)
    }

    private let address: SIPURI
    private let registrar: SIPURI
    private var digest: DigestClient
    private let callID = newToken()
    private let tag = newToken()
    private let instance: String
    private var cSeq: UInt32 = 0
    private var expires: Int
    /// The request that waits for its answer, and how often it was sent for this registration.
    private var pending: (request: SIPMessage, attempts: Int)?

    init(user: String, password: String, domain: String, expires: Duration) {
        address = SIPURI(user: user, host: domain)
        registrar = SIPURI(host: domain)
        digest = DigestClient(username: user, password: password)
        self.expires = max(1, Int(expires.components.seconds))
        instance = "\"<urn:uuid:\(newUUID())>\""
    }

    var isPending: Bool { pending != nil }

    /// The request that makes or refreshes the binding, or removes it.
    mutating func begin(from endpoint: SIPEndpoint, removing: Bool = false) -> SIPMessage {
        request(from: endpoint, expires: removing ? 0 : expires, attempt: 1)
    }

    private mutating func request(from endpoint: SIPEndpoint, expires: Int, attempt: Int) -> SIPMessage {
        cSeq += 1
        var contact = NameAddress(endpoint.contact)
        // A new connection replaces the binding of the old one (RFC 5626 §4.1).
        contact.parameters["+sip.instance"] = instance
        contact.parameters["reg-id"] = "1"
        var request = SIPMessage(.request(method: .register, uri: registrar.description))
        request.headers = [
            .via: endpoint.newVia(), .maxForwards: "70", .from: "<\(address)>;tag=\(tag)",
            .to: "<\(address)>",
            .callID: callID, .cSeq: CSeq(cSeq, .register).description, .contact: contact.description,
            .expires: String(expires), .supported: "outbound, path",
        ]
        var random = SystemRandomNumberGenerator()
        digest.authorize(&request, using: &random)
        pending = (request, attempt)
        return request
    }

    /// A response to the pending request has come. Nil: it was only provisional.
    mutating func receive(_ response: SIPMessage, from endpoint: SIPEndpoint) -> Step? {
        guard let (request, attempts) = pending, case .response(let status, let reason) = response.startLine,
            status >= 200
        else { return nil }
        pending = nil
        let wanted = request.headers[.expires].flatMap { Int(decimal: $0) } ?? expires
        switch status {
        case 200...299:
            return .granted(.seconds(granted(by: response, to: endpoint, wanted: wanted)))
        case 401, 407:
            guard attempts < 3, digest.accept(response, to: request) else { break }
            return .send(self.request(from: endpoint, expires: wanted, attempt: attempts + 1))
        case 423:
            guard attempts < 3, let least = response.headers[.minExpires].flatMap({ Int(decimal: $0) }),
                least > wanted
            else { break }
            expires = least
            return .send(self.request(from: endpoint, expires: least, attempt: attempts + 1))
        default:
            break
        }
        return .failed(.refused(status: status, reason: reason))
    }

    mutating func abandon() { pending = nil }

    /// The lifetime that the server grants to our contact, or to all, or nil (§10.2.4).
    private func granted(by response: SIPMessage, to endpoint: SIPEndpoint, wanted: Int) -> Int {
        let own = response.headers.list(.contact).lazy
            .compactMap { try? NameAddress(parsing: $0) }
            .first { $0.uri.host == endpoint.host && $0.uri.port == endpoint.port }
        return own?.parameters["expires"].flatMap { Int(decimal: $0) }
            ?? response.headers[.expires].flatMap { Int(decimal: $0) } ?? wanted
    }
}

/// A random UUID (RFC 9562 §5.4).
private func newUUID() -> String {
    var digits = Array(newToken() + newToken())
    digits[12] = "4"
    digits[16] = ["8", "9", "a", "b"].randomElement() ?? "8"
    let cuts = [0..<8, 8..<12, 12..<16, 16..<20, 20..<32]
    return cuts.map { String(digits[$0]) }.joined(separator: "-")
}
