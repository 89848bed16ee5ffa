import NightbellProfiles
import Testing

@Suite("irc")
struct IRCTests {
    private func desk() throws -> Desk { try Desk(.irc(try IRCSettings())) }

    @Test(
        "PING is answered by PONG with the same token",
        arguments: [
            ("PING :irc.example.org\r\n", "PONG :irc.example.org\r\n"),
            ("PING irc.example.org\r\n", "PONG :irc.example.org\r\n"),
            (":irc.example.org PING :a b  c\r\n", "PONG :a b  c\r\n"),
            ("PING :\r\n", "PONG :\r\n"), ("PING ::x\r\n", "PONG ::x\r\n"),
            ("@time=2024-01-01T00:00:00.000Z :irc PING 1\r\n", "PONG :1\r\n"),
            ("PING :é\r\n", "PONG :é\r\n"),
        ])
    func pings(ping: String, pong: String) throws {
        Expectation(ping, ping, .noise(length: ping.utf8.count, .ping), reply: pong).check(try desk())
    }

    @Test(
        "Everything else wakes the owner",
        arguments: [
            (":nick!user@host PRIVMSG #room :hello\r\n", .message), ("ERROR :Closing link\r\n", .message),
            (":irc 001 me :Welcome\r\n", .message), (":irc 433 me x :in use\r\n", .message),
            ("PINGX :1\r\n", .message),
            ("PRIVMSG x :y\r\n", .message), ("ping :1\r\n", .message), ("PING\r\n", .message),
            ("PING \r\n", .malformed),
            ("PING a b\r\n", .unusual), ("PING a :b\r\n", .unusual), ("PING a \r\n", .unusual),
            ("PING :a\n", .malformed),
            ("PING :a\rb\r\n", .malformed), ("PING :a\0b\r\n", .malformed), ("PING  a\r\n", .malformed),
            (":nick!user@host PING :1\r\n", .message), (": PING :1\r\n", .malformed),
            (":irc  PING :1\r\n", .message),
            ("@batch=1 PING :1\r\n", .unusual), ("@time=1;label=2 PING :1\r\n", .unusual),
            ("@ PING :1\r\n", .unusual),
            ("PONG :nb-0000000000000000\r\n", .unexpectedAnswer), ("PONG a b c\r\n", .unusual),
            ("\r\n", .message),
        ] as [(String, Significance)])
    func refusals(line: String, reason: Significance) throws {
        Expectation(line, line, .significant(reason)).check(try desk())
    }

    @Test("Our PING and the PONG to it, with and without the server's name")
    func ownPings() throws {
        var desk = try desk()
        #expect(desk.ping().map(text) == "PING :nb-1112131415161718\r\n")
        for pong in [
            ":irc.example.org PONG irc.example.org :nb-1112131415161718\r\n", "PONG nb-1112131415161718\r\n",
            "PONG irc nb-1112131415161718\r\n",
        ] {
            Expectation(pong, pong, .noise(length: pong.utf8.count, .answer)).check(desk)
        }
        #expect(desk.inspect("PONG :nb-1112131415161718\r\n").0 == .noise(length: 27, .answer))
        #expect(desk.inspect("PONG :nb-1112131415161718\r\n").0 == .noise(length: 27, .filler))
        #expect(desk.inspect("PONG :nb-1112131415161710\r\n").0 == .significant(.unexpectedAnswer))
    }

    @Test("A line that does not end is significant")
    func endless() throws {
        var desk = try desk()
        #expect(desk.inspect("PING :" + String(repeating: "x", count: 400)).0 == .needMore(limit: 576))
        #expect(
            desk.inspect("PING :" + String(repeating: "x", count: 501) + "\r\n").0 == .significant(.tooLong))
        desk.profile.begin()
        #expect(desk.inspect(":" + String(repeating: "x", count: 1_000_000)).0 == .significant(.tooLong))
    }
}

@Suite("imap")
struct IMAPTests {
    private let idle = Idle.Tag("a42").map { DelegatedValues.idle(Idle(tag: $0)) } ?? .nothing
    private func desk(fillers: [String] = ["Still here"]) throws -> Desk {
        try Desk(.imap(try IMAPSettings(fillers: fillers)), delegating: idle)
    }

    @Test("Untagged OKs of the list are absorbed, whatever their case")
    func fillers() throws {
        for line in ["* OK Still here\r\n", "* ok STILL HERE\r\n"] {
            Expectation(line, line, .noise(length: 17, .filler)).check(try desk())
        }
        let other = try desk(fillers: ["Keepalive", "Hang in there.."])
        let long = "* OK " + String(repeating: "x", count: 600)
        Expectation("long", long + "\r\n", .significant(.tooLong)).check(other)
        Expectation("other", "* OK Hang in there..\r\n", .noise(length: 22, .filler)).check(other)
        Expectation("other", "* OK Still here\r\n", .significant(.message)).check(other)
    }

