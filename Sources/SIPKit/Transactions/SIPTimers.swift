/// The base values of all timers (RFC 3261 §17.1.1.1, table 4).
public struct SIPTimers: Sendable, Equatable {
    /// An estimate of the round trip: the first retransmission comes after it.
    public var t1: Duration = .milliseconds(500)
    /// The longest pause between retransmissions of anything but INVITE requests.
    public var t2: Duration = .seconds(4)
    /// How long a message may stay in the network.
    public var t4: Duration = .seconds(5)

    public init() {}

    /// Timers B, F, H, J, L and M: when a transaction gives up.
    public var timeout: Duration { t1 * 64 }
}

/// A message that is sent again and again, at growing intervals, until something stops it.
struct Retransmission: Sendable {
    private(set) var due: ContinuousClock.Instant
    private var interval: Duration
    private let maximum: Duration?

    /// The intervals double up to `maximum`; nil: without end.
    init(first: Duration, maximum: Duration?, at now: ContinuousClock.Instant) {
        interval = first
        self.maximum = maximum
        due = now + first
    }

    mutating func isDue(at now: ContinuousClock.Instant) -> Bool {
        guard due <= now else { return false }
        interval *= 2
        if let maximum { interval = min(interval, maximum) }
        due = now + interval
        return true
    }
}

/// Names a transaction: what all its messages have in common (RFC 3261 §17.1.3, §17.2.3).
public struct TransactionID: Sendable, Hashable {
    var branch: String
    var sentBy: String
    /// ACK belongs to the INVITE that it acknowledges.
    var method: SIPMethod
}

extension TransactionID {
    /// Nil when the top `Via` or `CSeq` are missing or malformed, or the branch is not one of RFC 3261.
    init?(_ message: SIPMessage) {
        guard let via = message.topVia, let branch = via.branch, let cSeq = message.cSeq,
            branch.utf8.starts(with: Via.branchCookie.utf8)
        else { return nil }
        self.branch = branch
        sentBy = "\(via.host.lowercased()):\(via.port ?? 5060)"
        method = cSeq.method == .ack ? .invite : cSeq.method
    }
}
