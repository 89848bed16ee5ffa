package import NightbellProfiles
package import NightbellWire

/// Why a profile that a client has sent cannot be used, as text for the client.
package struct ProfileProblem: Error {
    package let message: String
}

extension ProfileSettings {
    /// - Parameter tagKey: see `SIPSettings`.
    package init(_ wire: WireProfile, over transport: Transport, tagKey: UInt128) throws(ProfileProblem) {
        guard let kind = wire.kind else { throw ProfileProblem(message: "unknown kind of profile") }
        do throws(SettingsError) {
            self = try Self.make(kind, wire, transport, tagKey)
        } catch {
            throw ProfileProblem(message: "\(error)")
        }
    }

    private static func make(
        _ kind: WireProfile.OneOf_Kind, _ wire: WireProfile, _ transport: Transport, _ tagKey: UInt128
    ) throws(SettingsError) -> ProfileSettings {
        // 0: the profile's standard.
        let interval = duration(wire.intervalMs)
        let answerWithin = duration(wire.answerWithinMs)
        switch kind {
        case .sip(let sip):
            return .sip(try settings(sip, interval, transport, tagKey))
        case .stun(let stun):
            return .stun(
                try STUNSettings(
                    ping: stun.indication ? .indication : .request, interval: interval,
                    withFingerprint: stun.fingerprint))
        case .xmpp(let xmpp):
            return .xmpp(
                try XMPPSettings(
                    ping: xmpp.whiteSpace ? .whiteSpace : .query, interval: interval,
                    answerWithin: answerWithin, server: xmpp.server.isEmpty ? nil : xmpp.server,
                    address: xmpp.address.isEmpty ? nil : xmpp.address,
                    usesStreamManagement: xmpp.streamManagement))
        case .webSocket(let webSocket):
            return .webSocket(
                try WebSocketSettings(
                    role: webSocket.server ? .server : .client, interval: interval,
                    answerWithin: answerWithin, absorbsOtherPongs: !webSocket.wakesByOtherPongs))
        case .mqtt(let mqtt):
            return .mqtt(
                try MQTTSettings(
                    role: MQTTSettings.Role(isServer: mqtt.server, keepAlive: interval),
                    answerWithin: answerWithin))
        case .irc:
            return .irc(try IRCSettings(interval: interval, answerWithin: answerWithin))
        case .imap(let imap):
            return .imap(
                try IMAPSettings(
                    interval: interval, answerWithin: answerWithin, fillers: imap.fillers,
                    tagPrefix: imap.tagPrefix))
        case .pattern(let pattern):
            return .pattern(try settings(pattern, interval, answerWithin))
        case .tcp(let tcp):
            return .tcp(
                try TCPSettings(
                    idle: interval, interval: duration(tcp.probeIntervalMs),
                    probes: tcp.probes == 0 ? nil : Int(tcp.probes)))
        }
    }

    private static func duration(_ milliseconds: UInt64) -> Duration? {
        milliseconds == 0 ? nil : Duration(wireMilliseconds: milliseconds)
    }

    private static func settings(
        _ sip: WireProfile.SIP, _ interval: Duration?, _ transport: Transport, _ tagKey: UInt128
    ) throws(SettingsError) -> SIPSettings {
        var capabilities = SIPSettings.Capabilities()
        if !sip.allow.isEmpty { capabilities.allow = sip.allow }
        if !sip.accept.isEmpty { capabilities.accept = sip.accept }
        if !sip.acceptEncoding.isEmpty { capabilities.acceptEncoding = sip.acceptEncoding }
        if !sip.acceptLanguage.isEmpty { capabilities.acceptLanguage = sip.acceptLanguage }
        capabilities.supported = sip.supported
        capabilities.contact = sip.contact
        capabilities.userAgent = sip.userAgent
        return try SIPSettings(
            capabilities: capabilities, users: sip.users, sendsPings: !sip.noPings, tagKey: tagKey,
            streamInterval: transport == .stream ? interval : nil,
            datagramInterval: transport == .datagram ? interval : nil)
    }

    private static func settings(
        _ pattern: WireProfile.Pattern, _ interval: Duration?, _ answerWithin: Duration?
    ) throws(SettingsError) -> PatternSettings {
        let exchanges = pattern.exchanges.map {
            PatternSettings.Exchange(Array($0.pattern), reply: Array($0.reply))
        }
        var ping: PatternSettings.Ping?
        if !pattern.ping.isEmpty {
            ping = PatternSettings.Ping(
                Array(pattern.ping),
                answer: pattern.answer.isEmpty ? nil : Array(pattern.answer),
                interval: interval, answerWithin: answerWithin)
        }
        switch pattern.lineEnd {
        case .unspecified: return try .bytes(exchanges, ping: ping)
        case .newline: return try .lines(exchanges, ping: ping, end: .newline)
        case .carriageReturnNewline: return try .lines(exchanges, ping: ping, end: .carriageReturnNewline)
        case .UNRECOGNIZED: throw .outOfRange("line end")
        }
    }
}

extension DelegatedValues {
    /// nil: it is invalid.
    package init?(_ wire: WireDelegatedState) {
        switch wire.value {
        case .stanzaCounters(let counters):
            self = .stanzaCounters(received: counters.received, sent: counters.sent)
        case .idle(let idle):
            guard let tag = Idle.Tag(idle.tag) else { return nil }
            switch idle.phase {
            case .idling: self = .idle(Idle(tag: tag, phase: .idling))
            case .ending: self = .idle(Idle(tag: tag, phase: .ending))
            case .starting: self = .idle(Idle(tag: tag, phase: .starting))
            case .UNRECOGNIZED: return nil
            }
        case .lost, nil:
            return nil
        }
    }

    /// nil: nothing was delegated.
    package func wire(token: UInt64) -> WireDelegatedState? {
        var message = WireDelegatedState()
        message.token = token
        switch self {
        case .nothing:
            return nil
        case .stanzaCounters(let received, let sent):
            var counters = WireDelegatedState.StanzaCounters()
            (counters.received, counters.sent) = (received, sent)
            message.value = .stanzaCounters(counters)
        case .idle(let idle):
            var state = WireDelegatedState.Idle()
            state.tag = idle.tag.text
            switch idle.phase {
            case .idling: state.phase = .idling
            case .ending: state.phase = .ending
            case .starting: state.phase = .starting
            }
            message.value = .idle(state)
        }
        return message
    }
}