    @Test(
        "Everything else wakes the owner",
        arguments: [
            ("* 23 EXISTS\r\n", .message), ("* OK [ALERT] Still here\r\n", .message),
            ("* OK Still here!\r\n", .message),
            ("* OK\r\n", .message), ("* BYE Still here\r\n", .message), ("* NO Still here\r\n", .message),
            ("*  OK Still here\r\n", .message), ("a42 OK Idle completed\r\n", .message),
            ("+ idling\r\n", .message),
            ("* OK Still here\n", .malformed), ("* OK Still\0here\r\n", .malformed), ("\r\n", .message),
        ] as [(String, Significance)])
    func refusals(line: String, reason: Significance) throws {
        Expectation(line, line, .significant(reason)).check(try desk())
    }

    @Test("IDLE is renewed in two steps, again and again, with tags of its own")
    func renewal() throws {
        var desk = try desk()
        #expect(desk.profile.pinging?.latest == .seconds(28 * 60))
        for (tag, next) in [("a42", "NB1"), ("NB1", "NB2"), ("NB2", "NB3")] {
            #expect(desk.ping().map(text) == "DONE\r\n")
            #expect(desk.profile.isAwaitingAnswer)
            #expect(desk.ping() == nil)
            #expect(desk.inspect("* OK Still here\r\n").0 == .noise(length: 17, .filler))
            let done = "\(tag) OK Idle completed (0.001 + 0.000 secs).\r\n"
            Expectation(done, done, .noise(length: done.utf8.count, .step), reply: "\(next) IDLE\r\n").check(
                desk)
            #expect(desk.inspect(done).reply == "\(next) IDLE\r\n")
            Expectation("+", "+ idling\r\n", .noise(length: 10, .answer)).check(desk)
            #expect(desk.inspect("+ idling\r\n").0 == .noise(length: 10, .answer))
            #expect(!desk.profile.isAwaitingAnswer)
        }
        #expect(desk.profile.end() == Idle.Tag("NB3").map { .idle(Idle(tag: $0)) })
    }

