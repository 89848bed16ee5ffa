/// The latest binding request of a flow, and the results of its answers: common to `stun` and `sip`.
struct STUNExchange: Sendable {
    private var transaction = STUNMessage.Transaction(low: 0, high: 0)
    private(set) var isAwaitingAnswer = false
    /// Whether there ever was a request: otherwise nothing can be an answer.
    private var hasAsked = false
    /// The address that the peer sees us at.
    private var mapped: Endpoint?

    /// RFC 8489 §6.2.1: repeated after 500 ms, doubling, sent seven times in all; given up 16 times 500 ms
    /// after the last.
    static let repetition = Pinging.Repetition(first: .milliseconds(500), count: 6)
    static let answerWithin: Duration = .milliseconds(39_500)
    /// RFC 8489 §6.2.2: over a stream there is nothing to repeat.
    static let answerWithinOnStream: Duration = .milliseconds(39_500)

    /// The owner is suspended again. It may have read an answer itself; one that arrives now is still
    /// recognised.
    mutating func begin() {
        isAwaitingAnswer = false
    }

    mutating func request(
        again: Bool, _ random: UInt128, withFingerprint: Bool, into output: inout [UInt8]
    ) -> Bool {
        if again {
            guard isAwaitingAnswer else { return false }
        } else {
            transaction = .init(
                low: UInt64(truncatingIfNeeded: random), high: UInt32(truncatingIfNeeded: random >> 64))
            (isAwaitingAnswer, hasAsked) = (true, true)
        }
        STUNMessage.write(.request, transaction, withFingerprint: withFingerprint, to: &output)
        return true
    }

    /// Inspects a success or an error.
    mutating func inspect(_ message: STUNMessage) throws(ParseStop) -> Verdict {
        guard hasAsked, message.transaction == transaction else { throw .significant(.unexpectedAnswer) }
        guard message.kind == .success else { throw .significant(.refused) }
        // RFC 5626 §8 and RFC 8489 §6.3.3: a binding success has the mapped address.
        guard let address = message.mapped else { throw .significant(.malformed) }
        defer { mapped = address }
        if let mapped, mapped != address { throw .significant(.addressChanged) }
        // Every repetition may be answered: only the first answer is one.
        defer { isAwaitingAnswer = false }
        return .noise(length: message.length, isAwaitingAnswer ? .answer : .filler)
    }
}
