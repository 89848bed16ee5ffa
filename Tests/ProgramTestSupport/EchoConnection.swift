import Glibc
import LinuxSystem

/// A connection to a server on this machine.
package final class EchoConnection {
    private let descriptor: OwnedDescriptor

    package init(connectedTo port: UInt16) throws {
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        descriptor = OwnedDescriptor(adopting: try systemCall("socket") { socket(AF_INET, type, 0) })
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7f00_0001).bigEndian
        let rawValue = descriptor.rawValue
        _ = try systemCall("connect") {
            withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(rawValue, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
    }

    /// Sends a text, and returns whether it comes back.
    package func echoes(_ text: String) throws -> Bool {
        let bytes = Array(text.utf8)
        let rawValue = descriptor.rawValue
        _ = try systemCall("send") { send(rawValue, bytes, bytes.count, CInt(MSG_NOSIGNAL)) }
        var answer: [UInt8] = []
        while answer.count < bytes.count {
            guard !Poll.wait(rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty else {
                return false
            }
            var buffer = [UInt8](repeating: 0, count: 1_000)
            let count = try systemCall("recv") { recv(rawValue, &buffer, buffer.count, 0) }
            guard count > 0 else { return false }
            answer += buffer.prefix(count)
        }
        return answer == bytes
    }
}
