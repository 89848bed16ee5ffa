import CLinux
import Glibc

/// Where the datagrams of a socket come from, and which of our addresses they were sent to: an answer goes back the same
/// way. Who asked at one address of several, such as a PBX whose socket is connected, takes no answer from another
/// (RFC 3581 §4).
package struct DatagramRoute: ~Copyable {
    private let descriptor: CInt
    /// What the socket's option was, if it is to be that again.
    private let former: CInt?
    private var route = clinux_route()

    /// - Parameter namesDestinations: whether it matters which address was asked. It is found out by an option of the
    ///   socket, which nobody else sees if `restore` is called before its owner runs.
    package init(of descriptor: CInt, namesDestinations: Bool) {
        self.descriptor = descriptor
        let former = namesDestinations ? clinux_name_destinations(descriptor, 1) : -1
        self.former = former == 0 ? former : nil
    }

    package borrowing func restore() {
        if let former { _ = clinux_name_destinations(descriptor, former) }
    }

    /// Who has sent the datagram that was peeked at last.
    package var sender: SocketAddress { SocketAddress(route.sender, length: route.sender_length) }

    mutating func peek(into buffer: inout [UInt8]) -> Int {
        unsafe buffer.withUnsafeMutableBytes { bytes in
            unsafe clinux_peek_datagram(descriptor, bytes.baseAddress, bytes.count, &route)
        }
    }

    /// Answers the datagram that was peeked at last.
    package borrowing func answer(_ bytes: [UInt8]) -> SocketTraffic.Sent {
        let route = route
        let count = unsafe bytes.withUnsafeBytes { bytes in
            unsafe withUnsafePointer(to: route) { route in
                unsafe clinux_answer_datagram(descriptor, bytes.baseAddress, bytes.count, route)
            }
        }
        return SocketTraffic.sent(count, of: bytes.count)
    }
}
