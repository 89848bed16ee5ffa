import Glibc
import LinuxSystem

/// A TCP connection to a port of this machine.
///
/// - Parameter receiveBuffer: the most bytes that wait in the kernel, roughly; nil: as it likes.
func connectToLoopback(_ port: UInt16, receiveBuffer: CInt? = nil) throws -> OwnedDescriptor {
    let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
    let socket = OwnedDescriptor(adopting: try systemCall("socket") { Glibc.socket(AF_INET, type, 0) })
    let rawValue = socket.rawValue
    if var receiveBuffer {
        setsockopt(
            rawValue, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, socklen_t(MemoryLayout<CInt>.size))
    }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    _ = try systemCall("connect") {
        withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(rawValue, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }
    return socket
}
