import CLinux
import Glibc

/// Peeks at the input of a socket, consumes it and answers. No call blocks or raises a signal, whether or not
/// the descriptor is non-blocking.
package enum SocketTraffic {
    package enum Peeked: Sendable, Equatable {
        /// The number of bytes copied, which remain in the socket. Of a datagram: all of it, or more than
        /// fitted.
        case bytes(Int)
        /// The bytes come with descriptors or credentials, which would be consumed with them.
        case accompanied
        /// The end of the stream.
        case end
        case nothing
        /// The socket had a pending error, which is consumed now.
        case failed(CInt)
    }

    /// Whether input of this socket may carry descriptors, as on Unix sockets.
    package static func mayCarryDescriptors(_ descriptor: CInt) -> Bool {
        var domain: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        return unsafe getsockopt(descriptor, SOL_SOCKET, SO_DOMAIN, &domain, &length) == 0
            && domain == AF_UNIX
    }

    /// Copies the beginning of a stream.
    ///
    /// - Parameter isLocal: the result of `mayCarryDescriptors`; if true, descriptors are checked for.
    package static func peek(_ descriptor: CInt, into buffer: inout [UInt8], isLocal: Bool = false) -> Peeked
    {
        if isLocal {
            guard let count = peekAlone(descriptor, &buffer) else { return .accompanied }
            return peeked(count)
        }
        return peeked(
            unsafe buffer.withUnsafeMutableBytes { bytes in
                unsafe recv(descriptor, bytes.baseAddress, bytes.count, CInt(MSG_PEEK | MSG_DONTWAIT))
            })
    }

    private static func peeked(_ count: Int) -> Peeked {
        if count < 0 { return failure }
        return count == 0 ? .end : .bytes(count)
    }

    /// Copies input as `recv` does. nil: descriptors or credentials come with it, and stay in the socket.
    private static func peekAlone(_ descriptor: CInt, _ buffer: inout [UInt8]) -> Int? {
        unsafe buffer.withUnsafeMutableBytes { bytes in
            var vector = unsafe iovec(iov_base: bytes.baseAddress, iov_len: bytes.count)
            return unsafe withUnsafeMutablePointer(to: &vector) { vector in
                // With no room for them, the kernel sets `MSG_CTRUNC`.
                var message = unsafe msghdr()
                unsafe message.msg_iov = vector
                unsafe message.msg_iovlen = 1
                let count = unsafe recvmsg(descriptor, &message, CInt(MSG_PEEK | MSG_DONTWAIT))
                return unsafe count >= 0 && message.msg_flags & CInt(MSG_CTRUNC) != 0 ? nil : count
            }
        }
    }

    /// Copies the next datagram, and its route. An empty datagram counts.
    package static func peekDatagram(
        _ descriptor: CInt, into buffer: inout [UInt8], along route: inout DatagramRoute,
        isLocal: Bool = false
    ) -> Peeked {
        if isLocal, peekAlone(descriptor, &buffer) == nil { return .accompanied }
        let count = route.peek(into: &buffer)
        return count < 0 ? failure : .bytes(count)
    }

    private static var failure: Peeked {
        errno == EAGAIN || errno == EINTR ? .nothing : .failed(errno)
    }

    /// Consumes peeked input: `count` bytes of a stream, or the next datagram.
    ///
    /// - Returns: whether all of it was there; if not, another process that shares the socket has read it.
    package static func consume(_ descriptor: CInt, _ count: Int, using buffer: inout [UInt8]) -> Bool {
        precondition(count <= buffer.count, "count exceeds the peeked bytes")
        let taken = unsafe buffer.withUnsafeMutableBytes { bytes in
            unsafe recv(descriptor, bytes.baseAddress, count, CInt(MSG_DONTWAIT))
        }
        return taken == count
    }

    package enum Sent: Sendable, Equatable {
        case all
        /// Only the beginning: the peer could not parse anything that follows on this stream.
        case part
        /// The send buffer is full.
        case nothing
        case failed(CInt)
    }

    /// Sends to the peer.
    package static func send(_ bytes: [UInt8], on descriptor: CInt) -> Sent {
        let count = unsafe bytes.withUnsafeBytes { bytes in
            unsafe Glibc.send(descriptor, bytes.baseAddress, bytes.count, CInt(MSG_DONTWAIT | MSG_NOSIGNAL))
        }
        return sent(count, of: bytes.count)
    }

    /// Converts the result of the system call.
    static func sent(_ count: Int, of all: Int) -> Sent {
        if count == all { return .all }
        if count > 0 { return .part }
        return count == 0 || errno == EAGAIN || errno == EINTR || errno == ENOBUFS ? .nothing : .failed(errno)
    }

    /// Writes to a stream as much as fits at once, possibly nothing; errors surface at the next read.
    package static func write(_ bytes: [UInt8], on descriptor: CInt) -> Int {
        let count = unsafe bytes.withUnsafeBytes { bytes in
            unsafe Glibc.send(descriptor, bytes.baseAddress, bytes.count, CInt(MSG_DONTWAIT | MSG_NOSIGNAL))
        }
        return max(0, count)
    }

    /// Whether a stream will certainly take this at once, as far as the kernel shows it.
    package static func hasRoom(_ descriptor: CInt, for count: Int) -> Bool {
        var queued: CInt = 0
        guard unsafe ioctl(descriptor, UInt(TIOCOUTQ), &queued) == 0 else { return true }
        if queued == 0, count <= 1_024 { return true }
        // The kernel's count includes its own overhead.
        return Int(queued) + count <= Int(SocketOption.sendBuffer.value(of: descriptor) ?? 0) / 4
    }

    /// Whether the peer has confirmed all that was sent, as far as the kernel shows it.
    package static func hasSentAll(_ descriptor: CInt) -> Bool {
        var queued: CInt = 0
        return unsafe ioctl(descriptor, UInt(TIOCOUTQ), &queued) != 0 || queued == 0
    }

    /// Whether the other end of a Unix socket has not read everything that was sent to it.
    package static func hasUnsent(_ descriptor: CInt) -> Bool { clinux_unsent(descriptor) > 0 }

    /// Whether there are bytes to read, whatever the other conditions: `poll(2)` does not distinguish them
    /// from the end.
    package static func hasUnread(_ descriptor: CInt) -> Bool {
        var count: CInt = 0
        if unsafe ioctl(descriptor, UInt(FIONREAD), &count) == 0 { return count > 0 }
        let readiness = Poll.now(descriptor)
        return readiness.contains(.readable) && readiness.isDisjoint(with: [.peerClosed, .hangUp, .error])
    }

    /// Whether the next byte is urgent data. A read ends before it, and reading past it loses it. Also true
    /// when it was read already, which `poll(2)` does not tell.
    package static func isAtMark(_ descriptor: CInt) -> Bool { sockatmark(descriptor) == 1 }

    /// Shuts the connection down in both directions.
    package static func breakOff(_ descriptor: CInt) {
        _ = shutdown(descriptor, CInt(SHUT_RDWR))
    }
}

