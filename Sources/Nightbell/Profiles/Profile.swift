package import NightbellWire
import SwiftProtobuf

/// How the supervisor handles the keep-alives of one protocol on one socket while the client sleeps.
///
/// It answers the peer's pings, sends those that the peer expects, checks that they are answered, and removes
/// such noise from the socket. All other traffic wakes the client, complete and in place. While the client
/// runs, it handles pings itself.
///
/// When the client says that it is ready to be suspended, it guarantees for these sockets that its last read
/// and its last write both ended with a whole message, and that it waits for no answer to a ping of its own.
/// A socket for which this does not hold is to be named in ``Client/Handlers/prepareToSuspend``.
///
/// An `interval` is the longest time between two pings; they are sent in its last fifth. `answerWithin` is
/// the time allowed for an answer, an hour at most; no other ping is sent before that. `nil` is the
/// protocol's standard.
public struct Profile: Sendable, Hashable {
    package let wire: WireProfile

    package init(wire: WireProfile) { self.wire = wire }

    package init(_ kind: WireProfile.OneOf_Kind, interval: Duration? = nil, answerWithin: Duration? = nil) {
        var wire = WireProfile()
        wire.kind = kind
        // The supervisor refuses values out of range: nothing here may turn them into "the standard".
        if let interval { wire.intervalMs = interval.atLeastOneMillisecond }
        if let answerWithin { wire.answerWithinMs = answerWithin.atLeastOneMillisecond }
        self.wire = wire
    }

    /// Its name in the output of `nightbell`.
    public var name: String {
        switch wire.kind {
        case .sip: "sip"
        case .stun: "stun"
        case .xmpp: "xmpp"
        case .webSocket: "websocket"
        case .mqtt: "mqtt"
        case .irc: "irc"
        case .imap: "imap"
        case .pattern: "bytes"
        case .tcp: "tcp"
        case nil: "none"
        }
    }
}

extension Duration {
    fileprivate var atLeastOneMillisecond: UInt64 { UInt64(max(1, wholeNanoseconds / 1_000_000)) }
}

extension Profile {
    /// The client's capabilities in answers to SIP's OPTIONS (RFC 3261 §11.2).
    public struct SIPCapabilities: Sendable, Hashable {
        /// Methods; empty: `INVITE, ACK, CANCEL, OPTIONS, BYE`.
        public var allow = ""
        /// Empty: `application/sdp`.
        public var accept = ""
        /// Empty: `identity`.
        public var acceptEncoding = ""
        /// Empty: `en`.
        public var acceptLanguage = ""
        /// Extensions.
        public var supported = ""
        /// Where the client can be reached; empty: the header is left out.
        public var contact = ""
        /// Empty: the header is left out.
        public var userAgent = ""

        public init() {}
    }

    /// SIP on a stream or a UDP socket: CRLF and STUN keep-alives of RFC 5626, OPTIONS requests answered with
    /// 200.
    ///
    /// - Parameters:
    ///   - interval: the registrar's `Flow-Timer`; nil: 120 s on streams, 29 s on UDP.
    ///   - users: the user parts of the client's own addresses; none: every request on the socket is for it.
    ///   - sendsPings: false for a registrar that does not support RFC 5626 and so answers no pings; the
    ///     peer's pings are still answered.
    public static func sip(
        interval: Duration? = nil, users: [String] = [], capabilities: SIPCapabilities = SIPCapabilities(),
        sendsPings: Bool = true
    ) -> Profile {
        let sip = WireProfile.SIP.with {
            $0.allow = capabilities.allow
            $0.accept = capabilities.accept
            $0.acceptEncoding = capabilities.acceptEncoding
            $0.acceptLanguage = capabilities.acceptLanguage
            $0.supported = capabilities.supported
            $0.contact = capabilities.contact
            $0.userAgent = capabilities.userAgent
            $0.users = users
            $0.noPings = !sendsPings
        }
        return Profile(.sip(sip), interval: interval)
    }

    /// STUN binding requests, or indications, which get no answer (RFC 8489).
    public static func stun(
        interval: Duration? = nil, indications: Bool = false, fingerprint: Bool = false
    ) -> Profile {
        let stun = WireProfile.STUN.with {
            $0.indication = indications
            $0.fingerprint = fingerprint
        }
        return Profile(.stun(stun), interval: interval)
    }

    /// XMPP after the stream is established: XEP-0199 pings in both directions, white space, and, with the
    /// client's counters, XEP-0198.
    ///
    /// - Parameters:
    ///   - server: the server's domain; its pings are answered; nil: that of `address`. Pings of other
    ///     entities, which the server passes on, wake. Without either, only pings without a sender are
    ///     answered.
    ///   - address: the client's full address.
    ///   - streamManagement: XEP-0198 is enabled. The client then delegates its counters each time, with
    ///     ``Client/delegate(_:for:)``; otherwise stanzas are for the client.
    ///   - whiteSpacePings: sends spaces, which get no answer, instead of pings.
    public static func xmpp(
        interval: Duration? = nil, answerWithin: Duration? = nil, server: String? = nil,
        address: String? = nil, streamManagement: Bool = false, whiteSpacePings: Bool = false
    ) -> Profile {
        let xmpp = WireProfile.XMPP.with {
            $0.server = server ?? ""
            $0.address = address ?? ""
            $0.streamManagement = streamManagement
            $0.whiteSpace = whiteSpacePings
        }
        return Profile(.xmpp(xmpp), interval: interval, answerWithin: answerWithin)
    }

