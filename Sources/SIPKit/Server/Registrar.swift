/// Names a connection to the server, or a peer's address and port for datagrams.
public struct FlowID: RawRepresentable, Sendable, Hashable {
    public var rawValue: UInt64
    public init(rawValue: UInt64) { self.rawValue = rawValue }
}

/// Where users can be reached (RFC 3261 §10.3): contact and the flow on which the registration came, since a
/// client behind a connection of its own can only be reached through that one (RFC 5626).
public struct Registrar: Sendable {
    public struct Binding: Sendable, Equatable {
        public var contact: SIPURI
        public var flow: FlowID
        public var expires: ContinuousClock.Instant
        fileprivate var instance: String
        fileprivate var callID: String
        fileprivate var cSeq: UInt32
    }

    public struct Limits: Sendable {
        public var minimumExpires: Duration = .seconds(2)
        public var maximumExpires: Duration = .seconds(7200)
        public var bindingsPerUser = 4

        public init() {}
    }

    private let passwords: [String: String]
    private let limits: Limits
    private var digest: DigestServer
    private var bindings: [String: [Binding]] = [:]

    /// `passwords` holds the users that may register.
    public init(domain: String, passwords: [String: String], limits: Limits = Limits()) {
        self.passwords = passwords
        self.limits = limits
        digest = DigestServer(realm: domain)
    }

    public func isKnown(_ user: String) -> Bool { passwords[user] != nil }

    /// Users with at least one binding.
    public func registeredUsers(at now: ContinuousClock.Instant) -> Int {
        bindings.values.count { $0.contains { $0.expires > now } }
    }

    /// The bindings of a user, the youngest last.
    public func bindings(of user: String, at now: ContinuousClock.Instant) -> [Binding] {
        (bindings[user] ?? []).filter { $0.expires > now }
    }

    /// A connection has ended: its bindings are removed.
    public mutating func flowEnded(_ flow: FlowID) {
        for user in bindings.keys { bindings[user]?.removeAll { $0.flow == flow } }
    }

    /// The answer to a REGISTER.
    public mutating func register(
        _ request: SIPMessage, on flow: FlowID, at now: ContinuousClock.Instant
    ) -> SIPMessage {
        let tag = newToken()
        var random = SystemRandomNumberGenerator()
        let username: String
        switch digest.check(request, at: now, using: &random, password: { passwords[$0] }) {
        case .accepted(let name):
            username = name
        case .challenge(let values):
            var answer = request.response(401, "Unauthorized", tag: tag)
            for value in values { answer.headers.append(.wwwAuthenticate, value) }
            return answer
        }
        let to = request.headers[.to].flatMap { try? NameAddress(parsing: $0) }
        guard let user = to?.uri.user, user == username else {
            return request.response(403, "Forbidden", tag: tag)
        }
        switch updated(bindings(of: user, at: now), by: request, on: flow, at: now) {
        case .success(let list):
            bindings[user] = list
            var answer = request.response(200, "OK", tag: tag)
            for binding in list { answer.headers.append(.contact, describe(binding, at: now)) }
            return answer
        case .failure(let refusal):
            var answer = request.response(refusal.status, refusal.reason, tag: tag)
            if refusal.status == 423 {
                answer.headers[.minExpires] = String(limits.minimumExpires.components.seconds)
            }
            return answer
        }
    }

    private struct Refusal: Error {
        var status: Int
        var reason: String
    }

    private func updated(
        _ list: [Binding], by request: SIPMessage, on flow: FlowID, at now: ContinuousClock.Instant
    ) -> Result<[Binding], Refusal> {
        guard let callID = request.callID, let cSeq = request.cSeq?.number else {
            return .failure(Refusal(status: 400, reason: "Bad Request"))
        }
        let common = request.headers[.expires].flatMap { Int(decimal: $0) } ?? 3600
        let contacts = request.headers.list(.contact)
        if contacts == ["*"] {
            return common == 0 ? .success([]) : .failure(Refusal(status: 400, reason: "Bad Request"))
        }
        var list = list
        for text in contacts {
            guard let contact = try? NameAddress(parsing: text) else {
                return .failure(Refusal(status: 400, reason: "Bad Contact"))
            }
            let instance = contact.parameters["+sip.instance"] ?? contact.uri.description
            if let old = list.first(where: { $0.instance == instance }) {
                // A request that was overtaken by a later one must not undo it (§10.3 step 7).
                guard old.callID != callID || old.cSeq < cSeq else {
                    return .failure(Refusal(status: 500, reason: "CSeq Out of Order"))
                }
                list.removeAll { $0.instance == instance }
            }
            let wanted = contact.parameters["expires"].flatMap { Int(decimal: $0) } ?? common
            guard wanted > 0 else { continue }
            guard .seconds(wanted) >= limits.minimumExpires else {
                return .failure(Refusal(status: 423, reason: "Interval Too Brief"))
            }
            let granted = min(Duration.seconds(wanted), limits.maximumExpires)
            list.append(
                Binding(
                    contact: contact.uri, flow: flow, expires: now + granted, instance: instance,
                    callID: callID,
                    cSeq: cSeq))
        }
        guard list.count <= limits.bindingsPerUser else {
            return .failure(Refusal(status: 403, reason: "Too Many Bindings"))
        }
        return .success(list)
    }

    private func describe(_ binding: Binding, at now: ContinuousClock.Instant) -> String {
        let rest = (binding.expires - now).components
        let seconds = rest.seconds + (rest.attoseconds > 0 ? 1 : 0)
        return "<\(binding.contact)>;expires=\(seconds)"
    }
}
