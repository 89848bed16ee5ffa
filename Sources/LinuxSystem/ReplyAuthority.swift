import CLinux
import Glibc

/// Whether a process other than the owner can send and receive on a socket without a visible difference.
package enum ReplyAuthority: Sendable, Hashable {
    /// TCP, multipath TCP and UDP: a peer does not learn which process sends, and the kernel permits every
    /// process.
    case anyProcess
    /// Connected Unix sockets: the kernel tells the sender's credentials to a peer that asks, and checks
    /// permissions by them.
    case sameUser
    /// It would be visible.
    case refused(ReplyRefusal)

    package enum ReplyRefusal: Sendable, Hashable, CustomStringConvertible {
        /// For example netlink, where the kernel acts with the sender's permissions.
        case kind
        /// By the time of the answer the source name of a datagram may belong to another socket, and one that
        /// only the sender of the answer may reach.
        case notConnected
        /// With a peek offset (`SO_PEEK_OFF`), peeked bytes differ from those read next.
        case peekOffset
        /// Datagrams that the kernel coalesces (`UDP_GRO`) cannot be separated.
        case joinedDatagrams
        /// Input shorter than the low-water mark (`SO_RCVLOWAT`) is not reported.
        case lowWaterMark

        package var description: String {
            switch self {
            case .kind: "profiles are for TCP, UDP and Unix sockets"
            case .notConnected: "profiles are for Unix sockets that are connected"
            case .peekOffset: "profiles are for sockets without a peek offset (SO_PEEK_OFF)"
            case .joinedDatagrams: "profiles are for sockets without joined datagrams (UDP_GRO)"
            case .lowWaterMark: "profiles are for sockets that report every byte (SO_RCVLOWAT 1)"
            }
        }
    }

    package init(_ socket: CInt) {
        let kind = SocketFacts.socketKind(of: socket)
        switch kind {
        case .tcp, .udp: self = .anyProcess
        case .unixStream, .unixSeqPacket: self = .sameUser
        case .unixDatagram: self = SocketAddressText.hasPeer(socket) ? .sameUser : .refused(.notConnected)
        case .otherSocket, .pipe, .device, .anonymous, .regularFile, .directory: self = .refused(.kind)
        }
        if case .refused = self { return }
        if let offset = SocketOption.peekOffset.value(of: socket), offset >= 0 {
            self = .refused(.peekOffset)
        } else if kind == .udp, SocketOption.joinsDatagrams.value(of: socket) == 1 {
            self = .refused(.joinedDatagrams)
        } else if let mark = SocketOption.lowWaterMark.value(of: socket), mark > 1 {
            self = .refused(.lowWaterMark)
        }
    }
}
