package import NightbellProfiles

/// A sleeper's keep-alives, inspected repeatedly.
package final class Judging: Workload {
    private var profile: Profile
    private let traffic: [UInt8]
    private var replies: [UInt8] = []
    private let profileContext = ProfileContext(random: 1, peer: Endpoint(v4: 0xC000_0201, port: 5_060))
    /// The amount of absorbed bytes.
    package private(set) var absorbed = 0

    package init(_ settings: ProfileSettings, over transport: Transport = .stream, _ traffic: [UInt8]) throws
    {
        profile = try Profile(settings, over: transport)
        profile.begin()
        self.traffic = traffic
        replies.reserveCapacity(4_096)
    }

    package func cycle() {
        replies.removeAll(keepingCapacity: true)
        let traffic = traffic
        if case .noise(let length, _) = profile.inspect(traffic.span, profileContext, replies: &replies) {
            absorbed += length
        }
    }

    /// Whether everything was noise.
    package func isSound(after cycles: Int) -> Bool { absorbed == cycles * traffic.count }
}

extension Judging {
    /// Keep-alives that are absorbed without an answer, and those that are answered, by name.
    package static var samples: [(name: String, isAnswered: Bool, make: () throws -> Judging)] {
        let options = """
            OPTIONS sip:bob@192.0.2.7:45476;transport=tcp SIP/2.0\r
            Via: SIP/2.0/TCP 192.0.2.1:5060;branch=z9hG4bKx.2.1.0\r
            From: <sip:ka@example.org>;tag=uloc-6b01-1\r
            To: <sip:bob@example.org>\r
            Call-ID: ksrulka-327eee8a-3bba-2.1\r
            CSeq: 80 OPTIONS\r
            Content-Length: 0\r
            \r\n
            """
        let query =
            "<iq from='example.org' to='a@example.org/x' id='s2c1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>"
        return [
            (
                "sip zeros", false,
                { try Judging(.sip(SIPSettings(tagKey: 1)), over: .datagram, [0, 0, 0, 0]) }
            ),
            ("xmpp space", false, { try Judging(.xmpp(XMPPSettings()), [0x20]) }),
            (
                "websocket pong", false,
                { try Judging(.webSocket(WebSocketSettings()), [0x8A, 4, 1, 2, 3, 4]) }
            ),
            ("imap filler", false, { try Judging(.imap(IMAPSettings()), Array("* OK Still here\r\n".utf8)) }),
            ("bytes filler", false, { try Judging(.pattern(.bytes([.init([1, 2])])), [1, 2]) }),
            ("sip OPTIONS", true, { try Judging(.sip(SIPSettings(tagKey: 1)), Array(options.utf8)) }),
            (
                "xmpp ping", true,
                { try Judging(.xmpp(XMPPSettings(server: "example.org")), Array(query.utf8)) }
            ),
            (
                "websocket ping", true,
                { try Judging(.webSocket(WebSocketSettings()), [0x89, 4, 1, 2, 3, 4]) }
            ),
            ("irc PING", true, { try Judging(.irc(IRCSettings()), Array("PING :irc.example.org\r\n".utf8)) }),
            ("mqtt PINGREQ", true, { try Judging(.mqtt(MQTTSettings(role: .server)), [0xC0, 0]) }),
        ]
    }
}
