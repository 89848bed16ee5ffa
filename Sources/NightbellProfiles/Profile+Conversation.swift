/// Forwards each call to the conversation in place. Written out, because a value behind an existential would
/// be allocated anew each time.
extension Profile {
    mutating func beginConversation(delegating delegated: DelegatedValues) {
        switch conversation {
        case .sip(var profile):
            defer { conversation = .sip(profile) }
            profile.begin(delegating: delegated)
        case .stun(var profile):
            defer { conversation = .stun(profile) }
            profile.begin(delegating: delegated)
        case .xmpp(var profile):
            defer { conversation = .xmpp(profile) }
            profile.begin(delegating: delegated)
        case .webSocket(var profile):
            defer { conversation = .webSocket(profile) }
            profile.begin(delegating: delegated)
        case .mqtt(var profile):
            defer { conversation = .mqtt(profile) }
            profile.begin(delegating: delegated)
        case .irc(var profile):
            defer { conversation = .irc(profile) }
            profile.begin(delegating: delegated)
        case .imap(var profile):
            defer { conversation = .imap(profile) }
            profile.begin(delegating: delegated)
        case .pattern(var profile):
            defer { conversation = .pattern(profile) }
            profile.begin(delegating: delegated)
        case .tcp(var profile):
            defer { conversation = .tcp(profile) }
            profile.begin(delegating: delegated)
        }
    }

    mutating func inspectConversation(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        switch conversation {
        case .sip(var profile):
            defer { conversation = .sip(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .stun(var profile):
            defer { conversation = .stun(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .xmpp(var profile):
            defer { conversation = .xmpp(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .webSocket(var profile):
            defer { conversation = .webSocket(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .mqtt(var profile):
            defer { conversation = .mqtt(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .irc(var profile):
            defer { conversation = .irc(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .imap(var profile):
            defer { conversation = .imap(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .pattern(var profile):
            defer { conversation = .pattern(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        case .tcp(var profile):
            defer { conversation = .tcp(profile) }
            return profile.inspect(bytes, profileContext, replies: &replies)
        }
    }

    mutating func pingConversation(
        again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]
    ) -> Bool {
        switch conversation {
        case .sip(var profile):
            defer { conversation = .sip(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .stun(var profile):
            defer { conversation = .stun(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .xmpp(var profile):
            defer { conversation = .xmpp(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .webSocket(var profile):
            defer { conversation = .webSocket(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .mqtt(var profile):
            defer { conversation = .mqtt(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .irc(var profile):
            defer { conversation = .irc(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .imap(var profile):
            defer { conversation = .imap(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .pattern(var profile):
            defer { conversation = .pattern(profile) }
            return profile.ping(again: again, profileContext, into: &output)
        case .tcp(var profile):
            defer { conversation = .tcp(profile) }
            return profile.ping(again: again, profileContext, into: &output)
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

    /// Whether messages are made of random numbers; the number in the context is ignored otherwise.
    package var usesRandomNumbers: Bool {
        switch conversation {
        case .sip, .stun, .xmpp, .webSocket, .irc: true
        case .mqtt, .imap, .pattern, .tcp: false
        }
    }

    /// Whether messages depend on the peer's address; the one in the context is ignored otherwise.
    package var usesPeer: Bool {
        switch conversation {
        case .sip: true
        case .stun, .xmpp, .webSocket, .irc, .mqtt, .imap, .pattern, .tcp: false
        }
    }

    /// Whether it is at work with state that the owner has delegated.
    package var isDelegated: Bool {
        switch delegated {
        case .nothing: false
        case .stanzaCounters, .idle: true
        }
    }

    /// The delegated state, as it is now. It is asked for with each ping, and the others have none.
    package var delegated: DelegatedValues {
        switch conversation {
        case .xmpp(let profile): profile.delegated
        case .imap(let profile): profile.delegated
        case .sip, .stun, .webSocket, .mqtt, .irc, .pattern, .tcp: .nothing
        }
    }

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
