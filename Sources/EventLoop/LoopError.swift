package import LinuxSystem

/// An operation of the event loop that failed.
package struct LoopError: Error, Sendable, Hashable, CustomStringConvertible {
    package enum Code: Sendable, Hashable {
        /// No loop could be made.
        case cannotCreate
        /// The watch could not be made: the descriptor or signal number is invalid.
        case cannotWatch
        /// The kernel refused to watch the descriptor: `EPERM`, it is a file that is always ready;
        /// `ENOSPC`, the user's limit of watches is reached.
        case cannotArm
        /// libevent's loop failed.
        case cannotRun
    }

    package let code: Code
    package let underlying: SystemError

    package var description: String {
        switch code {
        case .cannotCreate: "no event loop: \(underlying)"
        case .cannotWatch: "cannot watch: \(underlying)"
        case .cannotArm: "cannot arm: \(underlying)"
        case .cannotRun: "the event loop failed: \(underlying)"
        }
    }
}
