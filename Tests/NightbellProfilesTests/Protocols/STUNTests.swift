import NightbellProfiles
import Testing

@Suite("stun")
struct STUNTests {
    private func desk(
        _ ping: STUNSettings.Ping = .request, withFingerprint: Bool = false,
        over transport: Transport = .datagram
    ) throws -> Desk {
        try Desk(.stun(try STUNSettings(ping: ping, withFingerprint: withFingerprint)), over: transport)
    }

    /// A success response with an XOR-MAPPED-ADDRESS of the given value, and more attributes.
    static func success(_ request: [UInt8], address: String, more: String = "") -> [UInt8] {
        let value = hex(address)
        let attributes = [0, 0x20, 0, UInt8(value.count)] + value + hex(more)
        return response(request, type: "0101", attributes: attributes)
    }

    static func response(_ request: [UInt8], type: String, attributes: [UInt8] = []) -> [UInt8] {
        hex(type) + [UInt8(attributes.count >> 8), UInt8(attributes.count & 255)] + request[4..<20]
            + attributes
    }

    /// 192.0.2.5:58617, combined with the cookie.
    private static let address = "0001 C5EB E112A447"

    @Test("A request is repeated with the same transaction until it is answered")
    func requests() throws {
        var desk = try desk()
        let pinging = try #require(desk.profile.pinging)
        #expect(pinging.latest == .seconds(29))
        #expect(pinging.answerWithin == .milliseconds(39_500))
        #expect(pinging.repetition?.first == .milliseconds(500))
        #expect(pinging.repetition?.count == 6)
        #expect(desk.ping(again: true) == nil, "nothing to repeat")
        let ping = try desk.sentPing()
        #expect(ping == hex("0001 0000 2112A442 05060708 1112131415161718"))
        desk.random = 99
        #expect(desk.ping(again: true) == ping)
        let answer = Self.success(ping, address: Self.address)
        #expect(desk.inspect(answer).0 == .noise(length: 32, .answer))
        #expect(desk.ping(again: true) == nil)
        #expect(desk.ping() == hex("0001 0000 2112A442 00000000 0000000000000063"))
        #expect(desk.inspect(answer).0 == .significant(.unexpectedAnswer), "to the one before")
    }

    @Test("Indications are sent and absorbed, and get no answer")
    func indications() throws {
        var desk = try desk(.indication)
        #expect(desk.profile.pinging?.answerWithin == nil)
        let ping = try desk.sentPing()
        #expect(ping == hex("0011 0000 2112A442 05060708 1112131415161718"))
        #expect(!desk.profile.isAwaitingAnswer)
        #expect(desk.inspect(ping).0 == .noise(length: 20, .filler))
        #expect(desk.inspect(Self.success(ping, address: Self.address)).0 == .significant(.unexpectedAnswer))
    }

    @Test("There is no answer before a request")
    func unasked() throws {
        var desk = try desk()
        let zeros = hex("0001 0000 2112A442") + [UInt8](repeating: 0, count: 12)
        #expect(desk.inspect(Self.success(zeros, address: Self.address)).0 == .significant(.unexpectedAnswer))
    }

    @Test("A fingerprint is sent, and checked if there is one")
    func fingerprints() throws {
        // RFC 5769 §2.2 in shape: SOFTWARE, XOR-MAPPED-ADDRESS, FINGERPRINT.
        var desk = try desk(withFingerprint: true)
        let ping = try desk.sentPing()
        #expect(ping.count == 28)
        #expect(Array(ping[20..<24]) == hex("8028 0004"))
        // The profile of another owner sees an intact request.
        #expect(desk.inspect(ping).0 == .significant(.message))
        var damaged = ping
        damaged[27] ^= 1
        #expect(desk.inspect(damaged).0 == .significant(.malformed))
        var indication = try self.desk(.indication, withFingerprint: true)
        var bytes = try indication.sentPing()
        #expect(indication.inspect(bytes).0 == .noise(length: 28, .filler))
        bytes[10] ^= 0x40
        #expect(indication.inspect(bytes).0 == .significant(.malformed))
        // Something behind the fingerprint.
        let more = hex("0011 000C") + bytes[4..<20] + bytes[20...] + hex("8022 0000")
        #expect(indication.inspect(more).0 == .significant(.malformed))
    }

