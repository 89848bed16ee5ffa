import Glibc
import LinuxSystem
import Nightbell

extension ScriptedClient {
    /// Opens the descriptors that a test hands over, always on the loopback interface.
    func openDescriptor(_ command: String, _ arguments: Arguments) throws -> String {
        switch command {
        case "connect-tcp":
            let port = try arguments.port(0)
            try keep(try arguments.text(1), try Loopback.socket(SOCK_STREAM, connectedTo: port))
        case "connected-udp":
            let port = try arguments.port(0)
            try keep(try arguments.text(1), try Loopback.socket(SOCK_DGRAM, connectedTo: port))
        case "listen-tcp":
            let descriptor = try Loopback.socket(SOCK_STREAM, boundTo: 0)
            let rawValue = descriptor.rawValue
            _ = try systemCall("listen") { listen(rawValue, 16) }
            let port = try Loopback.port(of: rawValue)
            try keep(try arguments.text(0), descriptor)
            return "port=\(port)"
        case "bind-udp":
            let descriptor = try Loopback.socket(SOCK_DGRAM, boundTo: 0)
            let port = try Loopback.port(of: descriptor.rawValue)
            try keep(try arguments.text(0), descriptor)
            return "port=\(port)"
        case "connect-unix":
            try keep(try arguments.text(1), try Loopback.unixStream(path: try arguments.text(0)))
        case "unix-pair":
            var ends: [CInt] = [-1, -1]
            _ = try systemCall("socketpair") {
                socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends)
            }
            try keepBoth(ends, try arguments.text(0))
        case "pipe":
            var ends: [CInt] = [-1, -1]
            _ = try systemCall("pipe") { pipe(&ends) }
            try keepBoth(ends, try arguments.text(0))
        case "timer":
            let timer = try TimerDescriptor()
            try timer.set(absoluteNanoseconds: BootClock.now() + Int64(try arguments.number(0)) * 1_000_000)
            try keep(try arguments.text(1), try OwnedDescriptor(duplicating: timer.rawValue))
        case "open":
            try keep(try arguments.text(1), try OwnedDescriptor(opening: try arguments.text(0), O_RDONLY))
        default: throw Refusal("usage", "no such command: \(command)")
        }
        return ""
    }

    private func keep(_ name: String, _ descriptor: consuming OwnedDescriptor) throws(Refusal) {
        let rawValue = descriptor.take()
        let isNew = state.withLock { state in
            if state.descriptors[name] != nil { return false }
            state.descriptors[name] = rawValue
            return true
        }
        guard isNew else {
            close(rawValue)
            throw Refusal("usage", "\(name) is open already")
        }
    }

    private func keepBoth(_ ends: [CInt], _ name: String) throws(Refusal) {
        try keep(name, OwnedDescriptor(adopting: ends[0]))
        try keep(name + ".peer", OwnedDescriptor(adopting: ends[1]))
    }
}

/// Sockets on 127.0.0.1, and nowhere else.
enum Loopback {
    static func socket(_ type: __socket_type, connectedTo port: UInt16) throws(SystemError) -> OwnedDescriptor
    {
        let descriptor = try make(AF_INET, type)
        let rawValue = descriptor.rawValue
        _ = try systemCall("connect to port \(port)") {
            withAddress(port) { connect(rawValue, $0, $1) }
        }
        return descriptor
    }

    static func socket(_ type: __socket_type, boundTo port: UInt16) throws(SystemError) -> OwnedDescriptor {
        let descriptor = try make(AF_INET, type)
        let rawValue = descriptor.rawValue
        _ = try systemCall("bind") { withAddress(port) { bind(rawValue, $0, $1) } }
        return descriptor
    }

    static func port(of descriptor: CInt) throws(SystemError) -> UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = try systemCall("getsockname") {
            withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    getsockname(descriptor, $0, &length)
                }
            }
        }
        return UInt16(bigEndian: address.sin_port)
    }

    static func unixStream(path: String) throws -> OwnedDescriptor {
        let descriptor = try make(AF_UNIX, SOCK_STREAM)
        let rawValue = descriptor.rawValue
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        let bytes = Array(path.utf8)
        guard bytes.count < MemoryLayout.size(ofValue: address.sun_path) else {
            throw Refusal("usage", "the path is too long")
        }
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: bytes) }
        _ = try systemCall("connect \(path)") {
            withUnsafePointer(to: address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(rawValue, $0, socklen_t(MemoryLayout<sockaddr_un>.size))
                }
            }
        }
        return descriptor
    }

    private static func make(_ family: CInt, _ type: __socket_type) throws(SystemError) -> OwnedDescriptor {
        OwnedDescriptor(
            adopting: try systemCall("socket") {
                Glibc.socket(family, CInt(type.rawValue | SOCK_CLOEXEC.rawValue), 0)
            })
    }

    private static func withAddress<Result>(
        _ port: UInt16, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Result
    ) -> Result {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        return withUnsafePointer(to: address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
}
