import CLinux
import Glibc

/// Whether somebody else than its owner can speak on a socket, and read from it, without making a difference.
package enum SpokenFor: Sendable, Hashable {
    /// TCP, multipath TCP and UDP: a peer learns nothing of who sends, and the kernel lets everybody.
    case anybody
    /// Connected Unix sockets: the kernel tells a peer that asks who has sent, and decides by that who may.
    case sameUser
    /// It would make one.
    case nobody(Obstacle)

    package enum Obstacle: Sendable, Hashable, CustomStringConvertible {
        /// Such as those by which the kernel itself is spoken to, which does as the sender may.
        case kind
        /// The name that a datagram came from may be that of another socket by the time of the answer, and one that only
        /// the sender of the answer may reach.
        case notConnected
        /// With a peek offset (`SO_PEEK_OFF`), what is looked at is not what is taken.
        case peekOffset
        /// Datagrams that the kernel puts together (`UDP_GRO`) cannot be told apart.
        case joinedDatagrams
        /// Nothing is told of what is shorter than the mark (`SO_RCVLOWAT`).
        case lowWaterMark

        package var description: String {
            switch self {
            case .kind: "profiles are for TCP, UDP and Unix sockets"
            case .notConnected: "profiles are for Unix sockets that are connected"
            case .peekOffset: "profiles are for sockets without a peek offset (SO_PEEK_OFF)"
            case .joinedDatagrams: "profiles are for sockets whose datagrams are not joined (UDP_GRO)"
            case .lowWaterMark: "profiles are for sockets that tell of every byte (SO_RCVLOWAT 1)"
            }
        }
    }

    package init(_ socket: CInt) {
        let kind = SocketFacts.socketKind(of: socket)
        switch kind {
        case .tcp, .udp: self = .anybody
        case .unixStream, .unixSeqPacket: self = .sameUser
        case .unixDatagram: self = SocketAddressText.hasPeer(socket) ? .sameUser : .nobody(.notConnected)
        case .otherSocket, .pipe, .device, .anonymous, .regularFile, .directory: self = .nobody(.kind)
        }
        if case .nobody = self { return }
        if let offset = SocketOption.peekOffset.value(of: socket), offset >= 0 {
            self = .nobody(.peekOffset)
        } else if kind == .udp, SocketOption.joinsDatagrams.value(of: socket) == 1 {
            self = .nobody(.joinedDatagrams)
        } else if let mark = SocketOption.lowWaterMark.value(of: socket), mark > 1 {
            self = .nobody(.lowWaterMark)
        }
    }
}