    @Test("The test vector of RFC 5769 §2.2: an IPv4 response with a fingerprint")
    func vector() throws {
        // With its MESSAGE-INTEGRITY, which cannot be checked without the key.
        let bytes = hex(
            """
            0101003c 2112a442 b7e7a701 bc34d686 fa87dfae 8022000b 74657374 20766563 746f7220 00200008 0001a147
            e112a643 00080014 2b91f599 fd9e90c3 8c7489f9 2af9ba53 f06be7d7 80280004 c07d4c96
            """)
        var desk = try desk()
        desk.random = UInt128(0xb7e7_a701) << 64 | 0xbc34_d686_fa87_dfae
        _ = desk.ping()
        #expect(desk.inspect(bytes).0 == .significant(.unusual), "integrity must be understood")
        // Without it, with a fingerprint of its own.
        let plain = hex(
            "01010018 2112a442 b7e7a701 bc34d686 fa87dfae 8022000b 74657374 20766563 746f7220 00200008 0001a147 e112a643"
        )
        let stripped = hex("0101001c") + plain[4...]
        #expect(desk.inspect(stripped).0 == .noise(length: 48, .answer))
    }

    @Test("An address that changes wakes the owner, once")
    func changedAddress() throws {
        var desk = try desk()
        for (address, verdict) in [
            (Self.address, Verdict.noise(length: 32, .answer)), (Self.address, .noise(length: 32, .answer)),
            ("0001 C5EC E112A447", .significant(.addressChanged)),
            ("0001 C5EC E112A447", .noise(length: 32, .answer)),
            ("0001 C5EC E112A448", .significant(.addressChanged)),
            ("0002 C5EC 0113A9FA 05060708 1112131415161718", .significant(.addressChanged)),
        ] {
            desk.random += 1
            desk.profile.begin()
            let ping = try desk.sentPing()
            #expect(desk.inspect(Self.success(ping, address: address)).0 == verdict)
        }
    }

    @Test("Unusual responses wake the owner")
    func unusual() throws {
        var desk = try desk()
        let ping = try desk.sentPing()
        let address = [0, 0x20, 0, 8] + hex(Self.address)
        let cases: [(String, [UInt8], Significance)] = [
            ("an error", Self.response(ping, type: "0111", attributes: hex("0009 0004 00000400")), .refused),
            ("no address", Self.response(ping, type: "0101"), .malformed),
            ("an unknown attribute", Self.success(ping, address: Self.address, more: "0002 0000"), .unusual),
            ("a short address", Self.success(ping, address: "0001 C5EB"), .malformed),
            ("a family that is none", Self.success(ping, address: "0003 C5EB E112A447"), .malformed),
            (
                "an attribute that lies",
                Self.response(ping, type: "0101", attributes: address + hex("8022 0005 00000000")), .malformed
            ),
            ("a length that lies", hex("0101 0010") + ping[4...] + address, .malformed),
            ("a length not of four", hex("0101 000D") + ping[4...] + address + [0], .malformed),
            ("too long", hex("0101 0214") + ping[4...] + address, .tooLong),
            (
                "another transaction", Self.success(Array(ping.dropLast()) + [0], address: Self.address),
                .unexpectedAnswer
            ),
            ("another method", Self.response(ping, type: "0103", attributes: address), .message),
            ("another cookie", hex("0101 000C 2112A443") + ping[8...] + address, .message),
            ("no STUN", Array("SIP/2.0 200 OK\r\n".utf8), .message),
            ("nothing", [], .malformed),
            ("one byte", [1], .malformed),
        ]
        for (name, bytes, reason) in cases {
            #expect(desk.inspect(bytes).0 == .significant(reason), "\(name)")
        }
        let plain = Self.success(
            ping, address: Self.address, more: "802B 0001 00000000 0001 0008 0001000000000000")
        #expect(
            desk.inspect(plain).0 == .noise(length: plain.count, .answer), "attributes that may be ignored")
    }

    @Test("Over a stream, messages are separated by their length")
    func streams() throws {
        var desk = try desk(over: .stream)
        #expect(desk.profile.pinging?.repetition == nil)
        let ping = try desk.sentPing()
        let answer = Self.success(ping, address: Self.address)
        Expectation("answer", answer, .noise(length: 32, .answer)).check(desk)
        #expect(desk.inspect(answer + answer).0 == .noise(length: 32, .answer))
        #expect(desk.inspect(answer).0 == .noise(length: 32, .filler))
        #expect(desk.inspect([0]).0 == .needMore(limit: 548))
        #expect(desk.inspect([0x40]).0 == .significant(.message), "from the first byte")
        Expectation("foreign", hex("0101 000C 4212A442"), .significant(.message)).check(
            try self.desk(over: .stream))
    }

    @Test("Not more often than RFC 8445 allows")
    func intervals() throws {
        #expect(throws: SettingsError.self) { try STUNSettings(interval: .seconds(14)) }
        #expect(throws: SettingsError.self) { try STUNSettings(interval: .seconds(121)) }
        #expect(try STUNSettings(interval: .seconds(15)).interval == .seconds(15))
    }
}
