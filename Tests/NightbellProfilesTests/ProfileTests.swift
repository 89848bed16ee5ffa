import NightbellProfiles
import Testing

@Suite("Profiles")
struct ProfileTests {
    static let samples: [(ProfileName, [UInt8])] = [
        (.sip, [13, 10, 13, 10]), (.xmpp, [32]), (.webSocket, [0x89, 0]), (.irc, Array("PING :1\r\n".utf8)),
        (.imap, Array("* OK Still here\r\n".utf8)),
    ]

    private func profile(_ name: ProfileName, _ transport: Transport = .stream) throws -> Profile {
        try Profile(try #require(try .standard(name, tagKey: tagKey)), over: transport)
    }

    private func inspect(_ profile: inout Profile, _ bytes: [UInt8]) -> Verdict {
        var replies: [UInt8] = []
        return profile.inspect(bytes.span, ProfileContext(random: 0, peer: peer), replies: &replies)
    }

    @Test(
        "Nothing is noise before the owner has guaranteed the boundary, nor after it was woken",
        arguments: samples)
    func boundaries(name: ProfileName, noise: [UInt8]) throws {
        var profile = try profile(name)
        #expect(inspect(&profile, noise) == .significant(.unsettled))
        profile.begin()
        #expect(inspect(&profile, noise).isNoise)
        #expect(inspect(&profile, [0xFF]).isSignificant)
        #expect(inspect(&profile, noise) == .significant(.unsettled), "behind a significant message")
        profile.begin()
        #expect(inspect(&profile, noise).isNoise)
        _ = profile.end()
        #expect(inspect(&profile, noise) == .significant(.unsettled))
        var output: [UInt8] = []
        #expect(!profile.ping(ProfileContext(random: 0), into: &output) && output.isEmpty)
    }

    @Test("Zero bytes of a stream are no message", arguments: ProfileName.allCases)
    func nothing(name: ProfileName) throws {
        guard let settings = try ProfileSettings.standard(name, tagKey: tagKey) else { return }
        var profile = try Profile(settings, over: .stream)
        profile.begin()
        guard case .needMore(let limit) = inspect(&profile, []) else {
            #expect(Bool(false))
            return
        }
        #expect(limit > 0)
    }

    @Test("Profiles check their transport", arguments: ProfileName.allCases)
    func transports(name: ProfileName) throws {
        guard let settings = try ProfileSettings.standard(name, tagKey: tagKey) else { return }
        for transport in Transport.allCases {
            if name.transports.contains(transport) {
                _ = try Profile(settings, over: transport)
            } else {
                #expect(throws: SettingsError.transportNotSupported(transport)) {
                    try Profile(settings, over: transport)
                }
            }
        }
    }

    @Test("Each datagram is inspected by itself")
    func datagrams() throws {
        var profile = try profile(.sip, .datagram)
        profile.begin()
        #expect(inspect(&profile, [0, 0, 0, 0]).isNoise)
        #expect(inspect(&profile, Array("INVITE".utf8)).isSignificant)
        #expect(inspect(&profile, [0, 0, 0, 0]).isNoise)
    }

    @Test("A profile on a socket is small")
    func sizes() throws {
        #expect(MemoryLayout<Profile>.size <= 48)
        #expect(MemoryLayout<Profile>.stride <= 48)
        #expect(MemoryLayout<SIPProfile>.size <= 46)
        #expect(MemoryLayout<STUNProfile>.size <= 46)
        #expect(MemoryLayout<XMPPProfile>.size <= 32)
        #expect(MemoryLayout<WebSocketProfile>.size <= 24)
        #expect(MemoryLayout<MQTTProfile>.size <= 16)
        #expect(MemoryLayout<IRCProfile>.size <= 24)
        #expect(MemoryLayout<IMAPProfile>.size <= 40)
        #expect(MemoryLayout<PatternProfile>.size <= 16)
        #expect(MemoryLayout<TCPProfile>.size == 8)
    }

    @Test(
        "Addresses are written as in RFC 5952",
        arguments: [
            (0x2001_0DB8_0000_0000, 0x0000_0000_0000_0001, "2001:db8::1"),
            (0x2001_0DB8_0000_0000, 0x0001_0000_0000_0001, "2001:db8::1:0:0:1"),
            (0x2001_0DB8_0000_0001, 0x0001_0001_0001_0001, "2001:db8:0:1:1:1:1:1"),
            (0, 0, "::"), (0, 1, "::1"), (0x0001_0000_0000_0000, 0, "1::"),
            (0x2001_0000_0000_0001, 0x0000_0000_0000_0001, "2001:0:0:1::1"),
            (0xFE80_0000_0000_0000, 0x0ABC_00FF_000F_1234, "fe80::abc:ff:f:1234"),
        ] as [(UInt64, UInt64, String)])
    func addresses(high: UInt64, low: UInt64, expected: String) throws {
        var desk = try Desk(SIPTests.settings())
        let request = lines(SIPTests.keepAlive.replacing("192.0.2.1:5060", with: "h"))
        let reply = desk.inspect(request, from: Endpoint(v6: high, low, port: 1)).reply
        #expect(text(reply).contains(";received=\(expected)\r\n"))
    }
}

extension Verdict {
    var isNoise: Bool { if case .noise = self { true } else { false } }
    var isSignificant: Bool { if case .significant = self { true } else { false } }
}
