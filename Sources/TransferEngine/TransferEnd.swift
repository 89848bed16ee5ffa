/// The end of a session, or its stop for credentials, of which its client has to know.
package struct TransferEnd: Hashable, Sendable {
    package let client: String
    package let session: String
    /// Counts the ends of the session.
    package let number: UInt64
}
