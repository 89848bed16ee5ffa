package final class SIPSettings: Sendable {
    /// RFC 5626 §4.4: 120 s unless the registrar's Flow-Timer says otherwise. It has to be longer than the 10
    /// s that an answer may take.
    package static let streamInterval = IntervalLimits(
        shortest: .seconds(15), standard: .seconds(120), longest: .translatedStream)
    /// RFC 5626 §4.4: 29 s, with the same exception.
    package static let datagramInterval = IntervalLimits(
        shortest: .seconds(15), standard: .seconds(29), longest: .translatedDatagrams)
    package static let mostUsers = 16
    package static let longestHeader = 512

    /// The owner's capabilities in an answer (RFC 3261 §11.2).
    package struct Capabilities: Sendable, Hashable {
        /// The methods that it takes part in.
        package var allow = "INVITE, ACK, CANCEL, OPTIONS, BYE"
        package var accept = "application/sdp"
        package var acceptEncoding = "identity"
        package var acceptLanguage = "en"
        /// The extensions; empty where there are none, as the header may be (§20.37).
        package var supported = ""
        /// Where it can be reached; empty for no such header.
        package var contact = ""
        /// Its name; empty for no such header.
        package var userAgent = ""

        package init() {}
    }

    package let streamInterval: Duration
    package let datagramInterval: Duration
    let users: [String]
    let sendsPings: Bool
    /// The lines of the answer that are always the same.
    let headers: [UInt8]
    let tagKey: UInt128

    /// - Parameters:
    ///   - users: the user parts of the owner's addresses, as written in requests; none: every request on the
    ///     socket is for the owner.
    ///   - sendsPings: whether the peer supports RFC 5626. One that does not answers no pings, and each would
    ///     wake the owner.
    ///   - tagKey: a random secret of the machine, from which tags are made.
    package init(
        capabilities: Capabilities = Capabilities(), users: [String] = [], sendsPings: Bool = true,
        tagKey: UInt128, streamInterval: Duration? = nil, datagramInterval: Duration? = nil
    ) throws(SettingsError) {
        guard users.count <= Self.mostUsers else { throw .tooMany("users", limit: Self.mostUsers) }
        for user in users { try Self.check(user, "users") }
        self.streamInterval = try Self.streamInterval.checked(streamInterval)
        self.datagramInterval = try Self.datagramInterval.checked(datagramInterval)
        self.users = users
        self.sendsPings = sendsPings
        self.tagKey = tagKey
        headers = try Self.lines(capabilities)
    }

    private static func lines(_ capabilities: Capabilities) throws(SettingsError) -> [UInt8] {
        var output: [UInt8] = []
        let required = [
            ("Allow", capabilities.allow), ("Accept", capabilities.accept),
            ("Accept-Encoding", capabilities.acceptEncoding),
            ("Accept-Language", capabilities.acceptLanguage),
            ("Supported", capabilities.supported),
        ]
        let optional = [("Contact", capabilities.contact), ("User-Agent", capabilities.userAgent)]
        for (name, value) in required + optional.filter({ !$0.1.isEmpty }) {
            if !value.isEmpty { try check(value, name) }
            output.append(value.isEmpty ? "\(name):\r\n" : "\(name): \(value)\r\n")
        }
        return output
    }

    private static func check(_ text: String, _ name: String) throws(SettingsError) {
        guard text.utf8.count <= longestHeader else { throw .tooLong(name, limit: longestHeader) }
        guard !text.isEmpty, text.utf8.allSatisfy(\.isText) else { throw .illegalText(name) }
    }
}
