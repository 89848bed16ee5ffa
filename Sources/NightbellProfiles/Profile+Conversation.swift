/// Forwards each call to the conversation in place. Written out, because a value behind an existential would
/// be allocated anew each time.
extension Profile {
    mutating func beginConversation(lending lent: Lent) {
        switch conversation {
        case .sip(var profile):
            defer { conversation = .sip(profile) }
            profile.begin(lending: lent)
        case .stun(var profile):
            defer { conversation = .stun(profile) }
            profile.begin(lending: lent)
        case .xmpp(var profile):
            defer { conversation = .xmpp(profile) }
            profile.begin(lending: lent)
        case .webSocket(var profile):
            defer { conversation = .webSocket(profile) }
            profile.begin(lending: lent)
        case .mqtt(var profile):
            defer { conversation = .mqtt(profile) }
            profile.begin(lending: lent)
        case .irc(var profile):
            defer { conversation = .irc(profile) }
            profile.begin(lending: lent)
        case .imap(var profile):
            defer { conversation = .imap(profile) }
            profile.begin(lending: lent)
        case .pattern(var profile):
            defer { conversation = .pattern(profile) }
            profile.begin(lending: lent)
        case .tcp(var profile):
            defer { conversation = .tcp(profile) }
            profile.begin(lending: lent)
        }
    }

    mutating func judgeConversation(
        _ bytes: Span<UInt8>, _ circumstances: Circumstances, replies: inout [UInt8]
    ) -> Verdict {
        switch conversation {
        case .sip(var profile):
            defer { conversation = .sip(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .stun(var profile):
            defer { conversation = .stun(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .xmpp(var profile):
            defer { conversation = .xmpp(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .webSocket(var profile):
            defer { conversation = .webSocket(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .mqtt(var profile):
            defer { conversation = .mqtt(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .irc(var profile):
            defer { conversation = .irc(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .imap(var profile):
            defer { conversation = .imap(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .pattern(var profile):
            defer { conversation = .pattern(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        case .tcp(var profile):
            defer { conversation = .tcp(profile) }
            return profile.judge(bytes, circumstances, replies: &replies)
        }
    }

    mutating func pingConversation(
        again: Bool, _ circumstances: Circumstances, into output: inout [UInt8]
    ) -> Bool {
        switch conversation {
        case .sip(var profile):
            defer { conversation = .sip(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .stun(var profile):
            defer { conversation = .stun(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .xmpp(var profile):
            defer { conversation = .xmpp(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .webSocket(var profile):
            defer { conversation = .webSocket(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .mqtt(var profile):
            defer { conversation = .mqtt(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .irc(var profile):
            defer { conversation = .irc(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .imap(var profile):
            defer { conversation = .imap(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .pattern(var profile):
            defer { conversation = .pattern(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        case .tcp(var profile):
            defer { conversation = .tcp(profile) }
            return profile.ping(again: again, circumstances, into: &output)
        }
    }

    /// Whether a sent ping has not been answered yet.
    package var isAwaitingAnswer: Bool {
        switch conversation {
        case .sip(let profile): profile.isAwaitingAnswer
        case .stun(let profile): profile.isAwaitingAnswer
        case .xmpp(let profile): profile.isAwaitingAnswer
        case .webSocket(let profile): profile.isAwaitingAnswer
        case .mqtt(let profile): profile.isAwaitingAnswer
        case .irc(let profile): profile.isAwaitingAnswer
        case .imap(let profile): profile.isAwaitingAnswer
        case .pattern(let profile): profile.isAwaitingAnswer
        case .tcp(let profile): profile.isAwaitingAnswer
        }
    }

    /// The delegated state, as it is now.
    package var lent: Lent { current.lent }

    /// The schedule of pings. Nil: this profile sends none, or needs state that was not delegated.
    package var pinging: Pinging? { current.pinging }

    /// The most bytes of a stream that a verdict depends on.
    package var longestNoise: Int { current.longestNoise }

    private var current: any ProtocolProfile {
        switch conversation {
        case .sip(let profile): profile
        case .stun(let profile): profile
        case .xmpp(let profile): profile
        case .webSocket(let profile): profile
        case .mqtt(let profile): profile
        case .irc(let profile): profile
        case .imap(let profile): profile
        case .pattern(let profile): profile
        case .tcp(let profile): profile
        }
    }
}
