import Glibc
import LinuxSystem
import Nightbell

/// Profiles by words: `profile=sip interval=15000 within=5000`, and their delegated state.
extension ScriptedClient {
    /// nil: without a profile.
    func profile(_ words: [String]) throws(Refusal) -> Profile? {
        guard let name = words.value("profile") else { return nil }
        let interval = words.value("interval").flatMap(Int.init).map { Duration.milliseconds($0) }
        let within = words.value("within").flatMap(Int.init).map { Duration.milliseconds($0) }
        switch name {
        case "sip": return .sip(interval: interval)
        case "stun": return .stun(interval: interval, fingerprint: words.contains("fingerprint"))
        case "xmpp":
            return .xmpp(
                interval: interval, answerWithin: within, server: words.value("server"),
                address: words.value("address"), streamManagement: words.contains("sm"),
                whiteSpacePings: words.contains("space"))
        case "websocket": return .webSocket(interval: interval, answerWithin: within)
        case "mqtt": return .mqtt(keepAlive: interval, answerWithin: within)
        case "irc": return .irc(interval: interval, answerWithin: within)
        case "imap": return .imap(interval: interval, answerWithin: within)
        case "lines":
            let pings = interval != nil
            // Pads the profile to this length.
            let padding = words.value("padding").flatMap(Int.init).map { String(repeating: "x", count: $0) }
            return .line(
                [.init("ping", reply: "pong"), .init("nop")] + [padding].compactMap { $0.map { .init($0) } },
                ping: pings ? "PING" : "",
                answer: pings ? "PONG" : "", end: .newline, interval: interval, answerWithin: within)
        case "tcp":
            let probes = words.value("probes").flatMap(Int.init)
            return .tcp(idle: interval, interval: within, probes: probes)
        default: throw Refusal("usage", "no such profile: \(name)")
        }
    }

    func delegateOrTell(_ command: String, _ arguments: Arguments) throws -> String {
        let socket = try parked(try arguments.text(0))
        switch (command, arguments.words.dropFirst().first) {
        case ("delegate", "idle"):
            try client().delegate(.idle(tag: try arguments.text(2)), for: socket)
        case ("delegate", "stanzas"):
            let (received, sent) = (try arguments.number(2), try arguments.number(3))
            try client().delegate(
                .stanzaCounters(received: UInt32(clamping: received), sent: UInt32(clamping: sent)),
                for: socket)
        case ("delegatedState", _):
            switch try client().delegatedState(for: socket) {
            case .idle(let tag, let phase): return "idle \(tag) \(phase.rawValue)"
            case .stanzaCounters(let received, let sent): return "stanzas \(received) \(sent)"
            case nil: return "nothing"
            }
        default: throw Refusal("usage", "idle TAG, or stanzas RECEIVED SENT")
        }
        return ""
    }

    /// Bytes as pairs of hexadecimal digits, for texts with line ends and binary protocols.
    static func bytes(hex: String) throws(Refusal) -> [UInt8] {
        var bytes: [UInt8] = []
        var rest = Substring(hex)
        while !rest.isEmpty {
            guard let byte = UInt8(rest.prefix(2), radix: 16), rest.count >= 2 else {
                throw Refusal("usage", "pairs of hexadecimal digits")
            }
            bytes.append(byte)
            rest = rest.dropFirst(2)
        }
        return bytes
    }

    static func hex(_ bytes: ArraySlice<UInt8>) -> String {
        bytes.reduce(into: "") { $0 += ($1 < 16 ? "0" : "") + String($1, radix: 16) }
    }
}

extension [String] {
    fileprivate func value(_ name: String) -> String? {
        first { $0.hasPrefix(name + "=") }.map { String($0.dropFirst(name.count + 1)) }
    }
}