    @Test(
        "A delegated tag of an own renewal is continued, by another process too",
        arguments: [
            ("NB7", "NB8"), ("NB4294967295", "NB0"), ("NB", "NB1"), ("NBx", "NB1"), ("nb7", "NB1"),
            ("NB99999999999", "NB1"), ("XNB7", "NB1"),
        ])
    func numbering(tag: String, next: String) throws {
        let delegated = DelegatedValues.idle(Idle(tag: try #require(Idle.Tag(tag))))
        var desk = try Desk(.imap(try IMAPSettings()), delegating: delegated)
        _ = desk.ping()
        #expect(desk.inspect("\(tag) OK done\r\n").reply == "\(next) IDLE\r\n")
    }

    @Test("An owner that is woken during a renewal gets its phase")
    func interrupted() throws {
        var desk = try desk()
        _ = desk.ping()
        #expect(desk.inspect("* 24 EXISTS\r\n").0 == .significant(.message))
        #expect(desk.profile.end() == Idle.Tag("a42").map { .idle(Idle(tag: $0, phase: .ending)) })
        desk = try self.desk()
        _ = desk.ping()
        _ = desk.inspect("a42 OK done\r\n")
        #expect(desk.inspect("NB1 BAD what?\r\n").0 == .significant(.message))
        #expect(desk.profile.end() == Idle.Tag("NB1").map { .idle(Idle(tag: $0, phase: .starting)) })
    }

    @Test(
        "A renewal that fails wakes the owner",
        arguments: [
            ("a42 NO what?\r\n", .refused), ("a42 BAD what?\r\n", .refused),
            ("a42 OK [ALERT] x\r\n", .message),
            ("a42\r\n", .message), ("a42 OK\r\n", .refused), ("a43 OK x\r\n", .message),
            ("a4 OK x\r\n", .message),
            ("a422 OK x\r\n", .message), ("+ idling\r\n", .message), ("* BYE x\r\n", .message),
        ] as [(String, Significance)])
    func refused(line: String, reason: Significance) throws {
        var desk = try desk()
        _ = desk.ping()
        Expectation(line, line, .significant(reason)).check(desk)
    }

    @Test("Without a tag there is no renewal")
    func withoutTag() throws {
        var desk = try Desk(.imap(try IMAPSettings()))
        #expect(desk.profile.pinging == nil)
        #expect(desk.ping() == nil)
        #expect(desk.inspect("* OK Still here\r\n").0 == .noise(length: 17, .filler))
        #expect(desk.profile.end() == .nothing)
    }

    @Test("Tags and settings are checked")
    func settings() throws {
        for tag in ["", "a b", "a*", "a\"", "a+", "é", "1234567890123456"] {
            #expect(Idle.Tag(tag) == nil)
        }
        #expect(Idle.Tag("A123456789.1234")?.description == "A123456789.1234")
        #expect(throws: SettingsError.self) { try IMAPSettings(interval: .seconds(30 * 60)) }
        #expect(throws: SettingsError.self) { try IMAPSettings(tagPrefix: "toolong") }
        #expect(throws: SettingsError.self) { try IMAPSettings(tagPrefix: "a b") }
        #expect(throws: SettingsError.self) { try IMAPSettings(fillers: ["a\r\nb"]) }
    }
}

@Suite("line and bytes")
struct PatternTests {
    typealias Exchange = PatternSettings.Exchange

    private func lines(_ pairs: [(String, String)], ping: (String, String)? = nil) throws -> ProfileSettings {
        let ping = ping.map { PatternSettings.Ping(Array($0.0.utf8), answer: Array($0.1.utf8)) }
        return .pattern(
            try .lines(
                pairs.map { Exchange(Array($0.0.utf8), reply: Array($0.1.utf8)) }, ping: ping, end: .newline))
    }

    @Test("Lines have their own replies")
    func lines() throws {
        let desk = try Desk(lines([("ping", "pong"), ("noop", ""), ("", "!")]))
        Expectation("ping", "ping\n", .noise(length: 5, .ping), reply: "pong\n").check(desk)
        Expectation("noop", "noop\n", .noise(length: 5, .filler)).check(desk)
        Expectation("empty", "\n", .noise(length: 1, .ping), reply: "!\n").check(desk)
        Expectation("other", "pinG\n", .significant(.message)).check(desk)
        Expectation("longer", "pings\n", .significant(.message)).check(desk)
        Expectation("CRLF", "ping\r\n", .significant(.message)).check(desk)
        let crlf = PatternSettings.LineEnd.carriageReturnNewline
        let other = try Desk(.pattern(try .lines([Exchange([1], reply: [2])], end: crlf)))
        Expectation("CRLF", [1, 13, 10], .noise(length: 3, .ping), reply: [2, 13, 10]).check(other)
    }

    @Test("Bytes may be anything")
    func bytes() throws {
        let settings = ProfileSettings.pattern(
            try .bytes(
                [Exchange([0, 0]), Exchange([0, 1, 255], reply: [9, 0])],
                ping: .init([7], answer: [8, 8], interval: .seconds(1))))
        var desk = try Desk(settings)
        Expectation("filler", [0, 0], .noise(length: 2, .filler)).check(desk)
        Expectation("ping", [0, 1, 255], .noise(length: 3, .ping), reply: [9, 0]).check(desk)
        Expectation("other", [0, 2], .significant(.message)).check(desk)
        Expectation("answer", [8, 8], .significant(.unexpectedAnswer)).check(desk)
        #expect(desk.inspect([0]).0 == .needMore(limit: 3))
        #expect(desk.ping() == [7])
        Expectation("answer", [8, 8], .noise(length: 2, .answer)).check(desk)
        #expect(desk.inspect([8, 8]).0 == .noise(length: 2, .answer))
    }

    @Test("A datagram has to be the whole pattern")
    func datagrams() throws {
        var desk = try Desk(.pattern(try .bytes([Exchange([1, 2], reply: [3])])), over: .datagram)
        #expect(desk.inspect([1, 2]) == (.noise(length: 2, .ping), [3]))
        for bytes: [UInt8] in [[], [1], [1, 2, 3], [2]] {
            #expect(desk.inspect(bytes).0 == .significant(.message))
        }
        #expect(desk.inspect([1, 2]).0 == .noise(length: 2, .ping), "each is inspected by itself")
    }

    @Test("A ping without an answer expects none")
    func silentPing() throws {
        var desk = try Desk(.pattern(try .bytes([], ping: .init([7]))))
        #expect(desk.profile.pinging?.answerWithin == nil)
        #expect(desk.ping() == [7])
        #expect(!desk.profile.isAwaitingAnswer)
        #expect(desk.inspect([7]).0 == .significant(.message))
    }

    @Test("Ambiguous, empty, too long or too many patterns are refused")
    func settings() throws {
        #expect(throws: SettingsError.ambiguousPatterns) {
            try PatternSettings.bytes([Exchange([1]), Exchange([1, 2])])
        }
        #expect(throws: SettingsError.ambiguousPatterns) {
            try PatternSettings.bytes([Exchange([1]), Exchange([1])])
        }
        #expect(throws: SettingsError.ambiguousPatterns) {
            try PatternSettings.bytes([Exchange([1, 2])], ping: .init([0], answer: [1]))
        }
        #expect(throws: SettingsError.illegalText("pattern")) { try PatternSettings.bytes([Exchange([])]) }
        #expect(throws: SettingsError.illegalText("line")) {
            try PatternSettings.lines([Exchange([10])], end: .newline)
        }
        #expect(throws: SettingsError.tooLong("pattern", limit: 4_096)) {
            try PatternSettings.bytes([Exchange([UInt8](repeating: 0, count: 4_097))])
        }
        #expect(throws: SettingsError.tooMany("exchanges", limit: 32)) {
            try PatternSettings.bytes((0..<33).map { Exchange([$0]) })
        }
        #expect(throws: SettingsError.self) {
            try PatternSettings.bytes([], ping: .init([1], interval: .zero))
        }
    }
}

