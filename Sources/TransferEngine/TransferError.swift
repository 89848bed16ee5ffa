package import EventHandlers
package import EventLoop
package import LinuxSystem

/// The reason why the process cannot do its work, and has to end.
package enum TransferError: Error, Sendable, CustomStringConvertible {
    case handlers(HandlerError)
    case loop(LoopError)
    case system(SystemError)
    /// The database cannot be read or written.
    case store(String)
    /// Another process has the directory.
    case inUse(String)
    /// libcurl cannot be used.
    case curl(String)

    package var description: String {
        switch self {
        case .handlers(let error): error.description
        case .loop(let error): error.description
        case .system(let error): error.description
        case .store(let text): "the store failed: \(text)"
        case .inUse(let directory): "another process has \(directory)"
        case .curl(let text): "libcurl: \(text)"
        }
    }
}
