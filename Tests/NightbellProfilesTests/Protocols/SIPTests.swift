import NightbellProfiles
import Testing

@Suite("sip")
struct SIPTests {
    /// In the shape of Kamailio's usrloc.
    static let keepAlive = """
        OPTIONS sip:bob@192.0.2.7:45476;transport=tcp SIP/2.0
        Via: SIP/2.0/TCP 192.0.2.1:5060;branch=z9hG4bKx.2.1.0
        From: <sip:ka@example.org>;tag=uloc-6b01-1
        To: <sip:bob@example.org>
        Call-ID: ksrulka-327eee8a-3bba-2.1
        CSeq: 80 OPTIONS
        Content-Length: 0


        """
    /// A PBX's request with all of its headers.
    static let qualify = """
        OPTIONS sip:bob@192.0.2.7:45476 SIP/2.0
        Via: SIP/2.0/TCP pbx.example.org:5060;rport;branch=z9hG4bK1;alias
        Max-Forwards: 70
        From: "The \\"PBX\\" <;tag=1>" <sip:pbx@example.org>;tag=as4
        To: <sip:bob@192.0.2.7:45476;ob>
        Contact: <sip:pbx@192.0.2.1:5060>
        Call-ID: 5d1c@192.0.2.1:5060
        CSeq: 102 OPTIONS
        User-Agent: PBX
        Date: Mon, 01 Jan 2024 00:00:00 GMT
        Allow: INVITE, ACK, CANCEL, OPTIONS, BYE, REFER, SUBSCRIBE, NOTIFY
        Supported: replaces, timer
        Content-Length: 0


        """

    static func settings(users: [String] = []) throws -> ProfileSettings {
        .sip(try SIPSettings(users: users, tagKey: tagKey))
    }

    private func desk(_ transport: Transport = .stream) throws -> Desk {
        try Desk(try Self.settings(), over: transport)
    }

    // MARK: Answers

    @Test("A registrar's OPTIONS on a stream is answered as required by RFC 3261 §8.2.6 and §11.2")
    func answersKeepAlive() throws {
        var desk = try desk()
        let (verdict, reply) = desk.inspect(lines(Self.keepAlive))
        #expect(verdict == .noise(length: lines(Self.keepAlive).count, .ping))
        let answer = text(reply).split(separator: "\r\n", omittingEmptySubsequences: false)
        #expect(answer.first == "SIP/2.0 200 OK")
        #expect(answer.contains("Via: SIP/2.0/TCP 192.0.2.1:5060;branch=z9hG4bKx.2.1.0"))
        #expect(answer.contains("From: <sip:ka@example.org>;tag=uloc-6b01-1"))
        #expect(answer.contains { $0.hasPrefix("To: <sip:bob@example.org>;tag=") && $0.count == 46 })
        #expect(answer.contains("Call-ID: ksrulka-327eee8a-3bba-2.1"))
        #expect(answer.contains("CSeq: 80 OPTIONS"))
        #expect(answer.contains("Allow: INVITE, ACK, CANCEL, OPTIONS, BYE"))
        #expect(answer.contains("Accept: application/sdp"))
        #expect(answer.contains("Accept-Encoding: identity"))
        #expect(answer.contains("Accept-Language: en"))
        #expect(answer.contains("Supported:"))
        #expect(Array(answer.suffix(3)) == ["Content-Length: 0", "", ""])
        #expect(answer.count == 14)
    }

    @Test("A repetition gets the same tag, another request and another machine another one")
    func tags() throws {
        var desk = try desk()
        let first = desk.inspect(lines(Self.keepAlive)).reply
        #expect(desk.inspect(lines(Self.keepAlive)).reply == first)
        // SipHash-2-4 of Via, From, Call-ID and CSeq, each with a zero behind it, computed elsewhere.
        #expect(tag(first) == "d199aa735dc8f994")
        let other = Self.keepAlive.replacing("3bba-2.1", with: "3bba-2.2")
        #expect(tag(desk.inspect(lines(other)).reply) != tag(first))
        var stranger = try Desk(.sip(try SIPSettings(tagKey: 1)))
        #expect(tag(stranger.inspect(lines(Self.keepAlive)).reply) != tag(first))
    }

    private func tag(_ reply: [UInt8]) -> Substring? {
        text(reply).split(separator: "\r\n").first { $0.hasPrefix("To:") }?.split(separator: "tag=").last
    }

