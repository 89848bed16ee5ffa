import Glibc
import LinuxSystem

/// Why an embedded supervisor could not do what was asked.
public struct EmbeddedError: Error, Sendable, Hashable, CustomStringConvertible {
    public enum Code: Sendable, Hashable {
        /// A descriptor or thread of the supervisor's own could not be made.
        case resources
        /// A value of the ``EmbeddedSupervisor/Configuration`` is out of its range.
        case configuration
        /// The kernel cannot watch the descriptor: `EPERM`, it is a file; `ENOSPC`, the user's limit of
        /// watches (`fs.epoll.max_user_watches`) is reached; `EBADF`, it is not open.
        case notWatchable
        /// The descriptor is parked already.
        case alreadyParked
        /// The profile's settings are invalid, or it is not for sockets of this kind.
        case profile
        /// The state is longer than ``EmbeddedSupervisor/Configuration/stateLimit``.
        case stateTooLarge
        /// As many sockets are parked as ``EmbeddedSupervisor/Configuration/socketLimit`` permits.
        case tooManySockets
        /// The token names no parked socket any more.
        case unknownToken
        /// Code that does not own the parked socket has closed it. The socket and its state are gone; the
        /// descriptor that has its number now is left alone.
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
        EmbeddedError(.broken, error, "a parked socket was closed by code that does not own it: ")
    }

    static let unknownToken = EmbeddedError(.unknownToken, "the token names no parked socket")
    static let closed = EmbeddedError(.closed, "the supervisor has been closed")
}
