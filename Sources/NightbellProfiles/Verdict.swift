/// The verdict of a profile on the bytes at the head of a stream, or on one datagram.
package enum Verdict: Sendable, Equatable {
    /// The first `length` bytes are one whole piece of noise; all of it, if it is a datagram. The appended
    /// reply has to be sent before they are consumed: if it cannot be sent, the owner is woken instead and
    /// finds everything in place.
    case noise(length: Int, Noise)
    /// The owner has to see this and all that follows it.
    case significant(Significance)
    /// The input may be the beginning of noise, which would end within `limit` bytes of the head; there are
    /// fewer now. The caller limits the time. Never the verdict on a datagram.
    case needMore(limit: Int)
}

/// The role of a piece of noise.
package enum Noise: UInt8, Sendable, CaseIterable {
    /// The peer's ping; the answer was appended to the replies.
    case ping
    /// The answer to a ping of ours.
    case answer
    /// Part of an exchange that a ping of ours began; its next part may have been appended to the replies.
    case step
    /// Keeps the path open and needs no answer.
    case filler
}

/// The reason why the owner has to be woken.
package enum Significance: UInt8, Sendable, CaseIterable {
    /// A message that is no keep-alive.
    case message
    /// The message boundaries are unknown: the owner has not guaranteed them, or a significant message came
    /// before.
    case unsettled
    /// A keep-alive that breaks the protocol's rules, or what might have become one.
    case malformed
    /// It began like a keep-alive but is longer than any.
    case tooLong
    /// A keep-alive in an unusual form, which must not be answered for the owner.
    case unusual
    /// It belongs to a dialog that only the owner knows.
    case inDialog
    /// It asks for an extension that only the owner can speak for.
    case extensionRequired
    /// It is addressed to another user.
    case notForUs
    /// It could be handled if the owner had delegated the necessary state.
    case notDelegated
    /// An answer to a ping that was not ours.
    case unexpectedAnswer
    /// Our ping was answered by an error.
    case refused
    /// The mapped address has changed.
    case addressChanged
}

extension Significance: CustomStringConvertible {
    package var description: String {
        switch self {
        case .message: "a message for the owner"
        case .unsettled: "not known to begin a message"
        case .malformed: "breaks the protocol's rules"
        case .tooLong: "longer than any keep-alive"
        case .unusual: "a keep-alive of an unusual form"
        case .inDialog: "belongs to a dialog"
        case .extensionRequired: "requires an extension"
        case .notForUs: "addressed to another user"
        case .notDelegated: "needs state that the owner has not delegated"
        case .unexpectedAnswer: "answers a ping that was not sent from here"
        case .refused: "our ping was refused"
        case .addressChanged: "the address that the peer sees has changed"
        }
    }
}
