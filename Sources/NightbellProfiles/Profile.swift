/// A keep-alive profile at work on one socket: says what of the traffic is noise, answers it, and pings, for
/// as long as the owner sleeps. Bytes in, decisions out: it reads nothing, sends nothing and knows no time.
///
/// While the owner sleeps, the caller peeks at what has arrived and has it judged from the head on. Noise is
/// consumed, after its reply has been sent; anything else stays in the kernel, and wakes the owner. A profile
/// that was judged with a reply that then could not be sent is to be put back to its value before.
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

    /// It takes no traffic for noise before `begin`.
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

    /// The owner falls asleep. It vouches that what it has read and what it has written both end with a whole
    /// message, and that it awaits no answer to a ping of its own.
    package mutating func begin(lending lent: Lent = .nothing) {
        isSettled = true
        beginConversation(lending: lent)
    }

    /// The owner wakes. What it lent is given back as it has become.
    package mutating func end() -> Lent {
        isSettled = false
        return lent
    }

    /// Judges the head of what has arrived on a stream and was not consumed, or one datagram.
    ///
    /// Of a stream, at most `longestNoise` bytes are looked at. Whether a message has arrived in one piece or
    /// in many makes no difference to what is said of it in the end.
    ///
    /// - Parameter replies: what has to be sent is appended here, if and only if the verdict is noise.
    package mutating func judge(
        _ bytes: Span<UInt8>, _ circumstances: Circumstances, replies: inout [UInt8]
    ) -> Verdict {
        guard isSettled else { return .significant(.unsettled) }
        if bytes.isEmpty, transport == .stream { return .needMore(limit: max(1, longestNoise)) }
        let verdict = judgeConversation(bytes, circumstances, replies: &replies)
        // Behind something significant nobody knows where the next message begins until the owner has read
        // it.
        if case .significant = verdict, transport == .stream { isSettled = false }
        return verdict
    }

    /// Appends a ping that is due, or once more the one that was not answered yet; tells whether there is
    /// one. While an answer is awaited there is no other ping.
    package mutating func ping(
        again: Bool = false, _ circumstances: Circumstances, into output: inout [UInt8]
    ) -> Bool {
        guard isSettled, again == isAwaitingAnswer else { return false }
        return pingConversation(again: again, circumstances, into: &output)
    }
}
