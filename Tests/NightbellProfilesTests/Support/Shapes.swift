import NightbellProfiles
import Simulation

extension Shape {
    static var all: [Shape] {
        get throws {
            [
                try sip, try stun, try xmpp, try managedXMPP, try webSocket(.client), try webSocket(.server),
                try mqtt(.client(keepAlive: .seconds(60))), try mqtt(.server), try irc, try imap, try line,
                try bytes,
            ]
        }
    }

    // MARK: SIP

    /// An OPTIONS request; `extra` goes among the headers, `body` behind them.
    private static func options(
        _ random: inout SplitMix64, to tag: String = "", extra: String = "", body: String = "",
        over transport: String = "TCP"
    ) -> String {
        let (user, id) = (random.word(), random.word())
        let via = [
            "Via: SIP/2.0/\(transport) 192.0.2.1:5060;branch=z9hG4bK\(id)",
            "v: SIP/2.0/\(transport) \(id).example.org:5060;rport;branch=z9hG4bK\(id)",
            "VIA:SIP/2.0/\(transport) 192.0.2.1:5060 ;x=\"a,b\\\"\";branch=1, SIP/2.0/UDP \(id)\nVia: SIP/2.0/TLS \(id)",
        ]
        var headers = [
            random.one(of: via),
            random.one(of: ["From: \"\(user)\" <sip:\(user)@example.org>;tag=\(id)", "f: sip:\(user)@\(id)"]),
            random.one(of: ["To: <sip:\(user)@192.0.2.7;transport=tcp>", "t:sip:\(user)@192.0.2.7;x=y"])
                + tag,
            random.one(of: ["Call-ID: \(id)@\(user)", "I: \(id)"]),
            "CSeq: \(random.below(1_000_000)) OPTIONS",
            random.one(of: ["Content-Length: ", "l:"]) + String(body.utf8.count),
        ]
        if random.once(in: 2) { headers.append("Max-Forwards: \(random.below(256))") }
        if random.once(in: 3) { headers.append("X-\(user): \(random.word(0...200))") }
        if !extra.isEmpty { headers.append(extra) }
        headers.shuffle(using: &random)
        // Their order matters, so one generator makes them in one piece.
        return "OPTIONS sip:\(user)@192.0.2.7 SIP/2.0\n" + headers.joined(separator: "\n") + "\n\n" + body
    }

    static var sip: Shape {
        get throws {
            Shape(
                name: "sip", settings: .sip(try SIPSettings(tagKey: tagKey)),
                noise: [
                    // A single one might be half a ping, and a missing answer makes one of two.
                    maker { String(repeating: "\n", count: $0.below(7)) + options(&$0) },
                    maker { String(repeating: "\n", count: $0.below(7)) + options(&$0) },
                    maker { options(&$0) },
                ],
                significant: [
                    maker { options(&$0, to: ";tag=1") }, maker { options(&$0, extra: "Require: x") },
                    maker { options(&$0, body: "v=0\n") }, maker { options(&$0, extra: "Route: <sip:x>") },
                    maker { options(&$0, over: "UDP") },
                    maker { "INVITE sip:\($0.word()) SIP/2.0\nContent-Length: 0\n\n" },
                    maker { "SIP/2.0 200 OK\nCall-ID: \($0.word())\n\n" },
                ],
                answers: { _, _ in [[13, 10]] })
        }
    }

    // MARK: STUN

    static var stun: Shape {
        get throws {
            Shape(
                name: "stun", settings: .stun(try STUNSettings()),
                noise: [{ hex("0011 0000 2112A442") + $0.bytes(12) }],
                significant: [
                    { hex("0001 0000 2112A442") + $0.bytes(12) },
                    { hex("0101 000C 2112A442") + $0.bytes(12) + hex("0020 0008 0001 C5EB E112A447") },
                    { [0x40 | UInt8($0.below(128))] + $0.bytes(30) },
                ],
                answers: { ping, _ in [STUNTests.success(ping, address: "0001 C5EB E112A447")] })
        }
    }

    // MARK: XMPP

