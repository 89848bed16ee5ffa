import NightbellProfiles
import Testing

@Suite("websocket")
struct WebSocketTests {
    private func desk(_ role: WebSocketSettings.Role = .client, absorbsOtherPongs: Bool = true) throws -> Desk
    {
        try Desk(.webSocket(try WebSocketSettings(role: role, absorbsOtherPongs: absorbsOtherPongs)))
    }

    /// A frame with a payload, masked if there is a mask.
    private func frame(_ first: UInt8, _ payload: [UInt8], mask: [UInt8]? = nil) -> [UInt8] {
        let length = UInt8(payload.count)
        guard let mask else { return [first, length] + payload }
        return [first, 0x80 | length] + mask + payload.enumerated().map { $1 ^ mask[$0 & 3] }
    }

    /// The mask that `Desk.random` gives.
    private let mask: [UInt8] = [0x15, 0x16, 0x17, 0x18]
    private let hello = Array("Hello".utf8)

    @Test("A ping is answered with its payload, masked by a client only")
    func pings() throws {
        for payload in [[], hello, [UInt8](repeating: 0xAB, count: 125)] {
            let ping = frame(0x89, payload)
            Expectation(
                "client", ping, .noise(length: ping.count, .ping), reply: frame(0x8A, payload, mask: mask)
            )
            .check(try desk())
            let masked = frame(0x89, payload, mask: [1, 2, 3, 4])
            Expectation("server", masked, .noise(length: masked.count, .ping), reply: frame(0x8A, payload))
                .check(try desk(.server))
        }
    }

    @Test("The example of RFC 6455 §5.7: an unmasked ping and the masked pong to it")
    func example() throws {
        var desk = try desk()
        desk.random = 0x37fa_213d
        let (verdict, reply) = desk.inspect(hex("89 05 48 65 6c 6c 6f"))
        #expect(verdict == .noise(length: 7, .ping))
        #expect(reply == hex("8a 85 37 fa 21 3d 7f 9f 4d 51 58"))
    }

    @Test("Our ping and the pong to it")
    func ownPings() throws {
        var desk = try desk()
        let payload = hex("0102030405060708")
        #expect(desk.ping() == frame(0x89, payload, mask: mask))
        #expect(desk.inspect(frame(0x8A, hello)).0 == .noise(length: 7, .filler), "unsolicited")
        #expect(desk.profile.isAwaitingAnswer)
        #expect(desk.inspect(frame(0x8A, payload)).0 == .noise(length: 10, .answer))
        #expect(!desk.profile.isAwaitingAnswer)
        #expect(desk.inspect(frame(0x8A, payload)).0 == .noise(length: 10, .filler))
        var server = try self.desk(.server)
        #expect(server.ping() == frame(0x89, payload))
        let answer = frame(0x8A, payload, mask: [9, 9, 9, 9])
        #expect(server.inspect(answer).0 == .noise(length: 14, .answer))
        var strict = try self.desk(absorbsOtherPongs: false)
        _ = strict.ping()
        #expect(strict.inspect(frame(0x8A, payload)).0 == .noise(length: 10, .answer))
        #expect(strict.inspect(frame(0x8A, payload)).0 == .significant(.unexpectedAnswer))
    }

    @Test("Anything but a plain control frame wakes the owner")
    func refusals() throws {
        let cases: [(String, [UInt8], Significance)] = [
            ("text", frame(0x81, hello), .message), ("binary", frame(0x82, hello), .message),
            ("the first part of a message", frame(0x01, hello), .message),
            ("a middle part of a message", frame(0x00, hello), .message),
            ("the last part of a message", frame(0x80, hello), .message),
            ("close", frame(0x88, [3, 0xE8]), .message),
            ("a reserved opcode", frame(0x8B, []), .message), ("another", frame(0x83, []), .message),
            ("a ping in parts", frame(0x09, hello), .message),
            ("a pong in parts", frame(0x0A, hello), .message),
            ("a reserved bit", frame(0xC9, hello), .unusual), ("another one", frame(0x9A, hello), .unusual),
            ("a compressed message", frame(0xC1, hello), .unusual),
            ("a length of two bytes", [0x89, 126, 0, 5] + hello, .malformed),
            ("a length of eight bytes", [0x89, 127, 0, 0, 0, 0, 0, 0, 0, 5] + hello, .malformed),
            ("a length of half the world", [0x8A, 127, 0x7F, 255, 255, 255, 255, 255, 255, 255], .malformed),
            ("masked by a server", frame(0x89, hello, mask: [1, 2, 3, 4]), .malformed),
        ]
        for (name, bytes, reason) in cases {
            Expectation(name, bytes, .significant(reason)).check(try desk())
        }
        Expectation("not masked by a client", frame(0x89, hello), .significant(.malformed)).check(
            try desk(.server))
    }

