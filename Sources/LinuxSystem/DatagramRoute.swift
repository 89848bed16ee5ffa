import CLinux
import Glibc

/// The source address of a datagram and the local address that it was sent to: the answer goes back the same
/// way. A peer that sent to one address of several, such as a PBX with a connected socket, accepts no answer
/// from another (RFC 3581 §4).
package struct DatagramRoute: ~Copyable {
    private let descriptor: CInt
    /// The option's earlier value, if it is to be restored.
    private let former: CInt?
    private var route = clinux_route()

    /// - Parameter namesDestinations: whether the local address matters. It is read by means of a socket
    ///   option, which is invisible to other processes if `restore` is called before the owner runs.
    package init(of descriptor: CInt, namesDestinations: Bool) {
        self.descriptor = descriptor
        let former = namesDestinations ? clinux_name_destinations(descriptor, 1) : -1
        self.former = former == 0 ? former : nil
    }

    package borrowing func restore() {
        if let former { _ = clinux_name_destinations(descriptor, former) }
    }

    /// The sender of the datagram that was peeked at last.
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
