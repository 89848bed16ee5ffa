import CLinux
import Glibc
import LinuxSystem

/// A port of the loopback address that nothing listens on now, for a server that has to be told one.
package func freePort() throws -> UInt16 {
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    let socket = OwnedDescriptor(adopting: try systemCall("socket") { Glibc.socket(AF_INET, type, 0) })
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    var length = socklen_t(MemoryLayout<sockaddr_in>.size)
    let bound = withUnsafeMutableBytes(of: &address) { bytes in
        guard let pointer = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress else { return false }
        return bind(socket.rawValue, pointer, length) == 0
            && getsockname(socket.rawValue, pointer, &length) == 0
    }
    guard bound else { throw SystemError("bind") }
    return UInt16(bigEndian: address.sin_port)
}
