/// The kind of a descriptor of another process, by its link in `/proc/PID/fd`.
package enum OpenDescriptor: Sendable, Hashable {
    case socket
    case pipe
    case terminal
    case epoll
    case timer
    case counter
    case signals
    case processHandle
    case fileChanges
    case ring
    /// A device that is none of the harmless ones.
    case device(String)
    case file(String)
    case other(String)

    package init(link: String) {
        if link.hasPrefix("socket:") {
            self = .socket
        } else if link.hasPrefix("pipe:") {
            self = .pipe
        } else if link.hasPrefix("anon_inode:") {
            let name = link.dropFirst("anon_inode:".count).filter { $0 != "[" && $0 != "]" }
            switch name {
            case "eventpoll": self = .epoll
            case "timerfd": self = .timer
            case "eventfd": self = .counter
            case "signalfd": self = .signals
            case "pidfd": self = .processHandle
            case "inotify", "fanotify": self = .fileChanges
            case "io_uring": self = .ring
            default: self = .other(name)
            }
        } else if link.hasPrefix("/dev/pts/") || link.hasPrefix("/dev/tty") || link == "/dev/console" {
            self = .terminal
        } else if link.hasPrefix("/dev/"), !Self.harmless.contains(link), !link.hasPrefix("/dev/shm/") {
            self = .device(link)
        } else if link.hasPrefix("/") {
            self = .file(link)
        } else {
            self = .other(link)
        }
    }

    /// Devices that nothing comes from.
    private static let harmless: Set = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"]

    /// In the singular, for messages.
    package var words: String {
        switch self {
        case .socket: "socket"
        case .pipe: "pipe"
        case .terminal: "terminal"
        case .epoll: "epoll set"
        case .timer: "timer"
        case .counter: "eventfd"
        case .signals: "signalfd"
        case .processHandle: "pidfd"
        case .fileChanges: "inotify"
        case .ring: "io_uring"
        case .device(let path): path
        case .file: "file"
        case .other(let name): name
        }
    }
}
