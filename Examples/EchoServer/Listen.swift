import Glibc

struct CannotListen: Error {
    let errorNumber = errno
}

func listen(onLoopback port: UInt16) throws -> Int32 {
    let listener = socket(AF_INET, Int32(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
    var yes: Int32 = 1
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<Int32>.size))
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let isBound = withUnsafeBytes(of: &address) { bytes in
        bind(listener, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count)) == 0
    }
    guard isBound, listen(listener, 64) == 0 else { throw CannotListen() }
    return listener
}

func port(of listener: Int32) -> UInt16 {
    var address = sockaddr_in()
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    _ = withUnsafeMutableBytes(of: &address) { bytes in
        getsockname(listener, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, &length)
    }
    return UInt16(bigEndian: address.sin_port)
}
