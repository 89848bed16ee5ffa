import Glibc
package import LinuxSystem

/// The reason why a client could not be stopped or thawed.
package struct SuspensionError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Code: Sendable, Hashable {
        /// No cgroup v2 hierarchy is mounted, or it has no freezer.
        case freezerMissing
        /// No permission to make cgroups there, to move the process, or to signal it.
        case notPermitted
        /// The process has ended.
        case processGone
        /// Another process has moved the client out of the cgroup of this instance.
        case processMoved
        /// This process, or the machine, has no free descriptor (`EMFILE`, `ENFILE`).
        case outOfDescriptors
        /// Nothing is attached to this slot.
        case notAttached
        /// The kernel refused for another reason: see `underlying`.
        case systemError
    }

    package let code: Code
    /// The attempted operation, such as `attach 4711`.
    package let attempt: String
    package let underlying: SystemError?

    package init(_ code: Code, _ attempt: String, _ underlying: SystemError? = nil) {
        self.code = code
        self.attempt = attempt
        self.underlying = underlying
    }

    /// Classifies the error of a system call.
    init(_ attempt: String, _ error: SystemError) {
        switch error.code {
        case EPERM, EACCES, EROFS: self.init(.notPermitted, attempt, error)
        case ESRCH: self.init(.processGone, attempt, error)
        case EMFILE, ENFILE: self.init(.outOfDescriptors, attempt, error)
        default: self.init(.systemError, attempt, error)
        }
    }

    package var description: String {
        let reason =
            switch code {
            case .freezerMissing: "no cgroup v2 freezer"
            case .notPermitted: "not permitted"
            case .processGone: "the process has ended"
            case .processMoved: "the process was moved to another cgroup"
            case .outOfDescriptors: "no descriptor is left"
            case .notAttached: "no process is attached"
            case .systemError: "the kernel refused"
            }
        return underlying.map { "\(attempt): \(reason) (\($0))" } ?? "\(attempt): \(reason)"
    }
}