    @Test("A PBX that asks for rport gets its source port")
    func answersQualify() throws {
        var desk = try desk()
        let (verdict, reply) = desk.inspect(lines(Self.qualify))
        #expect(verdict == .noise(length: lines(Self.qualify).count, .ping))
        let via =
            "Via: SIP/2.0/TCP pbx.example.org:5060;rport=5060;branch=z9hG4bK1;alias;received=192.0.2.1\r\n"
        #expect(text(reply).contains(via))
        #expect(text(reply).contains("From: \"The \\\"PBX\\\" <;tag=1>\" <sip:pbx@example.org>;tag=as4\r\n"))
        #expect(text(reply).contains("To: <sip:bob@192.0.2.7:45476;ob>;tag="))
        #expect(!text(reply).contains("Date"))
    }

    @Test("Every Via comes back in its order, in one line or in several, by its short name too")
    func vias() throws {
        var desk = try desk()
        let request = Self.keepAlive.replacing(
            "Via: SIP/2.0/TCP 192.0.2.1:5060;branch=z9hG4bKx.2.1.0",
            with: """
                v: SIP/2.0/TCP 192.0.2.9;branch=1 , SIP/2.0/UDP a.example.org;branch=2
                Via:SIP/2.0/TLS [2001:db8::1]:5061;branch=3
                vIA : SIP/2.0/UDP last;branch=4;received=192.0.2.3
                """)
        let reply = text(desk.inspect(lines(request)).reply)
        let expected = lines(
            """
            SIP/2.0 200 OK
            Via: SIP/2.0/TCP 192.0.2.9;branch=1;received=192.0.2.1 , SIP/2.0/UDP a.example.org;branch=2
            Via: SIP/2.0/TLS [2001:db8::1]:5061;branch=3
            Via: SIP/2.0/UDP last;branch=4;received=192.0.2.3
            From:
            """)
        #expect(reply.hasPrefix(text(expected)))
    }

    @Test(
        "IPv6 peers",
        arguments: [
            ("[2001:db8::1]", ""), ("[2001:DB8::1]", ";received=2001:db8::1"),
            ("[2001:db8::2]", ";received=2001:db8::1"), ("2001", ";received=2001:db8::1"),
        ])
    func addresses(host: String, received: String) throws {
        var desk = try desk()
        let request = Self.keepAlive.replacing("192.0.2.1:5060;branch=z9hG4bKx.2.1.0", with: host)
        let peer = Endpoint(v6: 0x2001_0DB8_0000_0000, 1, port: 9)
        let reply = text(desk.inspect(lines(request), from: peer).reply)
        #expect(reply.contains("Via: SIP/2.0/TCP \(host)\(received)\r\n"))
    }

    @Test("Addresses without brackets, without a tag, in short form, and unknown headers")
    func lenience() throws {
        var desk = try desk()
        let request = """
            OPTIONS SIPS:bob@192.0.2.7 SIP/2.0
            v: SIP/2.0/TLS 192.0.2.1
            f: sip:pinger@example.org
            t: sip:bob@192.0.2.7:34181;transport=tcp
            i: 1
            cseq:0   OPTIONS
            X-Anything: ;,"<>=
            l: 00


            """
        let (verdict, reply) = desk.inspect(lines(request))
        #expect(verdict == .noise(length: lines(request).count, .ping))
        #expect(text(reply).contains("To: sip:bob@192.0.2.7:34181;transport=tcp;tag="))
        #expect(text(reply).contains("From: sip:pinger@example.org\r\n"))
        #expect(text(reply).contains("CSeq: 0   OPTIONS\r\n"))
    }

