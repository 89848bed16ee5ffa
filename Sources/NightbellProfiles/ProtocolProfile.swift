/// One conversation on one socket, in the eyes of one protocol. A small value: thousands are held; settings
/// are shared by reference.
protocol ProtocolProfile: Sendable {
    /// No noise is longer than this.
    var longestNoise: Int { get }

    /// When pings are sent. None: this conversation needs none, or what it takes has not been lent.
    var pinging: Pinging? { get }

    /// Whether a ping was sent whose answer has not come yet.
    var isAwaitingAnswer: Bool { get }

    /// Judges the head of the stream, or one datagram. Appends to `replies` only what belongs to noise.
    mutating func judge(
        _ bytes: Span<UInt8>, _ circumstances: Circumstances, replies: inout [UInt8]
    ) -> Verdict

    /// Appends a ping, or the last one once more; tells whether there is one to send.
    mutating func ping(again: Bool, _ circumstances: Circumstances, into output: inout [UInt8]) -> Bool

    /// Takes what the owner lends while it sleeps.
    mutating func begin(lending lent: Lent)

    /// What was lent, as it is now.
    var lent: Lent { get }
}

extension ProtocolProfile {
    var lent: Lent { .nothing }
}

/// What an owner lends to have its keep-alives dealt with, and gets back as it has become.
package enum Lent: Sendable, Equatable {
    case nothing
    /// The counters of XMPP stream management (XEP-0198 §4): stanzas received, and stanzas sent.
    case stanzaCounters(received: UInt32, sent: UInt32)
    /// The IMAP command `IDLE` that is under way.
    case idle(Idle)
}
