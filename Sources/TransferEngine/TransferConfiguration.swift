package import TransferModel

/// The way in which the process works.
package struct TransferConfiguration: Sendable {
    /// Of the store and the files; made if it is not there, for this user alone.
    package var directory: String
    package var limits = TransferQueue.Limits()
    package var retry = RetryPolicy()
    /// In seconds, as all durations: a task that is not finished until then fails.
    package var lifetime: Int64 = 7 * 86_400
    /// Sessions without a connection are removed after it, if no task runs or waits.
    package var orphanLifetime: Int64 = 7 * 86_400
    /// The process ends after it, with nothing to do and no connection.
    package var idleTime: Int64 = 30
    /// An attempt fails when no byte arrives for so long; uploads do when a file to send cannot be read for so long.
    package var stallTime = 60
    package var connectTime = 30
    /// A file with certificates of authorities; nil: the system's.
    package var authorities: String?

    package init(directory: String) { self.directory = directory }
}