/// An address in the kernel's format.
package struct SocketAddress: Sendable {
    private var storage = sockaddr_storage()
    private var length = socklen_t(MemoryLayout<sockaddr_storage>.size)

    init(_ storage: sockaddr_storage, length: socklen_t) {
        self.storage = storage
        self.length = length
    }

    /// The peer of a connected socket.
    package init?(peerOf descriptor: CInt) {
        let result = unsafe withMutable { address, length in
            unsafe Glibc.getpeername(descriptor, address, length)
        }
        guard result == 0 else { return nil }
    }

    package enum Internet: Sendable, Hashable {
        case v4(UInt32, port: UInt16)
        case v6(UInt64, UInt64, port: UInt16)
    }

    /// Nil for other address families. An IPv4-mapped IPv6 address is returned as IPv4.
    package var internet: Internet? {
        switch CInt(storage.ss_family) {
        case AF_INET where Int(length) >= MemoryLayout<sockaddr_in>.size:
            let address = unsafe withUnsafeBytes(of: storage) {
                unsafe $0.loadUnaligned(as: sockaddr_in.self)
            }
            return .v4(UInt32(bigEndian: address.sin_addr.s_addr), port: UInt16(bigEndian: address.sin_port))
        case AF_INET6 where Int(length) >= MemoryLayout<sockaddr_in6>.size:
            let address = unsafe withUnsafeBytes(of: storage) {
                unsafe $0.loadUnaligned(as: sockaddr_in6.self)
            }
            let port = UInt16(bigEndian: address.sin6_port)
            let (high, low) = unsafe withUnsafeBytes(of: address.sin6_addr) {
                unsafe (
                    UInt64(bigEndian: $0.loadUnaligned(as: UInt64.self)),
                    UInt64(bigEndian: $0.loadUnaligned(fromByteOffset: 8, as: UInt64.self))
                )
            }
            if high == 0, low >> 32 == 0xFFFF { return .v4(UInt32(truncatingIfNeeded: low), port: port) }
            return .v6(high, low, port: port)
        default:
            return nil
        }
    }

    fileprivate mutating func withMutable<Result>(
        _ body: (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> Result
    ) -> Result {
        length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        return unsafe withUnsafeMutableBytes(of: &storage) { bytes in
            let address = unsafe bytes.assumingMemoryBound(to: sockaddr.self)
            guard let base = address.baseAddress else { preconditionFailure("storage has an address") }
            return unsafe body(base, &length)
        }
    }
}
