import NightbellProfiles
import Testing

@Suite("sip, CRLFs on streams")
struct SIPLineEndTests {
    @Test("A double CRLF is answered by a CRLF, in one piece or in two")
    func lineEnds() throws {
        var desk = try Desk(SIPTests.settings())
        for part in ["\r", "\r\n", "\r\n\r"] { #expect(desk.inspect(part).0 == .needMore(limit: 4)) }
        #expect(desk.inspect("\r\n\r\n") == (.noise(length: 4, .ping), "\r\n"))
        #expect(desk.inspect("\r\n\r\n\r\n") == (.noise(length: 4, .ping), "\r\n"))
        for next in ["OPTIONS", "\n", "\r\r", " "] {
            #expect(desk.inspect("\r\n" + next) == (.noise(length: 2, .filler), ""))
        }
        #expect(desk.inspect("\r\r").0 == .significant(.malformed))
    }

    @Test("A single CRLF wakes once")
    func singleLineEnds() throws {
        var desk = try Desk(SIPTests.settings())
        #expect(desk.inspect("\r\n\r\n").0 == .noise(length: 4, .ping))
        desk.profile.begin()
        #expect(desk.inspect("\r\n").0 == .needMore(limit: 4), "pairs do not lead to singles")
        for _ in 0..<3 {
            _ = desk.profile.end()
            desk.profile.begin()
            #expect(desk.inspect("\r").0 == .needMore(limit: 2))
            #expect(desk.inspect("\r\n") == (.noise(length: 2, .filler), ""))
            #expect(desk.inspect("\r\n\r\n") == (.noise(length: 2, .ping), "\r\n"))
            #expect(desk.inspect("\r\n") == (.noise(length: 2, .filler), ""))
            #expect(
                desk.inspect(lines(SIPTests.keepAlive)).0
                    == .noise(length: lines(SIPTests.keepAlive).count, .ping))
            #expect(desk.inspect("\r\n") == (.noise(length: 2, .filler), ""), "a message came between")
        }
    }

    /// The owner may have read it, or not: neither costs an answer or a wake.
    @Test("An answer that is late is absorbed, and pings are answered behind it", arguments: [false, true])
    func latePongs(wasRead: Bool) throws {
        var desk = try Desk(SIPTests.settings())
        _ = desk.ping()
        _ = desk.profile.end()
        desk.profile.begin()
        var stream = Array((wasRead ? "\r\n\r\n" : "\r\n\r\n\r\n").utf8)
        var replies: [UInt8] = []
        while !stream.isEmpty {
            let (verdict, reply) = desk.inspect(stream)
            guard case .noise(let length, _) = verdict else { return #expect(Bool(false), "\(verdict)") }
            stream.removeFirst(length)
            replies += reply
        }
        #expect(text(replies) == "\r\n" && desk.inspect("").0 == .needMore(limit: 4_096))
        _ = desk.profile.end()
        desk.profile.begin()
        #expect(desk.inspect("\r\n\r\n") == (.noise(length: 4, .ping), "\r\n"), "that was for one sleep")
    }

    @Test("A peer without ping support gets no pings, but is answered", arguments: Transport.allCases)
    func withoutPings(transport: Transport) throws {
        let settings = ProfileSettings.sip(try SIPSettings(sendsPings: false, tagKey: tagKey))
        var desk = try Desk(settings, over: transport)
        #expect(desk.profile.pinging == nil && desk.ping() == nil && !desk.profile.isAwaitingAnswer)
        guard transport == .stream else { return }
        #expect(desk.inspect("\r\n\r\n") == (.noise(length: 4, .ping), "\r\n"))
    }

    @Test("Our double CRLF is answered by the next CRLF")
    func pongs() throws {
        var desk = try Desk(SIPTests.settings())
        #expect(desk.profile.pinging?.latest == .seconds(120))
        #expect(desk.profile.pinging?.earliest == .seconds(96))
        #expect(desk.profile.pinging?.answerWithin == .seconds(10))
        #expect(desk.ping().map(text) == "\r\n\r\n")
        #expect(desk.profile.isAwaitingAnswer)
        #expect(desk.ping() == nil, "no other while one is under way")
        #expect(desk.ping(again: true) == nil, "a stream loses nothing")
        #expect(desk.inspect("\r").0 == .needMore(limit: 2))
        // With the peer's own ping directly before or behind it.
        #expect(desk.inspect("\r\n\r\n\r\n") == (.noise(length: 2, .answer), ""))
        #expect(!desk.profile.isAwaitingAnswer)
        #expect(desk.inspect("\r\n\r\n") == (.noise(length: 4, .ping), "\r\n"))
    }
}
