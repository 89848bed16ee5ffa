package import EventLoop
package import LinuxSystem

/// The reason why a loop of handlers could not be made, or had to end.
package enum HandlerError: Error, Sendable, CustomStringConvertible {
    case loop(LoopError)
    /// A system call that always succeeds has failed.
    case system(SystemError)

    package var description: String {
        switch self {
        case .loop(let error): error.description
        case .system(let error): error.description
        }
    }
}
