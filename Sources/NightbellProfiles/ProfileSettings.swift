/// The settings of a profile, shared by all sockets that have the same.
package enum ProfileSettings: Sendable {
    case sip(SIPSettings)
    case stun(STUNSettings)
    case xmpp(XMPPSettings)
    case webSocket(WebSocketSettings)
    case mqtt(MQTTSettings)
    case irc(IRCSettings)
    case imap(IMAPSettings)
    /// `line` and `bytes`.
    case pattern(PatternSettings)
    case tcp(TCPSettings)

    /// The default settings of a profile; nil for patterns, which have no sensible defaults.
    ///
    /// - Parameter tagKey: see ``SIPSettings``.
    package static func standard(_ name: ProfileName, tagKey: UInt128) throws(SettingsError)
        -> ProfileSettings?
    {
        switch name {
        case .sip: .sip(try SIPSettings(tagKey: tagKey))
        case .stun: .stun(try STUNSettings())
        case .xmpp: .xmpp(try XMPPSettings())
        case .webSocket: .webSocket(try WebSocketSettings())
        case .mqtt: .mqtt(try MQTTSettings())
        case .irc: .irc(try IRCSettings())
        case .imap: .imap(try IMAPSettings())
        case .tcp: .tcp(try TCPSettings())
        case .line, .bytes: nil
        }
    }

    /// Whether messages are read or written at all.
    package var needsPlainText: Bool {
        switch self {
        case .sip, .stun, .xmpp, .webSocket, .mqtt, .irc, .imap, .pattern: true
        case .tcp: false
        }
    }

    /// Whether its profile can use this delegated state.
    package func takes(_ delegated: DelegatedValues) -> Bool {
        switch (delegated, self) {
        case (.nothing, _), (.idle, .imap): true
        case (.stanzaCounters, .xmpp(let settings)): settings.usesStreamManagement
        case (.stanzaCounters, _), (.idle, _): false
        }
    }

    /// The usual name of the protocol.
    package var name: String { profileName.rawValue }

    /// A pattern by lines has become one of bytes.
    package var profileName: ProfileName {
        switch self {
        case .sip: .sip
        case .stun: .stun
        case .xmpp: .xmpp
        case .webSocket: .webSocket
        case .mqtt: .mqtt
        case .irc: .irc
        case .imap: .imap
        case .pattern: .bytes
        case .tcp: .tcp
        }
    }
}

/// The public names of the profiles.
package enum ProfileName: String, Sendable, CaseIterable {
    case sip, stun, xmpp
    case webSocket = "websocket"
    case mqtt, irc, imap, line, bytes, tcp

    /// Its number in `OffloadTotals`. Numbers outlive a worker: a new name gets one that none had before.
    package var number: UInt8 {
        switch self {
        case .sip: 0
        case .stun: 1
        case .xmpp: 2
        case .webSocket: 3
        case .mqtt: 4
        case .irc: 5
        case .imap: 6
        case .line: 7
        case .bytes: 8
        case .tcp: 9
        }
    }

    package var transports: [Transport] {
        switch self {
        case .sip, .stun, .line, .bytes: [.stream, .datagram]
        case .xmpp, .webSocket, .mqtt, .irc, .imap, .tcp: [.stream]
        }
    }
}
