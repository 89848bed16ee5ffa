import Descriptors
import Glibc

/// Why an embedded supervisor could not do what it was asked to.
public struct EmbeddedError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: Sendable, Hashable {
        /// No descriptor, or no thread, could be had for the supervisor itself.
        case resources
        /// A value of the ``EmbeddedSupervisor/Configuration`` is out of its range.
        case configuration
        /// The kernel does not watch the descriptor: `EPERM`, it is a file; `ENOSPC`, the user's limit of watches
        /// (`fs.epoll.max_user_watches`) is reached; `EBADF`, it is not open.
        case notWatchable
        /// The descriptor is parked already.
        case alreadyParked
        /// The profile's settings make no sense, or it is not for sockets of this kind.
        case profile
        /// The state is longer than ``EmbeddedSupervisor/Configuration/stateLimit``.
        case stateTooLarge
        /// As many sockets are parked as ``EmbeddedSupervisor/Configuration/socketLimit`` permits.
        case tooManySockets
        /// Nothing is parked under this token any more.
        case unknownToken
        /// Somebody who does not own the parked socket has closed it. It is gone, and its state is, too; what has its
        /// number now is left alone.
        case broken
        /// The supervisor has been closed.
        case closed
    }

    public let code: Code
    /// The `errno` of the call that failed; 0 if none did.
    public let errorNumber: Int32
    public let description: String

    init(_ code: Code, _ description: String) {
        self.code = code
        errorNumber = 0
        self.description = description
    }

    init(_ code: Code, _ error: SystemError, _ what: String = "") {
        self.code = code
        errorNumber = error.code
        let advice = error.code == EMFILE ? "; raise the limit (ulimit -n)" : ""
        description = "\(what)\(error)\(advice)"
    }

    static func broken(_ error: SystemError) -> EmbeddedError {
        EmbeddedError(.broken, error, "a parked socket was closed by somebody who does not own it: ")
    }

    static let unknownToken = EmbeddedError(.unknownToken, "nothing is parked under this token any more")
    static let closed = EmbeddedError(.closed, "the supervisor has been closed")
}
