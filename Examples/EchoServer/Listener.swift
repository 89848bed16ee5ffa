import Glibc

/// A socket that listens on the loopback interface.
struct Listener {
    let descriptor: Int32
    /// A spare, closed for a moment when there is no other descriptor: a connection that cannot be accepted
    /// would be reported again and again. It is accepted and closed instead.
    private var reserve = open("/dev/null", O_RDONLY | O_CLOEXEC)

    init(port: UInt16) {
        let kind = SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue | SOCK_NONBLOCK.rawValue
        descriptor = socket(AF_INET, Int32(kind), 0)
        var yes: Int32 = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let socket = descriptor
        let isBound = withUnsafeBytes(of: &address) { bytes in
            bind(socket, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count))
                == 0
        }
        guard isBound, listen(descriptor, 64) == 0 else {
            end(
                "echo-server: cannot listen on 127.0.0.1:\(port): \(String(cString: strerror(errno)))",
                code: 1)
        }
    }

    var port: UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = withUnsafeMutableBytes(of: &address) { bytes in
            getsockname(descriptor, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, &length)
        }
        return UInt16(bigEndian: address.sin_port)
    }

    /// A new connection; nil: there is none, or it could not be kept.
    mutating func accept() -> Int32? {
        let connection = Glibc.accept(descriptor, nil, nil)
        if connection >= 0 { return connection }
        guard errno == EMFILE || errno == ENFILE else { return nil }
        close(reserve)
        close(Glibc.accept(descriptor, nil, nil))
        reserve = open("/dev/null", O_RDONLY | O_CLOEXEC)
        return nil
    }
}

func end(_ message: String, code: Int32) -> Never {
    let line = Array("\(message)\n".utf8)
    _ = write(STDERR_FILENO, line, line.count)
    exit(code)
}
