/// A keep-alive profile at work on one socket: classifies traffic, answers noise, and pings, for as long as
/// the owner sleeps. It only maps bytes to decisions: it does no I/O and has no clock.
///
/// While the owner sleeps, the caller peeks at the input and has it inspected from the head on. Noise is
/// consumed after its reply has been sent; anything else stays in the kernel, and wakes the owner. If a reply
/// could not be sent, the caller restores the profile's earlier value.
///
/// It is a value of at most 48 bytes; settings are shared by reference.
package struct Profile: Sendable {
    enum Conversation: Sendable {
        case sip(SIPProfile)
        case stun(STUNProfile)
        case xmpp(XMPPProfile)
        case webSocket(WebSocketProfile)
        case mqtt(MQTTProfile)
        case irc(IRCProfile)
        case imap(IMAPProfile)
        case pattern(PatternProfile)
        case tcp(TCPProfile)
    }

    var conversation: Conversation
    package let transport: Transport
    /// Whether the head of the stream is known to be at a message boundary.
    private var isSettled = false

    /// It treats no traffic as noise before `begin`.
    package init(_ settings: ProfileSettings, over transport: Transport) throws(SettingsError) {
        self.transport = transport
        switch (settings, transport) {
        case (.sip(let settings), _): conversation = .sip(SIPProfile(settings, over: transport))
        case (.stun(let settings), _): conversation = .stun(STUNProfile(settings, over: transport))
        case (.pattern(let settings), _): conversation = .pattern(PatternProfile(settings, over: transport))
        case (.xmpp(let settings), .stream): conversation = .xmpp(XMPPProfile(settings))
        case (.webSocket(let settings), .stream): conversation = .webSocket(WebSocketProfile(settings))
        case (.mqtt(let settings), .stream): conversation = .mqtt(MQTTProfile(settings))
        case (.irc(let settings), .stream): conversation = .irc(IRCProfile(settings))
        case (.imap(let settings), .stream): conversation = .imap(IMAPProfile(settings))
        case (.tcp(let settings), .stream): conversation = .tcp(TCPProfile(settings))
        case (.xmpp, .datagram), (.webSocket, .datagram), (.mqtt, .datagram), (.irc, .datagram),
            (.imap, .datagram), (.tcp, .datagram):
            throw .transportNotSupported(transport)
        }
    }

    // MARK: While the owner sleeps

    /// The owner is suspended. It guarantees that its last read and its last write both ended with a whole
    /// message, and that it awaits no answer to a ping of its own.
    package mutating func begin(delegating delegated: DelegatedValues = .nothing) {
        isSettled = true
        beginConversation(delegating: delegated)
    }

    /// The owner wakes. Returns the delegated state as it is now.
    package mutating func end() -> DelegatedValues {
        isSettled = false
        return delegated
    }

    /// Inspects the head of the unconsumed input of a stream, or one datagram.
    ///
    /// Of a stream, at most `longestNoise` bytes are inspected. The final verdict does not depend on the
    /// pieces in which a message has arrived.
    ///
    /// - Parameter replies: the reply to send is appended here, if and only if the verdict is noise.
    package mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict {
        guard isSettled else { return .significant(.unsettled) }
        if bytes.isEmpty, transport == .stream { return .needMore(limit: max(1, longestNoise)) }
        let verdict = inspectConversation(bytes, profileContext, replies: &replies)
        // Behind a significant message the next boundary is unknown until the owner has read it.
        if case .significant = verdict, transport == .stream { isSettled = false }
        return verdict
    }

    /// Appends a ping that is due, or repeats the unanswered one; returns whether there is one. While an
    /// answer is awaited there is no other ping.
    package mutating func ping(
        again: Bool = false, _ profileContext: ProfileContext, into output: inout [UInt8]
    ) -> Bool {
        guard isSettled, again == isAwaitingAnswer else { return false }
        return pingConversation(again: again, profileContext, into: &output)
    }
}
