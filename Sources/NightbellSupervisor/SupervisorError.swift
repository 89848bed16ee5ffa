import EventLoop
import Glibc
import LinuxSystem
import Suspension

/// Why a supervisor could not be set up, or had to stop.
public struct SupervisorError: Error, Sendable, CustomStringConvertible {
    public enum Code: Sendable, Hashable {
        /// The runtime directory cannot be made or used. `errno` `EADDRINUSE`: another supervisor uses it.
        case runtimeDirectory
        /// The control socket cannot be listened on. `errno` `EADDRINUSE`: another supervisor uses it.
        case socket
        /// The table of identifiers cannot be read, or is of a later version. `errno` `EPERM`: another user
        /// could have written it.
        case state
        /// An event loop, timer or descriptor could not be made.
        case loop
        /// The configured suspension method does not work here.
        case suspension
        /// The previous worker's records cannot be recovered.
        case startup
    }

    public let code: Code
    /// The `errno` of the call that failed; 0 if none did.
    public let errorNumber: Int32
    public let description: String

    init(_ code: Code, _ error: SystemError, _ what: String) {
        self.code = code
        errorNumber = error.code
        description = "\(what): \(error)\(Self.advice(error))"
    }

    /// The description is in our own words; the number is for programs.
    init(_ code: Code, errorNumber: Int32, _ description: String) {
        self.code = code
        self.errorNumber = errorNumber
        self.description = description
    }

    init(_ code: Code, _ error: IdentifierStore.Failure) {
        self.code = code
        errorNumber = error.code
        description = error.description
    }

    init(_ code: Code, _ description: String) {
        self.code = code
        errorNumber = 0
        self.description = description
    }

    init(_ error: LoopError) {
        code = .loop
        errorNumber = error.underlying.code
        description = "\(error)\(Self.advice(error.underlying))"
    }

    init(_ error: SuspensionError) {
        code = .suspension
        errorNumber = error.underlying?.code ?? 0
        description = "\(error)\(error.underlying.map(Self.advice) ?? "")"
    }

    private static func advice(_ error: SystemError) -> String {
        guard error.code == EMFILE else { return "" }
        let limit = Acceptance.currentDescriptorLimit()
        return "; this process may have only \(limit) descriptors: raise the limit (ulimit -n, LimitNOFILE=)"
    }
}