    @Test("Half a frame is waited for, up to the limit of a control frame")
    func parts() throws {
        var desk = try desk()
        #expect(desk.inspect([0x89]).0 == .needMore(limit: 131))
        #expect(desk.inspect([0x89, 125] + [UInt8](repeating: 0, count: 124)).0 == .needMore(limit: 131))
        var server = try self.desk(.server)
        #expect(
            server.inspect([0x89, 0xFD, 0, 0, 0, 0] + [UInt8](repeating: 0, count: 124)).0
                == .needMore(limit: 131))
        #expect(
            server.inspect([0x89, 0xFD, 0, 0, 0, 0] + [UInt8](repeating: 0, count: 125)).0
                == .noise(length: 131, .ping))
    }

    @Test("Control frames between the parts of a message are absorbed")
    func betweenParts() throws {
        var desk = try desk()
        // The owner read the first part of a message, and sleeps.
        let stream = frame(0x89, hello) + frame(0x8A, []) + frame(0x80, hello)
        #expect(desk.inspect(stream).0 == .noise(length: 7, .ping))
        #expect(desk.inspect(Array(stream[7...])).0 == .noise(length: 2, .filler))
        #expect(desk.inspect(Array(stream[9...])).0 == .significant(.message))
    }
}

@Suite("mqtt")
struct MQTTTests {
    private func desk(_ role: MQTTSettings.Role = .client(keepAlive: .seconds(60))) throws -> Desk {
        try Desk(.mqtt(try MQTTSettings(role: role)))
    }

    @Test("A client sends PINGREQ within the keep-alive and absorbs one PINGRESP for it")
    func client() throws {
        var desk = try desk()
        #expect(desk.profile.pinging?.latest == .seconds(60))
        #expect(desk.profile.pinging?.answerWithin == .seconds(10))
        #expect(desk.ping() == [0xC0, 0])
        Expectation("answer", [0xD0, 0], .noise(length: 2, .answer)).check(desk)
        #expect(desk.inspect([0xD0, 0, 0x30]).0 == .noise(length: 2, .answer))
        #expect(desk.inspect([0x30, 3]).0 == .significant(.message))
        desk.profile.begin()
        #expect(desk.inspect([0xD0, 0]).0 == .significant(.unexpectedAnswer))
        desk.profile.begin()
        _ = desk.ping()
        _ = desk.profile.end()
        desk.profile.begin()
        #expect(!desk.profile.isAwaitingAnswer, "the owner was awake and may have read it")
    }

    @Test(
        "Anything but an exact PINGRESP wakes the owner",
        arguments: [
            [0xD1, 0], [0xD0, 1], [0xD0, 0x80, 0], [0xC0, 0], [0x30, 0], [0xE0, 0], [0x00],
        ] as [[UInt8]])
    func refusals(bytes: [UInt8]) throws {
        var desk = try desk()
        _ = desk.ping()
        guard case .significant = desk.inspect(bytes).0 else {
            #expect(Bool(false), "\(bytes)")
            return
        }
    }

    @Test("A server answers PINGREQ")
    func server() throws {
        let desk = try desk(.server)
        #expect(desk.profile.pinging == nil)
        Expectation("ping", [0xC0, 0], .noise(length: 2, .ping), reply: [0xD0, 0]).check(desk)
        Expectation("publish", [0x30, 0], .significant(.message)).check(desk)
        Expectation("a long zero", [0xC0, 0x80, 0], .significant(.malformed)).check(desk)
        Expectation("flags", [0xC2, 0], .significant(.message)).check(desk)
        var same = desk
        #expect(same.ping() == nil)
    }

    @Test("The keep-alive fits into two bytes")
    func intervals() throws {
        #expect(throws: SettingsError.self) { try MQTTSettings(role: .client(keepAlive: .zero)) }
        #expect(throws: SettingsError.self) { try MQTTSettings(role: .client(keepAlive: .seconds(65_536))) }
        #expect(throws: SettingsError.self) { try MQTTSettings(answerWithin: .zero) }
    }
}
