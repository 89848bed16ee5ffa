/// Adds credentials to requests. Remembers the last challenge, so that later requests carry credentials at
/// once and are not challenged again as long as the server accepts the nonce.
public struct DigestClient: Sendable {
    private let username: String
    private let password: String
    private var challenge: DigestChallenge?
    private var isProxy = false
    private var count: UInt32 = 0

    public init(username: String, password: String) {
        self.username = username
        self.password = password
    }

    /// Puts credentials into the request if there has been a challenge.
    public mutating func authorize(
        _ request: inout SIPMessage, using random: inout some RandomNumberGenerator
    ) {
        guard let challenge, case .request(let method, let uri) = request.startLine else { return }
        count += 1
        let credentials = DigestCredentials(
            username: username, password: password, challenge: challenge, method: method, uri: uri,
            cnonce: randomToken(using: &random), count: count)
        request.headers[isProxy ? .proxyAuthorization : .authorization] = credentials.headerValue
    }

    /// Takes the challenge out of a 401 or 407. False: trying again would not help, because there is no
    /// challenge this library can answer, or because the server refuses the credentials of `request`.
    public mutating func accept(_ response: SIPMessage, to request: SIPMessage) -> Bool {
        let isProxy = response.status == 407
        let challenges = response.headers.all(isProxy ? .proxyAuthenticate : .wwwAuthenticate)
            .compactMap(DigestChallenge.init(parsing:))
        let order = DigestAlgorithm.allCases
        let strongest = challenges.max {
            (order.firstIndex(of: $0.algorithm) ?? 0) < (order.firstIndex(of: $1.algorithm) ?? 0)
        }
        guard let strongest else { return false }
        let answer = request.headers[isProxy ? .proxyAuthorization : .authorization]
        if let answered = answer.flatMap(DigestCredentials.init(parsing:)) {
            // The same nonce, or a new one that is not said to replace a stale one: the password is wrong.
            if answered.nonce == strongest.nonce || (!strongest.isStale && count == 1) { return false }
        }
        challenge = strongest
        self.isProxy = isProxy
        count = 0
        return true
    }
}

/// 64 random bits as hexadecimal digits: for tags, branches, Call-IDs and nonces.
public func randomToken(using random: inout some RandomNumberGenerator) -> String {
    let value: UInt64 = random.next()
    return hexadecimal((0..<8).map { UInt8(truncatingIfNeeded: value >> ($0 * 8)) })
}
