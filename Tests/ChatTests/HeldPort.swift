import Glibc
import LinuxSystem

/// A port of the loopback address that stays free for a server, which can stop and start again.
///
/// A bound socket holds it: the kernel gives the port to no other connection meanwhile. The socket never
/// listens and allows the address to be used again, so a server that allows that, too, can listen.
struct HeldPort: ~Copyable {
    let number: Int
    private let socket: OwnedDescriptor

    init() throws {
        let socket = OwnedDescriptor(
            adopting: try systemCall("socket") { Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0) })
        var isReused: CInt = 1
        let size = socklen_t(MemoryLayout<CInt>.size)
        _ = try systemCall("setsockopt") {
            setsockopt(socket.rawValue, SOL_SOCKET, SO_REUSEADDR, &isReused, size)
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = try systemCall("bind") {
            withUnsafeMutablePointer(to: &address) { pointer in
                pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    bind(socket.rawValue, $0, length) == 0 ? getsockname(socket.rawValue, $0, &length) : -1
                }
            }
        }
        number = Int(UInt16(bigEndian: address.sin_port))
        self.socket = socket
    }
}
