import NightbellProfiles
import Testing

@Suite("xmpp")
struct XMPPTests {
    private func desk(
        _ ping: XMPPSettings.Ping = .query, server: String? = nil, address: String? = nil,
        counters: DelegatedValues? = nil
    ) throws -> Desk {
        try Desk(
            .xmpp(
                try XMPPSettings(
                    ping: ping, server: server, address: address, usesStreamManagement: counters != nil)),
            delegating: counters ?? .nothing)
    }

    private static func noise(_ text: String, _ noise: Noise = .ping) -> Verdict {
        .noise(length: text.utf8.count, noise)
    }

    static let answered: [(String, String)] = [
        // As in XEP-0199 §4.1.
        (
            "<iq from='example.org' to='juliet@example.org/balcony' id='s2c1' type='get'><ping xmlns='urn:xmpp:ping'/></iq>",
            "<iq type='result' id='s2c1' to='example.org' from='juliet@example.org/balcony'/>"
        ),
        // Prosody's and Openfire's shapes.
        (
            "<iq id='a-1' type='get' to='a@b/c' from='b'><ping xmlns='urn:xmpp:ping'/></iq>",
            "<iq type='result' id='a-1' to='b' from='a@b/c'/>"
        ),
        (
            "<iq xmlns=\"jabber:client\" type=\"get\" id=\"7\" from=\"b\"><ping xmlns=\"urn:xmpp:ping\"></ping></iq>",
            "<iq type='result' id=\"7\" to=\"b\"/>"
        ),
        ("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>", "<iq type='result' id='1'/>"),
        (
            "<iq\n  type='get'\r\n\tid = '1'/>".replacing(" = ", with: "=").replacing("/>", with: "")
                + " xml:lang='en' ><ping   xmlns='urn:xmpp:ping' ></ping ></iq >",
            "<iq type='result' id='1'/>"
        ),
        // Quotes and references stay as legal as they were.
        (
            "<iq type='get' id='a\"b&apos;&lt;&amp;c' from=\"b\"><ping xmlns='urn:xmpp:ping'/></iq>",
            "<iq type='result' id='a\"b&apos;&lt;&amp;c' to=\"b\"/>"
        ),
        (
            "<iq type='get' id='1' to='zoë@b/☎'><ping xmlns='urn:xmpp:ping'/></iq>",
            "<iq type='result' id='1' from='zoë@b/☎'/>"
        ),
    ]

    @Test("The server's pings are answered", arguments: answered)
    func pings(ping: String, answer: String) throws {
        Expectation(ping, ping, Self.noise(ping), reply: answer).check(try desk(server: server(of: ping)))
    }

    /// The values of `from`.
    private func server(of ping: String) -> String? {
        for server in ["example.org", "b"]
        where ping.contains("from='\(server)'") || ping.contains("from=\"\(server)\"") {
            return server
        }
        return nil
    }

    @Test(
        "Without a server's name, the account's own addresses count as the server",
        arguments: [
            ("example.org", true), ("me@example.org", true), ("me@example.org/a@b/c", true),
            ("example.net", false),
            ("you@example.org", false), ("me@example.org/other", false), ("xample.org", false),
            ("org", false),
        ])
    func speakers(from: String, isAnswered: Bool) throws {
        let ping = "<iq type='get' id='1' from='\(from)'><ping xmlns='urn:xmpp:ping'/></iq>"
        #expect(try desk(address: "me@example.org/a@b/c").answers(ping) == isAnswered)
        #expect(try !desk().answers(ping), "the sender may be any entity")
        #expect(try desk(address: "example.org").answers(ping) == (from == "example.org"))
    }

