/// Demands and checks credentials. A nonce lives for a limited time, and its count must rise with every use,
/// so that a recorded request cannot be played again.
public struct DigestServer: Sendable {
    public enum Verdict: Sendable, Equatable {
        case accepted(username: String)
        /// Answer 401 with these `WWW-Authenticate` values.
        case challenge([String])
    }

    private struct Nonce {
        var created: ContinuousClock.Instant
        var count: UInt32 = 0
    }

    private let realm: String
    private let lifetime: Duration
    private let limit: Int
    private let algorithms: [DigestAlgorithm]
    private var nonces: [String: Nonce] = [:]
    private var order: [String] = []

    /// At most `limit` nonces are remembered, the youngest.
    public init(
        realm: String, lifetime: Duration = .seconds(300), limit: Int = 4_096,
        algorithms: [DigestAlgorithm] = [.sha256, .md5]
    ) {
        self.realm = realm
        self.lifetime = lifetime
        self.limit = limit
        self.algorithms = algorithms
    }

    /// Checks the `Authorization` of a request. `password` gives a user's password, nil for an unknown user.
    public mutating func check(
        _ request: SIPMessage, at now: ContinuousClock.Instant,
        using random: inout some RandomNumberGenerator,
        password: (String) -> String?
    ) -> Verdict {
        guard case .request(let method, let uri) = request.startLine,
            let value = request.headers[.authorization],
            let credentials = DigestCredentials(parsing: value), credentials.realm == realm,
            algorithms.contains(credentials.algorithm), credentials.uri == uri,
            let quality = credentials.quality,
            let secret = password(credentials.username),
            isEqual(credentials.response, credentials.expectedResponse(password: secret, method: method))
        else { return challenge(stale: false, at: now, using: &random) }
        guard let nonce = nonces[credentials.nonce], now - nonce.created < lifetime,
            quality.count > nonce.count
        else { return challenge(stale: true, at: now, using: &random) }
        nonces[credentials.nonce]?.count = quality.count
        return .accepted(username: credentials.username)
    }

    private mutating func challenge(
        stale: Bool, at now: ContinuousClock.Instant, using random: inout some RandomNumberGenerator
    ) -> Verdict {
        if order.count >= limit { nonces[order.removeFirst()] = nil }
        let nonce = randomToken(using: &random) + randomToken(using: &random)
        nonces[nonce] = Nonce(created: now)
        order.append(nonce)
        return .challenge(
            algorithms.map { algorithm in
                DigestChallenge(realm: realm, nonce: nonce, algorithm: algorithm, isStale: stale).headerValue
            })
    }
}

/// Takes the same time wherever the texts differ.
private func isEqual(_ left: String, _ right: String) -> Bool {
    guard left.utf8.count == right.utf8.count else { return false }
    return zip(left.utf8, right.utf8).reduce(UInt8(0)) { $0 | ($1.0 ^ $1.1) } == 0
}
