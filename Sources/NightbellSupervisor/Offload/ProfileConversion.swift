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
        func interval(_ limits: IntervalLimits) -> Duration {
            wire.intervalMs == 0 ? limits.standard : Duration(wireMilliseconds: wire.intervalMs)
        }
        func answer(_ standard: Duration) -> Duration {
            wire.answerWithinMs == 0 ? standard : Duration(wireMilliseconds: wire.answerWithinMs)
        }
        switch kind {
        case .sip(let sip):
            return .sip(try settings(sip, wire, transport, tagKey))
        case .stun(let stun):
            return .stun(
                try STUNSettings(
                    ping: stun.indication ? .indication : .request, interval: interval(STUNSettings.interval),
                    withFingerprint: stun.fingerprint))
        case .xmpp(let xmpp):
            return .xmpp(
                try XMPPSettings(
                    ping: xmpp.whiteSpace ? .whiteSpace : .query, interval: interval(XMPPSettings.interval),
                    answerWithin: answer(.seconds(30)), server: xmpp.server.isEmpty ? nil : xmpp.server,
                    address: xmpp.address.isEmpty ? nil : xmpp.address,
                    usesStreamManagement: xmpp.streamManagement))
        case .webSocket(let webSocket):
            return .webSocket(
                try WebSocketSettings(
                    role: webSocket.server ? .server : .client,
                    interval: interval(WebSocketSettings.interval), answerWithin: answer(.seconds(10)),
                    absorbsOtherPongs: !webSocket.wakesByOtherPongs))
        case .mqtt(let mqtt):
            let role: MQTTSettings.Role =
                mqtt.server ? .server : .client(keepAlive: interval(MQTTSettings.keepAlive))
            return .mqtt(try MQTTSettings(role: role, answerWithin: answer(.seconds(10))))
        case .irc:
            return .irc(
                try IRCSettings(interval: interval(IRCSettings.interval), answerWithin: answer(.seconds(30))))
        case .imap(let imap):
            return .imap(
                try IMAPSettings(
                    interval: interval(IMAPSettings.interval), answerWithin: answer(.seconds(30)),
                    fillers: imap.fillers.isEmpty ? ["Still here"] : imap.fillers,
                    tagPrefix: imap.tagPrefix.isEmpty ? "NB" : imap.tagPrefix))
        case .pattern(let pattern):
            return .pattern(
                try settings(pattern, interval(PatternSettings.interval), answer(.seconds(10))))
        case .tcp(let tcp):
            let pause =
                tcp.probeIntervalMs == 0 ? .seconds(30) : Duration(wireMilliseconds: tcp.probeIntervalMs)
            return .tcp(
                try TCPSettings(
                    idle: interval(TCPSettings.idle), interval: pause,
                    probes: tcp.probes == 0 ? 4 : Int(tcp.probes)))
        }
    }

    private static func settings(
        _ sip: WireProfile.SIP, _ wire: WireProfile, _ transport: Transport, _ tagKey: UInt128
    ) throws(SettingsError) -> SIPSettings {
        var capabilities = SIPSettings.Capabilities()
        if !sip.allow.isEmpty { capabilities.allow = sip.allow }
        if !sip.accept.isEmpty { capabilities.accept = sip.accept }
        if !sip.acceptEncoding.isEmpty { capabilities.acceptEncoding = sip.acceptEncoding }
        if !sip.acceptLanguage.isEmpty { capabilities.acceptLanguage = sip.acceptLanguage }
        capabilities.supported = sip.supported
        capabilities.contact = sip.contact
        capabilities.userAgent = sip.userAgent
        let interval = wire.intervalMs == 0 ? nil : Duration(wireMilliseconds: wire.intervalMs)
        return try SIPSettings(
            capabilities: capabilities, users: sip.users, sendsPings: !sip.noPings, tagKey: tagKey,
            streamInterval: (transport == .stream ? interval : nil) ?? SIPSettings.streamInterval.standard,
            datagramInterval: (transport == .datagram ? interval : nil)
                ?? SIPSettings.datagramInterval.standard)
    }

    private static func settings(
        _ pattern: WireProfile.Pattern, _ interval: Duration, _ answerWithin: Duration
    ) throws(SettingsError) -> PatternSettings {
        let all = pattern.exchanges.flatMap { [$0.pattern, $0.reply] } + [pattern.ping, pattern.answer]
        guard all.allSatisfy({ $0.allSatisfy { $0 <= 255 } }) else { throw .outOfRange("byte") }
        let exchanges = pattern.exchanges.map {
            PatternSettings.Exchange($0.pattern.map(UInt8.init), reply: $0.reply.map(UInt8.init))
        }
        var ping: PatternSettings.Ping?
        if !pattern.ping.isEmpty {
            ping = PatternSettings.Ping(
                pattern.ping.map(UInt8.init),
                answer: pattern.answer.isEmpty ? nil : pattern.answer.map(UInt8.init),
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
