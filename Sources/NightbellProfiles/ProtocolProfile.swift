/// The state of one protocol on one socket. A small value, because thousands are held; settings are shared by
/// reference.
protocol ProtocolProfile: Sendable {
    /// No noise is longer than this.
    var longestNoise: Int { get }

    /// The schedule of pings. Nil: this conversation needs none, or needs state that was not delegated.
    var pinging: Pinging? { get }

    /// Whether a sent ping has not been answered yet.
    var isAwaitingAnswer: Bool { get }

    /// Inspects the head of the stream, or one datagram. Appends to `replies` only for noise.
    mutating func inspect(
        _ bytes: Span<UInt8>, _ profileContext: ProfileContext, replies: inout [UInt8]
    ) -> Verdict

    /// Appends a ping, or repeats the last one; returns whether there is one to send.
    mutating func ping(again: Bool, _ profileContext: ProfileContext, into output: inout [UInt8]) -> Bool

    /// Takes the state that the owner delegates while it sleeps.
    mutating func begin(delegating delegated: DelegatedValues)
}

/// State that an owner delegates so that its keep-alives can be handled, and gets back as it is then.
package enum DelegatedValues: Sendable, Equatable {
    case nothing
    /// The counters of XMPP stream management (XEP-0198 §4): stanzas received, and stanzas sent.
    case stanzaCounters(received: UInt32, sent: UInt32)
    /// The IMAP command `IDLE` that is under way.
    case idle(Idle)
}
