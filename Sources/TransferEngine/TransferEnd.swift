/// The end of a session, or its stop for credentials, of which its client has to know.
package struct TransferEnd: Hashable, Sendable {
    package let client: String
    package let session: String
    /// Counts the ends of the session.
    package let number: UInt64
    /// All its tasks are discretionary.
    package let isDiscretionary: Bool
}

/// The needs of the process, of which the supervisor has to know.
struct TransferPlan: Hashable, Sendable {
    /// Tasks run, or wait, that may run in good moments only.
    var hasDiscretionary = false
    /// When the next issue is to be begun, in seconds since 1970; nil: none is.
    var nextIssue: Int64?
}