    private static func query(_ random: inout SplitMix64, from: String, child: String, type: String = "get")
        -> String
    {
        var attributes = ["type='\(type)'", "id=\"\(random.word())\"", from]
        if random.once(in: 2) { attributes.append("to='\(random.word())@\(random.word())/é&amp;'") }
        if random.once(in: 4) { attributes.append("xmlns='jabber:client'") }
        attributes.shuffle(using: &random)
        return "<iq " + attributes.joined(separator: random.one(of: [" ", "  ", "\n\t"])) + ">\(child)</iq>"
    }

    private static let ping = "<ping xmlns='urn:xmpp:ping'/>"

    private static func xmpp(
        _ name: String, _ settings: XMPPSettings, _ delegated: DelegatedValues, more: [Maker]
    ) -> Shape {
        Shape(
            name: name, settings: .xmpp(settings), delegated: delegated,
            noise: [
                { _ in [32] }, { $0.once(in: 2) ? [10] : [32, 13, 10, 9] },
                maker { query(&$0, from: "from='example.org'", child: ping) },
                maker { query(&$0, from: "", child: "<ping xmlns=\"urn:xmpp:ping\"></ping>") },
            ] + more,
            significant: [
                maker { query(&$0, from: "from='\($0.word()).org'", child: ping) },
                maker { "<message from='\($0.word())@x'><body>\($0.word())</body></message>" },
                maker { _ in "<presence/>" },
                maker { query(&$0, from: "from='\($0.word())@x/y'", child: ping) },
                maker { query(&$0, from: "", child: "<query xmlns='x'/>") },
                maker { query(&$0, from: "", child: ping, type: "set") },
                maker { query(&$0, from: "", child: "", type: "result") },
            ],
            answers: { ping, _ in
                let id = text(ping).split(separator: "'")[3]
                return [Array("<iq from='x' id='\(id)' type='result'/>".utf8)]
            })
    }

    static var xmpp: Shape {
        get throws { xmpp("xmpp", try XMPPSettings(server: "example.org"), .nothing, more: []) }
    }

    static var managedXMPP: Shape {
        get throws {
            xmpp(
                "xmpp with stream management",
                try XMPPSettings(server: "example.org", usesStreamManagement: true),
                .stanzaCounters(received: 1, sent: 2), more: [maker { _ in "<r xmlns='urn:xmpp:sm:3'/>" }])
        }
    }

    // MARK: Binary protocols

    private static func frame(_ first: UInt8, _ payload: [UInt8], isMasked: Bool) -> [UInt8] {
        let length: [UInt8] =
            payload.count > 125
            ? [126, UInt8(payload.count >> 8), UInt8(payload.count & 255)] : [UInt8(payload.count)]
        // A mask of zeros is valid.
        return isMasked
            ? [first, length[0] | 0x80] + length[1...] + [0, 0, 0, 0] + payload : [first] + length + payload
    }

    static func webSocket(_ role: WebSocketSettings.Role) throws -> Shape {
        let isMasked = role == .server
        return Shape(
            name: "websocket \(role)", settings: .webSocket(try WebSocketSettings(role: role)),
            noise: [
                { frame(0x89, $0.bytes($0.below(126)), isMasked: isMasked) },
                { frame(0x8A, $0.bytes($0.below(126)), isMasked: isMasked) },
                { _ in frame(0x89, [], isMasked: isMasked) },
            ],
            significant: [
                { frame(0x81, $0.bytes($0.below(300)), isMasked: isMasked) },
                { frame(0x02, $0.bytes($0.below(20)), isMasked: isMasked) },
                { frame(0x80, $0.bytes($0.below(20)), isMasked: isMasked) },
                { frame(0x88, $0.bytes(2), isMasked: isMasked) },
                { frame(0x89, $0.bytes(5), isMasked: !isMasked) },
                { frame(0x89, $0.bytes(126 + $0.below(50)), isMasked: isMasked) },
            ],
            answers: { ping, _ in
                // Sent masked by a client, with the mask in front of the payload.
                let payload = isMasked ? Array(ping[2...]) : (0..<8).map { ping[6 + $0] ^ ping[2 + $0 % 4] }
                return [frame(0x8A, payload, isMasked: isMasked)]
            })
    }