@Suite("Late answers without an identifier")
struct LateAnswerTests {
    @Test("A late answer is absorbed once if the owner was woken while it was awaited")
    func late() throws {
        let ping = PatternSettings.Ping(Array("?".utf8), answer: Array("!".utf8))
        let cases: [(ProfileSettings, String)] = [
            (.mqtt(try MQTTSettings()), "\u{50}"), (.pattern(try .bytes([], ping: ping)), "!"),
        ]
        for (settings, letter) in cases {
            let answer: [UInt8] = letter == "!" ? Array(letter.utf8) : [0xD0, 0]
            var desk = try Desk(settings)
            func wakes() -> Bool {
                var desk = desk
                return desk.inspect(answer).0 == .significant(.unexpectedAnswer)
            }
            #expect(wakes(), "no ping was sent")
            _ = desk.ping()
            #expect(desk.inspect(answer).0 == .noise(length: answer.count, .answer))
            #expect(wakes())
            _ = desk.ping()
            _ = desk.profile.end()
            desk.profile.begin()
            #expect(!desk.profile.isAwaitingAnswer)
            _ = desk.ping()
            #expect(desk.inspect(answer).0 == .noise(length: answer.count, .answer))
            #expect(desk.inspect(answer).0 == .noise(length: answer.count, .filler))
            #expect(wakes(), "no more than pings were sent")
        }
    }

    @Test("An answer may take up to an hour")
    func limits() throws {
        let hour = Duration.seconds(3_600)
        _ = try IRCSettings(answerWithin: hour)
        for within in [Duration.zero, .seconds(-1), hour + .milliseconds(1), .seconds(Int64.max)] {
            let error = SettingsError.outOfRange("answerWithin")
            #expect(throws: error) { try IRCSettings(answerWithin: within) }
            #expect(throws: error) { try IMAPSettings(answerWithin: within) }
            #expect(throws: error) { try MQTTSettings(answerWithin: within) }
            #expect(throws: error) { try XMPPSettings(answerWithin: within) }
            #expect(throws: error) { try WebSocketSettings(answerWithin: within) }
            #expect(throws: error) {
                try PatternSettings.bytes([], ping: .init([1], answerWithin: within))
            }
        }
    }
}

@Suite("tcp")
struct TCPTests {
    @Test("Options in the kernel's units")
    func options() throws {
        let settings = try TCPSettings(idle: .seconds(60), interval: .seconds(10), probes: 3)
        #expect(settings.idleSeconds == 60)
        #expect(settings.intervalSeconds == 10)
        #expect(settings.probes == 3)
        #expect(settings.userTimeoutMilliseconds == 0)
        #expect(settings.detection == .seconds(90))
        for (idle, interval, probes) in [(0, 10, 3), (60, 0, 3), (60, 40_000, 3), (60, 10, 0), (60, 10, 128)]
        {
            #expect(throws: SettingsError.self) {
                try TCPSettings(idle: .seconds(idle), interval: .seconds(interval), probes: probes)
            }
        }
    }

    @Test("Every byte is for the owner")
    func inspection() throws {
        var desk = try Desk(.tcp(try TCPSettings()))
        #expect(desk.ping() == nil)
        #expect(desk.profile.pinging == nil)
        #expect(desk.inspect([0]).0 == .significant(.message))
    }
}
