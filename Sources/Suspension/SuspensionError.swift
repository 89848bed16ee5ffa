package import Descriptors
import Glibc

/// Why a client could not be stopped or let run.
package struct SuspensionError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Code: Sendable, Hashable {
        /// No cgroup v2 hierarchy is mounted, or it has no freezer.
        case freezerMissing
        /// We may not make cgroups where ours belong, or not move the process, or not signal it.
        case notPermitted
        /// The process has ended.
        case processGone
        /// Somebody moved the process out of the cgroup we had put it into.
        case processMoved
        /// This process, or the machine, has no descriptor left to look or to act with (`EMFILE`, `ENFILE`).
        case outOfDescriptors
        /// Nothing is attached to this slot.
        case notAttached
        /// The kernel refused for another reason, which `underlying` tells.
        case systemError
    }

    package let code: Code
    /// What was tried, such as `attach 4711`.
    package let attempt: String
    package let underlying: SystemError?

    package init(_ code: Code, _ attempt: String, _ underlying: SystemError? = nil) {
        self.code = code
        self.attempt = attempt
        self.underlying = underlying
    }

    /// Sorts a system call's error.
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
