import Glibc
import NightbellCore
import NightbellParking
import NightbellProfiles
import Testing

/// Pings of parked sockets, handled without an event for the host.
@Suite(.timeLimit(.minutes(40))) struct ProfileTests {
    /// A masked ping of a WebSocket client, with the payload `Hello`, and the server's answer.
    private static let ping: [UInt8] = [0x89, 0x85, 0, 0, 0, 0, 0x48, 0x65, 0x6C, 0x6C, 0x6F]
    private static let pong: [UInt8] = [0x8A, 0x05, 0x48, 0x65, 0x6C, 0x6C, 0x6F]
    private static let text: [UInt8] = [0x81, 0x82, 0, 0, 0, 0, 0x68, 0x69]

    /// A protocol with pings that are due soon.
    private static func quick(answerWithin: Duration = .seconds(10)) throws -> ParkingProfile {
        try .bytes(
            [.init(Array("PING\n".utf8), reply: Array("PONG\n".utf8))],
            ping: .init(
                Array("ping\n".utf8), answer: Array("pong\n".utf8), interval: .seconds(1),
                answerWithin: answerWithin))
    }

    @Test func pingsAreAnsweredAndNotReported() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, profile: .webSocket(isServer: true))
        for count in 1...3 {
            try pair.say(Self.ping)
            #expect(host.isQuiet())
            #expect(try pair.hear(Self.pong.count) == Self.pong)
            #expect(host.supervisor.counters.pings.answered == UInt64(count))
        }
        #expect(host.supervisor.counters.parking.told == 0)
        try pair.say(Self.ping + Self.text)
        #expect(try host.next() == [ParkedEvent(token, .readable)])
        #expect(try pair.hear(Self.pong.count) == Self.pong)
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(try read(Self.text.count, from: claimed.descriptor) == Self.text)
    }

    @Test func aPingInPiecesIsOneAndNothingIsLost() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, profile: .webSocket(isServer: true))
        for byte in Self.ping {
            try pair.say([byte])
            #expect(host.supervisor.counters.parking.told == 0)
            host.supervisor.serve()
        }
        #expect(try pair.hear(Self.pong.count) == Self.pong)
        try pair.say(Array(Self.ping.prefix(4)))
        #expect(host.isQuiet())
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(try read(4, from: claimed.descriptor) == Array(Self.ping.prefix(4)))
    }

    @Test func pingsAreSentAndTheirAnswersAbsorbed() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, profile: try Self.quick())
        var entry = pollfd(fd: pair.far, events: CShort(POLLIN), revents: 0)
        let deadline = ContinuousClock.now + .seconds(10)
        while poll(&entry, 1, 10) == 0, ContinuousClock.now < deadline { host.supervisor.serve() }
        #expect(try pair.hear(5) == Array("ping\n".utf8))
        try pair.say("pong\n")
        #expect(host.isQuiet())
        let counters = host.supervisor.counters
        #expect(counters.pings.sent == 1 && counters.pings.confirmed == 1 && counters.parking.told == 0)
        try host.supervisor.release(token)
        #expect(host.supervisor.counters.pings.sent == 1)
    }

    @Test func aMissingPongIsTold() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(
            pair.near, profile: try Self.quick(answerWithin: .milliseconds(50)))
        #expect(try host.next() == [ParkedEvent(token, .pongMissing)])
        #expect(host.supervisor.counters.parking.pongsMissing == 1)
        #expect(host.isQuiet())
    }

    @Test func aFloodOfPingsIsTold() throws {
        let host = try Hosted { $0.noiseBurst = 4 }
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, profile: try Self.quick())
        for _ in 0..<8 { try pair.say("PING\n") }
        let event = try #require(try host.next().first)
        #expect(event.token == token && event.reasons.contains(.flooded))
    }

    @Test func theEndBehindNoiseIsTold() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, profile: .webSocket(isServer: true))
        try pair.say(Self.ping)
        shutdown(pair.far, CInt(SHUT_WR))
        let event = try #require(try host.next().first)
        #expect(event.token == token && event.reasons.contains(.peerClosed))
    }

    @Test func anIdleIsKeptAndHandedBack() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let token = try host.supervisor.park(pair.near, profile: .imap(), idleTag: "a17")
        try pair.say("* OK Still here\r\n")
        #expect(host.isQuiet())
        #expect(host.supervisor.counters.parking.told == 0)
        try pair.say("* OK Still here\r\n* 4 EXISTS\r\n")
        #expect(try host.next() == [ParkedEvent(token, .readable)])
        let claimed = try host.supervisor.claim(token)
        defer { close(claimed.descriptor) }
        #expect(claimed.idle?.tag == "a17" && claimed.idle?.phase == .idling)
        let rest = Array("* 4 EXISTS\r\n".utf8)
        #expect(try read(rest.count, from: claimed.descriptor) == rest)
    }

    @Test func anIdleIsRenewed() throws {
        // The shortest interval is a minute: the profile itself is asked, as the loop would do it.
        let profile = try ParkingProfile.imap(tagPrefix: "X")
        var conversation = try Profile(profile.settings, over: .stream)
        conversation.begin(delegating: .idle(Idle(tag: try #require(Idle.Tag("a17")), phase: .idling)))
        let context = ProfileContext(random: 1, peer: nil)
        var output: [UInt8] = []
        let isDue = conversation.ping(context, into: &output)
        #expect(isDue && output == Array("DONE\r\n".utf8))
        func inspect(_ text: String) -> (Verdict, String) {
            var replies: [UInt8] = []
            let bytes = Array(text.utf8)
            let verdict = conversation.inspect(bytes.span, context, replies: &replies)
            return (verdict, String(decoding: replies, as: UTF8.self))
        }
        let (ended, reply) = inspect("a17 OK done\r\n")
        #expect(ended == .noise(length: 13, .step) && reply == "X1 IDLE\r\n")
        #expect(inspect("+ idling\r\n").0 == .noise(length: 10, .answer))
        guard case .idle(let idle) = conversation.end() else {
            Issue.record("the IDLE is lost")
            return
        }
        #expect(idle.tag.text == "X1" && idle.phase == .idling)
    }

    @Test func aTagIsForIMAPOnly() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        defer { close(pair.near) }
        for (profile, tag) in [(try ParkingProfile.irc(), "a17"), (try .imap(), "a b"), (nil, "a17")] {
            let error = #expect(throws: EmbeddedError.self) {
                try host.supervisor.park(pair.near, profile: profile, idleTag: tag)
            }
            #expect(error?.code == .profile)
        }
    }

    @Test func defaultsAreThoseOfTheProfilesThemselves() throws {
        let profiles: [(ParkingProfile, ProfileName)] = [
            (try .webSocket(isServer: false), .webSocket), (try .mqtt(), .mqtt), (try .irc(), .irc),
            (try .imap(), .imap), (try .xmpp(), .xmpp), (try .sip(), .sip), (try .stun(), .stun),
            (try .tcp(), .tcp),
        ]
        for (profile, name) in profiles {
            #expect(profile.name == name.rawValue)
            let standard = try #require(try ProfileSettings.standard(name, tagKey: 1))
            let tag = try #require(Idle.Tag("a"))
            let delegated: DelegatedValues = name == .imap ? .idle(Idle(tag: tag, phase: .idling)) : .nothing
            var (own, usual) = (
                try Profile(profile.settings, over: .stream), try Profile(standard, over: .stream)
            )
            own.begin(delegating: delegated)
            usual.begin(delegating: delegated)
            #expect(own.pinging == usual.pinging)
            #expect((own.pinging == nil) == (name == .tcp))
        }
    }

    @Test func theKernelsKeepAlivesAreSetAndPutBack() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        func isOn() -> Bool {
            var (value, length): (CInt, socklen_t) = (0, 4)
            return getsockopt(pair.near, SOL_SOCKET, SO_KEEPALIVE, &value, &length) == 0 && value != 0
        }
        #expect(!isOn())
        let token = try host.supervisor.park(pair.near, profile: .tcp(idle: .seconds(60)))
        #expect(isOn())
        #expect(try host.supervisor.claim(token).descriptor == pair.near)
        #expect(!isOn())
        close(pair.near)
    }
}