    static let refused: [(String, Significance)] = [
        ("<message from='a@b/c'><body>Hello</body></message>", .message),
        ("<presence/>", .message), ("</stream:stream>", .message), ("<stream:error>", .message),
        ("hello", .message),
        ("<iqx type='get' id='1'>", .message), ("<iq/>", .malformed), ("<iq>", .malformed),
        ("<iq type='get' id='1'/>", .message),
        ("<iq type='set' id='1'><ping xmlns='urn:xmpp:ping'/></iq>", .message),
        ("<iq type='get'><ping xmlns='urn:xmpp:ping'/></iq>", .malformed),
        ("<iq type='get' id=''><ping xmlns='urn:xmpp:ping'/></iq>", .malformed),
        ("<iq type='get' id='1' id='2'><ping xmlns='urn:xmpp:ping'/></iq>", .malformed),
        ("<iq type='get' id='1' x='2'><ping xmlns='urn:xmpp:ping'/></iq>", .unusual),
        ("<iq type='get' id='1' xmlns='jabber:server'><ping xmlns='urn:xmpp:ping'/></iq>", .unusual),
        ("<iq type='get' id='1'><query xmlns='urn:xmpp:ping'/></iq>", .message),
        ("<iq type='get' id='1'><pingx xmlns='urn:xmpp:ping'/></iq>", .message),
        ("<iq type='get' id='1'><ping xmlns='urn:xmpp:pong'/></iq>", .unusual),
        ("<iq type='get' id='1'><ping/></iq>", .unusual),
        ("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping' id='1'/></iq>", .unusual),
        ("<iq type='get' id='1'> <ping xmlns='urn:xmpp:ping'/></iq>", .message),
        ("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'>x</ping></iq>", .message),
        ("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/><x/></iq>", .message),
        ("<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iqq>", .malformed),
        ("<iq type='get' id='1' from='a@b/c'><ping xmlns='urn:xmpp:ping'/></iq>", .notForUs),
        ("<iq type='get' id='1' from='b/c'><ping xmlns='urn:xmpp:ping'/></iq>", .notForUs),
        ("<iq type='get' id='&nbsp;'><ping xmlns='urn:xmpp:ping'/></iq>", .malformed),
        ("<iq type='get' id='&'><ping xmlns='urn:xmpp:ping'/></iq>", .malformed),
        ("<iq type='get' id='a<b'><ping xmlns='urn:xmpp:ping'/></iq>", .malformed),
        ("<iq type=get id='1'>", .malformed), ("<iq type 'get' id='1'>", .unusual),
        ("<iqtype='get'>", .message), ("<iq type='get'id='1'>", .message), ("<iq / >", .malformed),
        ("<iq type='result' id='nb-0000000000000000'/>", .unexpectedAnswer),
        ("<iq type='error' id='1'/>", .message),
        ("<r xmlns='urn:xmpp:sm:3'/>", .notDelegated), ("<r/>", .unusual),
        ("<r xmlns='urn:xmpp:sm:2'/>", .unusual),
        ("<a xmlns='urn:xmpp:sm:3' h='1'/>", .message),
    ]

    @Test("Everything else wakes the owner", arguments: refused)
    func refusals(stanza: String, reason: Significance) throws {
        Expectation(stanza, stanza, .significant(reason)).check(try desk())
    }

    @Test("Bytes that are not UTF-8 are not sent back")
    func unicode() throws {
        let bytes =
            Array("<iq type='get' id='".utf8) + [0xC0, 0x80]
            + Array("'><ping xmlns='urn:xmpp:ping'/></iq>".utf8)
        Expectation("overlong", bytes, .significant(.malformed)).check(try desk())
        for (character, isLegal) in [
            ("\u{FFFD}", true), ("\u{FFFE}", false), ("\u{FFFF}", false), ("\u{10FFFF}", true),
            ("\u{A0}", true),
            ("\u{9F}", false), ("\u{80}", false), ("\u{7F}", false), ("\u{1}", false), ("\u{0}", false),
        ] {
            let ping = "<iq type='get' id='a\(character)'><ping xmlns='urn:xmpp:ping'/></iq>"
            #expect(try desk().answers(ping) == isLegal, "\(character.unicodeScalars)")
        }
    }

    @Test("White space is absorbed, in front of a stanza as well")
    func whiteSpace() throws {
        var desk = try desk(.whiteSpace)
        #expect(desk.inspect(" ") == (.noise(length: 1, .filler), ""))
        #expect(desk.inspect("\r\n \t<message>") == (.noise(length: 4, .filler), ""))
        #expect(desk.inspect("<message>").0 == .significant(.message))
        #expect(desk.profile.pinging == nil || desk.profile.pinging?.answerWithin == nil)
        desk.profile.begin()
        #expect(desk.ping() == [0x20])
        #expect(!desk.profile.isAwaitingAnswer)
        #expect(desk.inspect(String(repeating: " ", count: 10_000)).0 == .noise(length: 2_048, .filler))
    }

