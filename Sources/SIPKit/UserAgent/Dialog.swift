/// The address of a user agent: its own end of the connection to its server.
public struct SIPEndpoint: Sendable, Equatable {
    public var user: String
    public var transport: SIPTransport
    public var host: String
    public var port: UInt16

    public init(user: String, transport: SIPTransport, host: String, port: UInt16) {
        self.user = user
        self.transport = transport
        self.host = host
        self.port = port
    }

    /// The URI for `Contact`.
    public var contact: SIPURI {
        var uri = SIPURI(user: user, host: host, port: port)
        uri.parameters["transport"] = transport.rawValue.lowercased()
        return uri
    }

    /// A `Via` for a new transaction.
    func newVia() -> String {
        Via(transport, host: host, port: port, branch: "\(Via.branchCookie)\(newToken())").description
    }
}

/// A random name for a tag, a branch or a call.
func newToken() -> String {
    var random = SystemRandomNumberGenerator()
    return randomToken(using: &random)
}

/// The state of a call that both sides keep (RFC 3261 §12).
struct Dialog: Sendable {
    let callID: String
    let localTag: String
    let remoteTag: String
    /// `From` of our requests, with the tag.
    private let local: String
    /// `To` of our requests, with the tag.
    private let remote: String
    private(set) var remoteTarget: String
    private let routes: [String]
    private var localCSeq: UInt32
    private(set) var remoteCSeq: UInt32

    /// The called side. Nil: a header is missing without which there is no dialog.
    init?(answering invite: SIPMessage, tag: String) {
        guard let callID = invite.callID, let remoteTag = invite.fromTag, let from = invite.headers[.from],
            let to = invite.headers[.to], let cSeq = invite.cSeq, let target = Self.target(of: invite)
        else { return nil }
        self.callID = callID
        self.remoteTag = remoteTag
        localTag = tag
        local = "\(to);tag=\(tag)"
        remote = from
        remoteTarget = target
        routes = invite.headers.list(.recordRoute)
        localCSeq = 0
        remoteCSeq = cSeq.number
    }

    /// The calling side, after a response that made the dialog.
    init?(calling invite: SIPMessage, response: SIPMessage) {
        guard let callID = invite.callID, let localTag = invite.fromTag, let remoteTag = response.toTag,
            let from = invite.headers[.from], let to = response.headers[.to], let cSeq = invite.cSeq,
            let target = Self.target(of: response)
        else { return nil }
        self.callID = callID
        self.localTag = localTag
        self.remoteTag = remoteTag
        local = from
        remote = to
        remoteTarget = target
        routes = response.headers.list(.recordRoute).reversed()
        localCSeq = cSeq.number
        remoteCSeq = 0
    }

    private static func target(of message: SIPMessage) -> String? {
        let contact = message.headers.list(.contact).first.flatMap { try? NameAddress(parsing: $0) }
        return contact?.uri.description
    }

    /// Whether a request from the other side belongs to this dialog.
    func owns(_ request: SIPMessage) -> Bool {
        request.callID == callID && request.toTag == localTag && request.fromTag == remoteTag
    }

    /// A request of the other side has come. False: it is older than one before (§12.2.2).
    mutating func accept(_ request: SIPMessage) -> Bool {
        guard let number = request.cSeq?.number, number >= remoteCSeq else { return false }
        remoteCSeq = number
        return true
    }

    /// The other side may have moved (target refresh by re-INVITE).
    mutating func refreshTarget(_ request: SIPMessage) {
        if let target = Self.target(of: request) { remoteTarget = target }
    }

    mutating func request(_ method: SIPMethod, from endpoint: SIPEndpoint) -> SIPMessage {
        localCSeq += 1
        return message(method, number: localCSeq, from: endpoint)
    }

    /// The ACK of a 2xx has the number of its INVITE and a branch of its own (§13.2.2.4).
    func acknowledgement(of invite: SIPMessage, from endpoint: SIPEndpoint) -> SIPMessage {
        message(.ack, number: invite.cSeq?.number ?? localCSeq, from: endpoint)
    }

    private func message(_ method: SIPMethod, number: UInt32, from endpoint: SIPEndpoint) -> SIPMessage {
        var request = SIPMessage(.request(method: method, uri: remoteTarget))
        request.headers = [
            .via: endpoint.newVia(), .maxForwards: "70", .from: local, .to: remote, .callID: callID,
            .cSeq: CSeq(number, method).description,
        ]
        for route in routes { request.headers.append(.route, route) }
        return request
    }
}

/// A session without any media: these examples are about signalling.
func sessionDescription(host: String) -> [UInt8] {
    let lines = [
        "v=0", "o=- 1 1 IN IP4 \(host)", "s=-", "c=IN IP4 \(host)", "t=0 0", "m=audio 9 RTP/AVP 0",
        "a=rtpmap:0 PCMU/8000", "a=inactive",
    ]
    return Array((lines.joined(separator: "\r\n") + "\r\n").utf8)
}
