/// What a profile says of the bytes at the head of a stream, or of one datagram.
package enum Verdict: Sendable, Equatable {
    /// The first `length` bytes are one whole piece of noise; all of it, if it is a datagram. What was
    /// appended to the replies has to be sent before they are consumed: if it cannot be sent, the owner is
    /// woken instead and finds everything in place.
    case noise(length: Int, Noise)
    /// The owner has to see this and all that follows it.
    case significant(Significance)
    /// What is there may be the beginning of noise, which then ends within `limit` bytes of the head; there
    /// are fewer now. How long it may take is up to the caller. Never said of a datagram.
    case needMore(limit: Int)
}

/// What a piece of noise was good for.
package enum Noise: UInt8, Sendable, CaseIterable {
    /// The peer's ping; the answer was appended to the replies.
    case ping
    /// The answer to a ping of ours.
    case answer
    /// Part of an exchange that a ping of ours began; its next part may have been appended to the replies.
    case step
    /// Keeps the path open, wants no answer.
    case filler
}

/// Why the owner has to be woken.
package enum Significance: UInt8, Sendable, CaseIterable {
    /// A message that is no keep-alive.
    case message
    /// Nothing is known about where messages begin: the owner has not vouched for it, or something
    /// significant came before.
    case unsettled
    /// A keep-alive that breaks the protocol's rules, or what might have become one.
    case malformed
    /// It began like a keep-alive but goes on for longer than any.
    case tooLong
    /// A keep-alive of a form that is not known well enough to answer for the owner.
    case unusual
    /// It belongs to a dialog that only the owner knows.
    case inDialog
    /// It asks for an extension that only the owner can speak for.
    case extensionRequired
    /// It is addressed to somebody else.
    case notForUs
    /// It could be dealt with if the owner had lent what that takes.
    case notLent
    /// An answer to a ping that was not ours.
    case unexpectedAnswer
    /// Our ping was answered by an error.
    case refused
    /// The address that the peer sees us at is not what it was.
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
        case .notForUs: "addressed to somebody else"
        case .notLent: "needs what the owner has not lent"
        case .unexpectedAnswer: "answers a ping that was not sent from here"
        case .refused: "our ping was refused"
        case .addressChanged: "the address that the peer sees has changed"
        }
    }
}
