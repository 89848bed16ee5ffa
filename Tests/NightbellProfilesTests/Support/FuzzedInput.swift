import NightbellProfiles

/// Fuzzed input for one profile: three bytes that choose the settings and the cuts, followed by the traffic.
/// The three may be digits, so that seeds can be written by hand.
///
/// | byte | low bits |
/// | --- | --- |
/// | 0 | 1: a datagram instead of a stream, where the profile takes them; 2: a ping was sent before |
/// | 1 | which settings |
/// | 2 | the longest piece that arrives at once, less one |
struct FuzzedInput {
    private let profile: Profile
    private let delegated: DelegatedValues
    private let isAfterPing: Bool
    private let longestPiece: Int
    private let traffic: [UInt8]

    /// Nil with fewer than three bytes.
    init?(_ bytes: [UInt8], for name: ProfileName) throws(SettingsError) {
        guard bytes.count > 3 else { return nil }
        let variant = Int(bytes[1] & 3)
        let isDatagram = bytes[0] & 1 == 1 && name.transports.contains(.datagram)
        let settings: ProfileSettings
        (settings, delegated) = try Self.settings(name, variant)
        profile = try Profile(settings, over: isDatagram ? .datagram : .stream)
        isAfterPing = bytes[0] & 2 == 2
        longestPiece = 1 + Int(bytes[2] & 15)
        traffic = Array(bytes[3...])
    }

    private static func settings(
        _ name: ProfileName, _ variant: Int
    ) throws(SettingsError) -> (ProfileSettings, DelegatedValues) {
        switch name {
        case .sip:
            return (.sip(try SIPSettings(users: variant == 1 ? ["bob", "alice"] : [], tagKey: 1)), .nothing)
        case .stun:
            let ping: STUNSettings.Ping = variant & 1 == 0 ? .request : .indication
            return (.stun(try STUNSettings(ping: ping, withFingerprint: variant > 1)), .nothing)
        case .xmpp:
            let settings = try XMPPSettings(
                ping: variant == 1 ? .whiteSpace : .query, server: variant == 2 ? "example.org" : nil,
                address: variant == 2 ? "me@example.org/x" : nil, usesStreamManagement: variant == 3)
            return (.xmpp(settings), variant == 3 ? .stanzaCounters(received: .max, sent: 0) : .nothing)
        case .webSocket:
            let settings = try WebSocketSettings(
                role: variant & 1 == 0 ? .client : .server, absorbsOtherPongs: variant < 2)
            return (.webSocket(settings), .nothing)
        case .mqtt:
            let role: MQTTSettings.Role = variant & 1 == 0 ? .client(keepAlive: .seconds(60)) : .server
            return (.mqtt(try MQTTSettings(role: role)), .nothing)
        case .irc: return (.irc(try IRCSettings()), .nothing)
        case .imap:
            let tag = Idle.Tag(variant == 1 ? "a" : "A01234567890123")
            let phase = Idle.Phase(rawValue: UInt8(max(0, variant - 1))) ?? .idling
            let settings = try IMAPSettings(fillers: ["Still here", "[x] y"])
            return (
                .imap(settings),
                variant == 0 ? .nothing : tag.map { .idle(Idle(tag: $0, phase: phase)) } ?? .nothing
            )
        case .line:
            let settings = try PatternSettings.lines(
                [
                    .init(Array("ping".utf8), reply: Array("pong".utf8)), .init([]),
                    .init(Array("pings".utf8)),
                ],
                ping: .init([65], answer: [66]), end: variant & 1 == 0 ? .newline : .carriageReturnNewline)
            return (.pattern(settings), .nothing)
        case .bytes:
            let settings = try PatternSettings.bytes(
                [
                    .init([0]), .init([48, 49, 50], reply: [1]), .init([48, 49, 51, 52]),
                    .init([50, 50], reply: [0]),
                ],
                ping: variant & 1 == 0 ? nil : .init([65], answer: [66, 66]))
            return (.pattern(settings), .nothing)
        case .tcp: return (.tcp(try TCPSettings()), .nothing)
        }
    }

    /// Replays it, in one piece and in many; throws if an invariant is violated.
    func play() throws(ProfileFixture.Broken) {
        switch profile.transport {
        case .stream:
            let whole = try rehearse(pieces: .max)
            let cut = try rehearse(pieces: longestPiece)
            guard whole == cut else {
                throw ProfileFixture.Broken(description: "whole: \(whole)\ncut: \(cut)")
            }
        case .datagram: try inspectDatagram()
        }
    }

    private func rehearse(pieces longest: Int) throws(ProfileFixture.Broken) -> ProfileFixture.Outcome {
        var rehearsal = ProfileFixture(profile, delegating: delegated)
        if isAfterPing { _ = rehearsal.ping() }
        // The owner knows of boundaries here and there.
        let boundaries = Array(stride(from: 5, to: traffic.count, by: 11))
        try rehearsal.play(traffic, boundaries: boundaries) { min($0, longest) }
        return try rehearsal.finish()
    }

    private func inspectDatagram() throws(ProfileFixture.Broken) {
        var profile = profile
        profile.begin(delegating: delegated)
        let profileContext = ProfileContext(random: 0, peer: Endpoint(v6: 0x2001_0DB8 << 32, 1, port: 5_060))
        var replies: [UInt8] = []
        if isAfterPing { _ = profile.ping(profileContext, into: &replies) }
        for _ in 0..<2 {
            replies.removeAll()
            switch profile.inspect(traffic.span, profileContext, replies: &replies) {
            case .noise(let length, _) where length == traffic.count && replies.count <= length + 8_192: break
            case .significant where replies.isEmpty: break
            case let verdict:
                throw ProfileFixture.Broken(description: "\(verdict) and \(replies.count) bytes of reply")
            }
        }
    }
}