    static func mqtt(_ role: MQTTSettings.Role) throws -> Shape {
        let isServer = role == .server
        return Shape(
            name: isServer ? "mqtt server" : "mqtt client", settings: .mqtt(try MQTTSettings(role: role)),
            noise: isServer ? [{ _ in [0xC0, 0] }] : [],
            significant: [
                { [0x30, 5, 0, 1] + $0.bytes(3) }, { _ in [0xE0, 0] }, { _ in [0x40, 2, 0, 1] },
                { _ in isServer ? [0xD0, 0] : [0xC0, 0] },
            ],
            answers: { _, _ in [[0xD0, 0]] })
    }

    static var bytes: Shape {
        get throws {
            let settings = try PatternSettings.bytes(
                [
                    .init([0]), .init([1, 2, 3, 4], reply: [9]), .init([1, 2, 3, 5], reply: [0, 0]),
                    .init([UInt8](repeating: 7, count: 40), reply: [7]),
                ], ping: .init([1, 1], answer: [2, 2]))
            return Shape(
                name: "bytes", settings: .pattern(settings),
                noise: [
                    { _ in [0] }, { _ in [1, 2, 3, 4] }, { _ in [1, 2, 3, 5] },
                    { _ in [UInt8](repeating: 7, count: 40) },
                ],
                significant: [
                    { [3] + $0.bytes(10) }, { [1, 2, 3, 6] + $0.bytes(3) },
                    { _ in [UInt8](repeating: 7, count: 39) + [8] },
                ],
                answers: { _, _ in [[2, 2]] })
        }
    }

    // MARK: Protocols of lines

    static var irc: Shape {
        get throws {
            Shape(
                name: "irc", settings: .irc(try IRCSettings()),
                noise: [
                    maker { "PING :\($0.word())\n" }, maker { "PING \($0.word())\n" },
                    maker { ":\($0.word()).org PING :\($0.word()) \($0.word())\n" },
                    maker { "@time=2024-01-01T00:00:00.\($0.below(1000))Z PING :\($0.word())\n" },
                ],
                significant: [
                    maker { ":\($0.word())!u@h PRIVMSG #x :\($0.word())\n" },
                    maker { ":irc 372 me :\($0.word())\n" },
                    maker { "PING \($0.word()) \($0.word())\n" }, maker { "PONG :\($0.word())\n" },
                    maker { "@batch=1 PING :\($0.word())\n" }, maker { _ in "ERROR :x\n" },
                ],
                answers: { ping, _ in [Array(":irc PONG irc :".utf8) + ping[6...]] })
        }
    }

    static var imap: Shape {
        get throws {
            Shape(
                name: "imap", settings: .imap(try IMAPSettings()),
                delegated: Idle.Tag("a1").map { .idle(Idle(tag: $0)) } ?? .nothing,
                noise: [maker { _ in "* OK Still here\n" }, maker { _ in "* ok still HERE\n" }],
                significant: [
                    maker { "* \($0.below(100)) EXISTS\n" }, maker { "* OK [ALERT] \($0.word())\n" },
                    maker { "* OK \($0.word())\n" }, maker { _ in "* BYE\n" }, maker { _ in "x OK y\n" },
                ],
                answers: { _, delegated in
                    guard case .idle(let idle) = delegated else { return [] }
                    return [lines("\(idle.tag) OK Idle completed.\n"), lines("+ idling\n")]
                })
        }
    }

    static var line: Shape {
        get throws {
            let settings = try PatternSettings.lines(
                [
                    .init(Array("ping".utf8), reply: Array("pong".utf8)), .init(Array("pingpong".utf8)),
                    .init([]),
                ], ping: .init(Array("alive?".utf8), answer: Array("yes".utf8)), end: .carriageReturnNewline)
            return Shape(
                name: "line", settings: .pattern(settings),
                noise: [maker { _ in "ping\n" }, maker { _ in "pingpong\n" }, maker { _ in "\n" }],
                significant: [
                    maker { "hello \($0.word())\n" }, maker { "ping\($0.word())\n" }, maker { _ in "Yes\n" },
                ],
                answers: { _, _ in [lines("yes\n")] })
        }
    }
}