    @Test("Our ping, its result, and one that is late")
    func ownPings() throws {
        var desk = try desk()
        #expect(desk.profile.pinging?.latest == .seconds(300))
        let ping = try desk.sentPing()
        #expect(text(ping) == "<iq type='get' id='nb-1112131415161718'><ping xmlns='urn:xmpp:ping'/></iq>")
        #expect(
            desk.inspect("<iq type='result' id='nb-1112131415161719'/>").0 == .significant(.unexpectedAnswer))
        for result in [
            "<iq type='result' id='nb-1112131415161718' to='a@b/c' from='a@b'/>",
            "<iq id=\"nb-1112131415161718\" type=\"result\"></iq>",
        ] {
            var desk = desk
            desk.profile.begin()
            _ = desk.profile.end()
            desk.profile.begin()
            #expect(desk.inspect(result).0 == Self.noise(result, .filler), "the owner was awake in between")
            _ = desk.ping()
            #expect(desk.inspect(result).0 == Self.noise(result, .answer))
            #expect(!desk.profile.isAwaitingAnswer)
        }
    }

    @Test("An error of a peer without ping support is an answer, too")
    func errors() throws {
        var desk = try desk()
        #expect(
            desk.inspect("<iq type='error' id='nb-1112131415161718'/>").0 == .significant(.message),
            "to what?")
        desk.profile.begin()
        _ = desk.ping()
        for error in [
            "<iq type='error' id='nb-1112131415161718'/>",
            "<iq from='b' type='error' id='nb-1112131415161718'><ping xmlns='urn:xmpp:ping'/><error type='cancel'"
                + "><service-unavailable xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/>"
                + "<text a='>\"</iq>'>x > /y</text ></error></iq >",
        ] {
            Expectation(error, error, Self.noise(error, .answer)).check(desk)
            var desk = desk
            desk.profile.begin()
            #expect(desk.inspect(error + "<message/>").0 == Self.noise(error, .filler), "late")
        }
        for (content, reason) in [
            ("<!-- --></iq>", .unusual), ("<![CDATA[</iq>]]></iq>", .unusual),
            ("<error></iq></error>", .malformed),
            ("<a <b></iq>", .malformed), ("</iqq>", .malformed), ("</iq x>", .malformed),
            (String(repeating: "<error>", count: 400), .tooLong),
        ] as [(String, Significance)] {
            let error = "<iq type='error' id='nb-1112131415161718'>" + content
            Expectation(error, error, .significant(reason)).check(desk)
        }
    }

    @Test("A ping names the server, and only its pings are answered, if the settings name it")
    func server() throws {
        var desk = try desk(server: "example.org", address: "me@example.org/x")
        #expect(text(try desk.sentPing()).contains(" to='example.org'>"))
        let ping =
            "<iq type='get' id='1' from='example.org' to='me@example.org/x'><ping xmlns='urn:xmpp:ping'/></iq>"
        Expectation("to us", ping, Self.noise(ping), reply: desk.inspect(ping).reply).check(desk)
        for other in [
            ("from='example.org'", "from='example.net'"), ("to='me@example.org/x'", "to='me@example.org/y'"),
        ] {
            let ping = ping.replacing(other.0, with: other.1)
            Expectation(ping, ping, .significant(.notForUs)).check(desk)
        }
        for text in ["", "a'b", "a b<", "a&b"] {
            #expect(throws: SettingsError.illegalText("server")) { try XMPPSettings(server: text) }
        }
    }

    @Test("With stream management, counters are delegated, used, and returned with their changes")
    func streamManagement() throws {
        var desk = try desk(counters: .stanzaCounters(received: 4_294_967_295, sent: 7))
        #expect(
            desk.inspect("<r xmlns='urn:xmpp:sm:3'/>")
                == (.noise(length: 26, .ping), "<a xmlns='urn:xmpp:sm:3' h='4294967295'/>"))
        let ping = "<iq type='get' id='1'><ping xmlns='urn:xmpp:ping'/></iq>"
        #expect(desk.inspect(ping).0 == Self.noise(ping))
        #expect(desk.inspect("<r xmlns=\"urn:xmpp:sm:3\"></r>").reply == "<a xmlns='urn:xmpp:sm:3' h='0'/>")
        _ = desk.ping()
        let result = "<iq type='result' id='nb-1112131415161718'/>"
        #expect(desk.inspect(result).0 == Self.noise(result, .answer))
        #expect(desk.profile.end() == .stanzaCounters(received: 1, sent: 9))
    }

    @Test("With stream management and no counters, no stanza is received or sent for the owner")
    func withoutCounters() throws {
        let settings = ProfileSettings.xmpp(try XMPPSettings(usesStreamManagement: true))
        var desk = try Desk(settings)
        #expect(desk.profile.pinging == nil)
        #expect(desk.ping() == nil)
        #expect(desk.inspect(" ").0 == .noise(length: 1, .filler))
        Expectation("r", "<r xmlns='urn:xmpp:sm:3'/>", .significant(.notDelegated)).check(desk)
        Expectation("ping", Self.answered[3].0, .significant(.notDelegated)).check(desk)
    }

    @Test("A stanza that does not end is significant")
    func endless() throws {
        var desk = try desk()
        let start = "<iq type='get' id='"
        let padding = String(repeating: "x", count: 2_047 - start.utf8.count)
        #expect(desk.inspect(start + padding).0 == .needMore(limit: 2_048))
        #expect(desk.inspect(start + padding + "x").0 == .significant(.tooLong))
        desk.profile.begin()
        let whole = start + padding + "'><ping xmlns='urn:xmpp:ping'/></iq>"
        #expect(desk.inspect(whole).0 == .significant(.tooLong), "all there, and still too long")
        desk.profile.begin()
        #expect(desk.inspect("<iq" + String(repeating: " ", count: 5_000)).0 == .significant(.tooLong))
    }
}

extension Desk {
    fileprivate func answers(_ ping: String) -> Bool {
        var desk = self
        return desk.inspect(ping).0.isNoise
    }
}