    /// WebSocket after the handshake (RFC 6455).
    ///
    /// - Parameters:
    ///   - isServer: the client is the server of this connection.
    ///   - absorbsOtherPongs: whether pongs that answer no ping of the supervisor are noise.
    public static func webSocket(
        interval: Duration? = nil, answerWithin: Duration? = nil, isServer: Bool = false,
        absorbsOtherPongs: Bool = true
    ) -> Profile {
        let webSocket = WireProfile.WebSocket.with {
            $0.server = isServer
            $0.wakesByOtherPongs = !absorbsOtherPongs
        }
        return Profile(.webSocket(webSocket), interval: interval, answerWithin: answerWithin)
    }

    /// MQTT 3.1.1 and 5: sends PINGREQ.
    ///
    /// - Parameter keepAlive: the value of CONNECT, or of the server's CONNACK; nil: 60 s.
    public static func mqtt(keepAlive: Duration? = nil, answerWithin: Duration? = nil) -> Profile {
        Profile(.mqtt(.init()), interval: keepAlive, answerWithin: answerWithin)
    }

    /// MQTT where the client is the server of the connection: answers PINGREQ.
    public static var mqttServer: Profile { Profile(.mqtt(.with { $0.server = true })) }

    /// IRC: PING in both directions.
    public static func irc(interval: Duration? = nil, answerWithin: Duration? = nil) -> Profile {
        Profile(.irc(.init()), interval: interval, answerWithin: answerWithin)
    }

    /// IMAP while the command IDLE is under way. The client delegates its tag each time, with
    /// ``Client/delegate(_:for:)``; without it, IDLE is not renewed.
    ///
    /// - Parameters:
    ///   - interval: between renewals; nil: 28 minutes.
    ///   - fillers: the texts of untagged OKs that are noise; none: `Still here`.
    ///   - tagPrefix: of the tags that renewals use, which the client must not use itself; empty: `NB`.
    public static func imap(
        interval: Duration? = nil, answerWithin: Duration? = nil, fillers: [String] = [],
        tagPrefix: String = ""
    ) -> Profile {
        let imap = WireProfile.IMAP.with {
            $0.fillers = fillers
            $0.tagPrefix = tagPrefix
        }
        return Profile(.imap(imap), interval: interval, answerWithin: answerWithin)
    }

    /// An exact message of the peer and the reply to it.
    public struct Exchange: Sendable, Hashable {
        public var pattern: [UInt8]
        /// Empty: no reply.
        public var reply: [UInt8]

        public init(_ pattern: [UInt8], reply: [UInt8] = []) {
            self.pattern = pattern
            self.reply = reply
        }

        public init(_ pattern: String, reply: String = "") {
            self.init(Array(pattern.utf8), reply: Array(reply.utf8))
        }
    }

    /// Exact bytes of a protocol that Nightbell does not know. No pattern may be a prefix of another.
    ///
    /// - Parameters:
    ///   - exchanges: messages that are answered or absorbed.
    ///   - ping: the bytes to send; empty: no pings.
    ///   - answer: the peer's answer to a ping; empty: none.
    public static func bytes(
        _ exchanges: [Exchange], ping: [UInt8] = [], answer: [UInt8] = [], interval: Duration? = nil,
        answerWithin: Duration? = nil
    ) -> Profile {
        pattern(exchanges, ping, answer, .unspecified, interval, answerWithin)
    }

    /// How a line ends.
    public enum LineEnd: String, Sendable, Hashable, CaseIterable {
        case newline
        case carriageReturnNewline
    }

    /// Like ``bytes(_:ping:answer:interval:answerWithin:)``, but each text is a line, given without its end.
    public static func line(
        _ exchanges: [Exchange], ping: String = "", answer: String = "",
        end: LineEnd = .carriageReturnNewline, interval: Duration? = nil, answerWithin: Duration? = nil
    ) -> Profile {
        pattern(
            exchanges, Array(ping.utf8), Array(answer.utf8),
            end == .newline ? .newline : .carriageReturnNewline, interval, answerWithin)
    }

    private static func pattern(
        _ exchanges: [Exchange], _ ping: [UInt8], _ answer: [UInt8], _ end: WireProfile.LineEnd,
        _ interval: Duration?, _ answerWithin: Duration?
    ) -> Profile {
        let pattern = WireProfile.Pattern.with {
            $0.exchanges = exchanges.map { exchange in
                .with {
                    $0.pattern = exchange.pattern.asField
                    $0.reply = exchange.reply.asField
                }
            }
            $0.ping = ping.asField
            $0.answer = answer.asField
            $0.lineEnd = end
        }
        return Profile(.pattern(pattern), interval: interval, answerWithin: answerWithin)
    }

    /// TCP's own keep-alives, set while the client sleeps and restored when it wakes. Nothing is read, so it
    /// also works for encrypted connections.
    ///
    /// - Parameters:
    ///   - idle: from the last traffic to the first probe; nil: 15 minutes.
    ///   - interval: between probes that are not answered; nil: 30 s.
    ///   - probes: the path counts as lost after this many unanswered probes; nil: 4.
    public static func tcp(idle: Duration? = nil, interval: Duration? = nil, probes: Int? = nil) -> Profile {
        let tcp = WireProfile.TCP.with {
            if let interval { $0.probeIntervalMs = interval.atLeastOneMillisecond }
            if let probes { $0.probes = UInt32(clamping: max(1, probes)) }
        }
        return Profile(.tcp(tcp), interval: idle)
    }
}
