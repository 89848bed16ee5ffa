package import EventHandlers
package import EventLoop
package import LinuxSystem

/// The reason why the push service cannot do its work, and has to end.
package enum PushError: Error, Sendable, CustomStringConvertible {
    case handlers(HandlerError)
    case loop(LoopError)
    case system(SystemError)
    /// The database cannot be read or written.
    case store(String)

    package var description: String {
        switch self {
        case .handlers(let error): error.description
        case .loop(let error): error.description
        case .system(let error): error.description
        case .store(let text): "the store of pushes failed: \(text)"
        }
    }
}