    @Test("The settings' headers are in the answer, and cannot break it")
    func capabilities() throws {
        var capabilities = SIPSettings.Capabilities()
        capabilities.allow = "INVITE, OPTIONS"
        capabilities.supported = "outbound, path"
        capabilities.contact = "<sip:bob@192.0.2.7>"
        capabilities.userAgent = "Phone"
        var desk = try Desk(.sip(try SIPSettings(capabilities: capabilities, tagKey: tagKey)))
        let reply = text(desk.inspect(lines(Self.keepAlive)).reply)
        for line in [
            "Allow: INVITE, OPTIONS", "Supported: outbound, path", "Contact: <sip:bob@192.0.2.7>",
            "User-Agent: Phone",
        ] {
            #expect(reply.contains("\r\n\(line)\r\n"))
        }
        capabilities.userAgent = "Phone\r\nX: y"
        #expect(throws: SettingsError.illegalText("User-Agent")) {
            try SIPSettings(capabilities: capabilities, tagKey: tagKey)
        }
        #expect(throws: SettingsError.self) { try SIPSettings(users: [""], tagKey: tagKey) }
    }

    // MARK: Significant messages

    static let refused: [(String, String, String, Significance)] = [
        ("another method", "OPTIONS sip:bob@192", "INVITE sip:bob@192", .message),
        ("a response", "OPTIONS sip:bob@192.0.2.7:45476;transport=tcp SIP/2.0", "SIP/2.0 200 OK", .message),
        ("another scheme", "OPTIONS sip:", "OPTIONS tel:", .unusual),
        ("a scheme only", "sip:bob@192.0.2.7:45476;transport=tcp", "si", .unusual),
        ("no scheme", "sip:bob@192.0.2.7:45476;transport=tcp", "bob@x", .unusual),
        ("another version", " SIP/2.0\nVia", " SIP/3.0\nVia", .malformed),
        ("within a dialog", "To: <sip:bob@example.org>", "To: <sip:bob@example.org>;TAG=1", .inDialog),
        (
            "within a dialog, without brackets", "To: <sip:bob@example.org>", "To: sip:b@x;a=b ; tag = x",
            .inDialog
        ),
        ("Require", "CSeq", "Require: 100rel\nCSeq", .extensionRequired),
        ("Proxy-Require", "CSeq", "proxy-require: x\nCSeq", .extensionRequired),
        ("a route", "CSeq", "Route: <sip:192.0.2.1;lr>\nCSeq", .unusual),
        ("credentials", "CSeq", "Authorization: Digest username=\"x\"\nCSeq", .unusual),
        ("a body", "Length: 0\n\n", "Length: 5\n\nhello", .unusual),
        ("a type of body", "CSeq", "c: text/plain\nCSeq", .unusual),
        ("a folded line", "CSeq", "X: a\n b\nCSeq", .unusual),
        ("no Content-Length", "Content-Length: 0\n", "", .malformed),
        ("two Content-Lengths", "CSeq", "l: 0\nCSeq", .malformed),
        ("a Content-Length that is no number", "Length: 0", "Length: +0", .malformed),
        ("an endless Content-Length", "Length: 0", "Length: 00000000000000000000000000000000", .malformed),
        ("no Via", "Via:", "X:", .malformed),
        ("junk behind a Via", "z9hG4bKx.2.1.0", "z9hG4bKx.2.1.0, junk", .malformed),
        ("nothing behind a comma", "z9hG4bKx.2.1.0", "z9hG4bKx.2.1.0,", .malformed),
        ("an open bracket", "192.0.2.1:5060", "[2001:db8::1", .malformed),
        ("an open bracket and a port", "192.0.2.1:5060", "[2001:db8::1:5060;x=]", .malformed),
        ("two brackets", "192.0.2.1:5060", "[[::1]]", .malformed),
        ("junk behind a bracket", "192.0.2.1:5060", "[::1]x:5060", .malformed),
        ("brackets around nothing", "192.0.2.1:5060", "[]", .malformed),
        ("letters that no number has", "192.0.2.1:5060", "[::g]", .malformed),
        ("junk behind a port", "192.0.2.1:5060", "192.0.2.1:5060x", .malformed),
        ("an empty Via", "Via: SIP/2.0/TCP 192.0.2.1:5060;branch=z9hG4bKx.2.1.0", "Via:", .malformed),
        ("a Via without a host", "192.0.2.1:5060;branch=z9hG4bKx.2.1.0", ";branch=1", .malformed),
        ("a Via with a port that is none", "1:5060", "1:65536", .malformed),
        ("a Via with an empty port", "1:5060", "1:", .malformed),
        ("a Via of UDP on a stream", "Via: SIP/2.0/TCP", "Via: SIP/2.0/UDP", .unusual),
        ("a multicast Via", ";branch", ";maddr=224.0.0.1;branch", .unusual),
        ("a Via that says where it came from", ";branch", ";received=192.0.2.5;branch", .unusual),
        ("a Via with a value for rport", ";branch", ";rport=1;branch", .unusual),
        ("a Via with a parameter without a name", ";branch", ";;branch", .malformed),
        ("an unfinished quotation", ";branch", ";x=\"a;branch", .malformed),
        ("no From", "From:", "X:", .malformed),
        ("two Froms", "CSeq", "f: <sip:x>\nCSeq", .malformed),
        ("two addresses in To", "<sip:bob@example.org>", "<sip:bob@example.org>, <sip:x>", .malformed),
        ("an address that does not end", "<sip:bob@example.org>", "<sip:bob@example.org", .malformed),
        ("an empty To", "To: <sip:bob@example.org>", "To:", .malformed),
        ("no Call-ID", "Call-ID:", "X:", .malformed),
        ("another method in CSeq", "80 OPTIONS", "80 INVITE", .malformed),
        ("a number too large in CSeq", "80 OPTIONS", "2147483648 OPTIONS", .malformed),
        ("no space in CSeq", "80 OPTIONS", "80OPTIONS", .malformed),
        ("Max-Forwards out of range", "CSeq", "Max-Forwards: 256\nCSeq", .malformed),
        ("Max-Forwards twice", "CSeq", "Max-Forwards: 0\nMax-Forwards: 0\nCSeq", .malformed),
        ("a header without a name", "CSeq", ": x\nCSeq", .malformed),
        ("a header without a colon", "CSeq", "X\nCSeq", .malformed),
        ("a zero byte", "CSeq", "X: \0\nCSeq", .malformed),
    ]

    @Test("Anything but a plain OPTIONS outside a dialog wakes the owner", arguments: refused.indices)
    func refusals(index: Int) throws {
        let (name, part, other, reason) = Self.refused[index]
        let start = try #require(Self.keepAlive.firstRange(of: part), "\(name)")
        let request = Self.keepAlive[..<start.lowerBound] + other + Self.keepAlive[start.upperBound...]
        Expectation(name, lines(String(request)), .significant(reason)).check(try desk())
    }

    @Test("Bare line feeds and carriage returns break the rules")
    func bareLineEnds() throws {
        for bytes in [Array(Self.keepAlive.utf8), Array(Self.keepAlive.replacing("\n", with: "\r").utf8)] {
            Expectation("bare", bytes, .significant(.malformed)).check(try desk())
        }
        Expectation("a CR in a line", lines("OPTIONS sip:x SIP/2.0\nX: a\rb\n\n"), .significant(.malformed))
            .check(try desk())
    }

    @Test("Max-Forwards of zero is no reason not to answer the one it was sent to")
    func maxForwards() throws {
        var desk = try desk()
        let request = lines(Self.keepAlive.replacing("CSeq", with: "Max-Forwards: 0\nCSeq"))
        #expect(desk.inspect(request).0 == .noise(length: request.count, .ping))
    }

    @Test("Requests for other users are not answered if the settings name the owner's")
    func users() throws {
        for (users, verdict) in [
            (["bob"], Verdict.noise(length: lines(Self.keepAlive).count, .ping)),
            (["alice", "bob"], .noise(length: lines(Self.keepAlive).count, .ping)),
            (["alice"], .significant(.notForUs)), (["bo"], .significant(.notForUs)),
        ] {
            var desk = try Desk(try Self.settings(users: users))
            #expect(desk.inspect(lines(Self.keepAlive)).0 == verdict)
        }
        var desk = try Desk(try Self.settings(users: ["bob"]))
        let anonymous = Self.keepAlive.replacing("bob@192", with: "192")
        #expect(desk.inspect(lines(anonymous)).0 == .significant(.notForUs))
        let password = Self.keepAlive.replacing("bob@192", with: "bob:secret@192")
        desk = try Desk(try Self.settings(users: ["bob"]))
        #expect(desk.inspect(lines(password)).0 == .noise(length: lines(password).count, .ping))
    }

    @Test("Only the first message is inspected")
    func pipelined() throws {
        var desk = try desk()
        let both = lines(Self.keepAlive) + lines("INVITE sip:bob@192.0.2.7 SIP/2.0\n")
        #expect(desk.inspect(both).0 == .noise(length: lines(Self.keepAlive).count, .ping))
        #expect(desk.inspect(Array(both.dropFirst(lines(Self.keepAlive).count))).0 == .significant(.message))
    }

    @Test("A message that never ends is significant")
    func endless() throws {
        var desk = try desk()
        let start = lines("OPTIONS sip:bob@192.0.2.7 SIP/2.0\nX: ")
        let padding = [UInt8](repeating: UInt8(ascii: "x"), count: 4_095 - start.count)
        #expect(desk.inspect(start + padding).0 == .needMore(limit: 4_096))
        #expect(desk.inspect(start + padding + [120]).0 == .significant(.tooLong))
        // Whole, but too long, so its completeness makes no difference.
        let long = Self.keepAlive.replacing("CSeq", with: "X: \(String(repeating: "y", count: 4_000))\nCSeq")
        Expectation("long", lines(long), .significant(.tooLong)).check(try self.desk())
        desk = try self.desk()
        let headers = String(repeating: "X: y\n", count: 60)
        #expect(
            desk.inspect(lines(Self.keepAlive.replacing("CSeq", with: headers + "CSeq"))).0
                == .significant(.tooLong))
    }

    // MARK: Datagrams

    @Test("Fillers on UDP: CRLFs, nothing at all, and four zeros")
    func fillers() throws {
        var desk = try desk(.datagram)
        for bytes in [[], lines("\n"), lines("\n\n"), [0, 0, 0, 0]] {
            #expect(desk.inspect(bytes) == (.noise(length: bytes.count, .filler), []))
        }
        for bytes: [UInt8] in [[0], [0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 1], lines("\n\n\n"), [0x0D]] {
            guard case .significant = desk.inspect(bytes).0 else {
                #expect(Bool(false), "\(bytes)")
                continue
            }
        }
    }

    @Test(
        "OPTIONS on UDP",
        arguments: [
            // Kamailio's nathelper; its own port is in Via, and is the one it sends from.
            ("SIP/2.0/UDP 192.0.2.1:5060;branch=1", "SIP/2.0/UDP 192.0.2.1:5060;branch=1"),
            ("SIP/2.0/UDP 192.0.2.1;branch=1", "SIP/2.0/UDP 192.0.2.1;branch=1"),
            ("SIP/2.0/UDP host;branch=1", "SIP/2.0/UDP host;branch=1;received=192.0.2.1"),
            ("SIP/2.0/UDP 10.0.0.1:9;rport", "SIP/2.0/UDP 10.0.0.1:9;rport=5060;received=192.0.2.1"),
            // The answer would have to go to another port than the request came from.
            ("SIP/2.0/UDP 192.0.2.1:5061;branch=1", nil),
        ])
    func datagrams(via: String, answer: String?) throws {
        var desk = try desk(.datagram)
        let request = lines(
            """
            OPTIONS sip:alice@192.0.2.7:34181 SIP/2.0
            Via: \(via)
            From: sip:pinger@example.org;tag=uloc-1
            To: sip:alice@192.0.2.7:34181
            Call-ID: d030e7c1
            CSeq: 1 OPTIONS


            """)
        let (verdict, reply) = desk.inspect(request)
        if let answer {
            #expect(verdict == .noise(length: request.count, .ping))
            #expect(text(reply).contains("Via: \(answer)\r\n"))
        } else {
            #expect(verdict == .significant(.unusual))
        }
        #expect(desk.inspect(request, from: nil).0 == .significant(.unusual), "the source is unknown")
        #expect(desk.inspect(request + [0]).0 == .significant(.unusual), "bytes behind it")
        #expect(desk.inspect(request.dropLast(1) + []).0 == .significant(.malformed))
        #expect(desk.inspect(lines("\n") + request).0 == .significant(.message))
    }

    @Test("STUN on the same flow")
    func bindings() throws {
        var desk = try desk(.datagram)
        #expect(desk.profile.pinging?.latest == .seconds(29))
        let ping = try desk.sentPing()
        #expect(ping == hex("0001 0000 2112A442 05060708 1112131415161718"))
        #expect(desk.ping(again: true) == ping)
        #expect(desk.inspect(lines(Self.keepAlive)).0 == .significant(.unusual), "of a stream")
        let answer = STUNTests.success(ping, address: "0001 C5D8 E312 0663")
        #expect(desk.inspect(answer).0 == .noise(length: answer.count, .answer))
        #expect(desk.inspect(answer).0 == .noise(length: answer.count, .filler), "to the repetition")
        #expect(desk.inspect(hex("0011 0000 2112A442 05060708 1112131415161718")).0 == .significant(.message))
        #expect(desk.inspect(ping).0 == .significant(.message), "a request")
    }
}
