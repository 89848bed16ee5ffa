package import EventHandlers
package import EventLoop
package import LinuxSystem

/// The reason why the monitor had to end.
package enum MonitorError: Error, Sendable, CustomStringConvertible {
    case loop(LoopError)
    /// A system call that always succeeds has failed.
    case system(SystemError)
    case connection(SystemError)
    /// The supervisor's message cannot be decoded.
    case nonsense
    /// A report does not fit into a packet.
    case tooLong(bytes: Int)

    package init(_ error: HandlerError) {
        switch error {
        case .loop(let error): self = .loop(error)
        case .system(let error): self = .system(error)
        }
    }

    package var description: String {
        switch self {
        case .loop(let error): error.description
        case .system(let error): error.description
        case .connection(let error): "the connection to the supervisor failed: \(error)"
        case .nonsense: "the supervisor's message cannot be decoded"
        case .tooLong(let bytes): "a report of \(bytes) bytes does not fit into a packet"
        }
    }
}
