package import NightbellProfiles

/// Describes the keep-alives of a protocol, so that they can be answered, sent and checked while a socket is
/// parked, and only other traffic is reported. Make one and use it for all sockets with the same settings:
/// they share it.
///
/// Intervals and answer times are limited; a value out of range throws ``EmbeddedError`` with the code
/// `profile`. A host that parks a socket with a profile guarantees that it has read and written whole
/// messages only, and, if the profile sends pings, that no ping of the host's own is unanswered.
public struct ParkingProfile: Sendable {
    package let settings: ProfileSettings

    private init(_ make: () throws(SettingsError) -> ProfileSettings) throws(EmbeddedError) {
        do {
            settings = try make()
        } catch {
            throw EmbeddedError(.profile, "\(error)")
        }
    }

    /// The usual name of the protocol: `websocket`, `mqtt`, …
    public var name: String { settings.name }

    /// WebSocket after the handshake (RFC 6455): ping and pong frames.
    ///
    /// - Parameters:
    ///   - isServer: the host is the server of this connection.
    ///   - interval: between pings; nil: 45 s.
    ///   - answerWithin: how long a pong may take; nil: 10 s.
    ///   - absorbsOtherPongs: whether pongs that answer no ping of the supervisor's are noise.
    public static func webSocket(
        isServer: Bool, interval: Duration? = nil, answerWithin: Duration? = nil,
        absorbsOtherPongs: Bool = true
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .webSocket(
                try WebSocketSettings(
                    role: isServer ? .server : .client,
                    interval: interval, answerWithin: answerWithin, absorbsOtherPongs: absorbsOtherPongs))
        }
    }

    /// MQTT 3.1.1 and 5, on the client's side: sends PINGREQ.
    ///
    /// - Parameter keepAlive: the value in CONNECT, or in the server's CONNACK; nil: 60 s.
    public static func mqtt(
        keepAlive: Duration? = nil, answerWithin: Duration? = nil
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .mqtt(
                try MQTTSettings(
                    role: MQTTSettings.Role(isServer: false, keepAlive: keepAlive),
                    answerWithin: answerWithin))
        }
    }

    /// MQTT on the server's side: answers PINGREQ.
    public static func mqttServer() throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in .mqtt(try MQTTSettings(role: .server)) }
    }

    /// IRC: PING in both directions.
    public static func irc(
        interval: Duration? = nil, answerWithin: Duration? = nil
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .irc(try IRCSettings(interval: interval, answerWithin: answerWithin))
        }
    }

    /// IMAP while the command IDLE is under way: absorbs the messages with which a server keeps the
    /// connection up, and renews IDLE, if its tag was passed to `park`.
    ///
    /// - Parameters:
    ///   - interval: between renewals; nil: 28 minutes.
    ///   - fillers: the texts of untagged OKs that are noise; none: `Still here`.
    ///   - tagPrefix: of the tags that renewals use, which the host must not use itself; empty: `NB`.
    public static func imap(
        interval: Duration? = nil, answerWithin: Duration? = nil, fillers: [String] = [],
        tagPrefix: String = ""
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .imap(
                try IMAPSettings(
                    interval: interval, answerWithin: answerWithin, fillers: fillers, tagPrefix: tagPrefix))
        }
    }

    /// XMPP after the stream is established, without stream management: XEP-0199 pings and white space.
    ///
    /// - Parameters:
    ///   - server: the server's domain: its pings are answered; nil: that of `address`. Pings of other
    ///     entities, which the server passes on, wake. Without both, only pings without a sender are
    ///     answered.
    ///   - address: the host's full address.
    ///   - whiteSpacePings: sends spaces, which have no answer, instead of pings.
    public static func xmpp(
        interval: Duration? = nil, answerWithin: Duration? = nil, server: String? = nil,
        address: String? = nil, whiteSpacePings: Bool = false
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .xmpp(
                try XMPPSettings(
                    ping: whiteSpacePings ? .whiteSpace : .query,
                    interval: interval, answerWithin: answerWithin, server: server, address: address))
        }
    }

    /// SIP on a stream or a UDP socket: the keep-alives of RFC 5626, and OPTIONS requests answered with 200.
    ///
    /// - Parameters:
    ///   - interval: the registrar's `Flow-Timer`; nil: 120 s on streams, 29 s on UDP.
    ///   - users: the user parts of the host's own addresses; none: every request on the socket is for it.
    ///   - sendsPings: false for a registrar that does not support RFC 5626, which answers no pings.
    public static func sip(
        interval: Duration? = nil, users: [String] = [], sendsPings: Bool = true
    ) throws(EmbeddedError) -> ParkingProfile {
        var random = RandomNumbers()
        let tagKey = random.next()
        return try ParkingProfile { () throws(SettingsError) in
            .sip(
                try SIPSettings(
                    users: users, sendsPings: sendsPings, tagKey: tagKey,
                    streamInterval: interval, datagramInterval: interval))
        }
    }

    /// STUN binding requests, or indications, which have no answer (RFC 8489).
    public static func stun(
        interval: Duration? = nil, indications: Bool = false, fingerprint: Bool = false
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .stun(
                try STUNSettings(
                    ping: indications ? .indication : .request,
                    interval: interval, withFingerprint: fingerprint))
        }
    }

    /// An exact message of the peer's, and the reply to it.
    public struct Exchange: Sendable, Hashable {
        public var pattern: [UInt8]
        /// Empty: no reply.
        public var reply: [UInt8]

        public init(_ pattern: [UInt8], reply: [UInt8] = []) {
            self.pattern = pattern
            self.reply = reply
        }
    }

    /// A message to be sent at intervals.
    public struct Ping: Sendable, Hashable {
        public var payload: [UInt8]
        /// Empty: it has no answer.
        public var answer: [UInt8]
        /// nil: 60 s.
        public var interval: Duration?
        /// nil: 10 s.
        public var answerWithin: Duration?

        public init(
            _ payload: [UInt8], answer: [UInt8] = [], interval: Duration? = nil, answerWithin: Duration? = nil
        ) {
            self.payload = payload
            self.answer = answer
            self.interval = interval
            self.answerWithin = answerWithin
        }
    }

    /// Exact bytes of a protocol that Nightbell does not know. No pattern may be the beginning of another.
    public static func bytes(
        _ exchanges: [Exchange], ping: Ping? = nil
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .pattern(
                try .bytes(
                    exchanges.map { PatternSettings.Exchange($0.pattern, reply: $0.reply) },
                    ping: ping.map { ping in
                        PatternSettings.Ping(
                            ping.payload, answer: ping.answer.isEmpty ? nil : ping.answer,
                            interval: ping.interval, answerWithin: ping.answerWithin)
                    }))
        }
    }

    /// TCP's own keep-alives, set while the socket is parked, and restored when it is claimed. Nothing is
    /// read, so this works for encrypted connections as well. Only for TCP connections.
    ///
    /// - Parameters:
    ///   - idle: from the last traffic to the first probe; nil: 15 minutes.
    ///   - interval: between probes that are not answered; nil: 30 s.
    ///   - probes: the number of unanswered probes after which the path is lost; nil: 4.
    public static func tcp(
        idle: Duration? = nil, interval: Duration? = nil, probes: Int? = nil
    ) throws(EmbeddedError) -> ParkingProfile {
        try ParkingProfile { () throws(SettingsError) in
            .tcp(try TCPSettings(idle: idle, interval: interval, probes: probes))
        }
    }
}
