/// The transports of SIP.
public enum SIPTransport: String, Sendable, Hashable, CaseIterable {
    case udp = "UDP"
    case tcp = "TCP"

    /// On a reliable transport nothing is sent twice (RFC 3261 §17).
    public var isReliable: Bool { self == .tcp }
}

/// One hop on the way of a request, which the response goes back through (RFC 3261 §20.42).
public struct Via: Sendable, Equatable, CustomStringConvertible {
    /// `UDP`, `TCP`, or one that this library does not speak.
    public var transport: String
    public var host: String
    public var port: UInt16?
    public var parameters: SIPParameters

    public init(_ transport: SIPTransport, host: String, port: UInt16?, branch: String) {
        self.transport = transport.rawValue
        self.host = host
        self.port = port
        parameters = SIPParameters()
        parameters["branch"] = branch
        // Answers come to the port that the request left from (RFC 3581).
        parameters["rport"] = ""
    }

    /// White space is allowed around the slashes and the colon.
    public init(parsing text: String) throws(SIPParseError) {
        func fail() -> SIPParseError { .malformedValue("Via: \(text)") }
        var pieces = split(text, at: UInt8(ascii: ";"))
        guard !pieces.isEmpty else { throw fail() }
        let protocolAndHost = pieces.removeFirst()
        parameters = SIPParameters(pieces)
        let parts = protocolAndHost.split(separator: "/", maxSplits: 2).map { trimmed($0.utf8) }
        guard parts.count == 3, parts[0].uppercased() == "SIP", parts[1] == "2.0" else { throw fail() }
        let last = parts[2].utf8
        guard let space = last.firstIndex(where: { $0 == 0x20 || $0 == 0x09 }) else { throw fail() }
        transport = String(parts[2][..<space]).uppercased()
        (host, port) = try parseHostPort(trimmed(last[space...]))
    }

    public var branch: String? { parameters["branch"] }

    public var description: String {
        "SIP/2.0/\(transport) \(host)\(port.map { ":\($0)" } ?? "")\(parameters)"
    }

    /// Every branch that names a transaction begins so (RFC 3261 §8.1.1.7).
    public static let branchCookie = "z9hG4bK"
}
