import CLinux
import Glibc
import LinuxSystem
import Manifests
import Nightbell

/// The profiles of a program's sockets, by port.
struct SocketProfiles {
    private let profiles: [PortProfile]

    init(_ profiles: [PortProfile]) { self.profiles = profiles }

    var isEmpty: Bool { profiles.isEmpty }

    /// The profile for a connected TCP socket, or a UDP socket, of which the program has nothing more to send; nil: it has
    /// none.
    ///
    /// - Parameter events: of epoll(7) that the program waits for.
    func profile(of descriptor: CInt, _ events: UInt32) -> PortProfile? {
        // One that waits for room is in the middle of a message. By edges, many programs wait for room all
        // the time.
        let waitsForRoom = events & EPOLLOUT.rawValue != 0 && events & EPOLLET.rawValue == 0
        guard !waitsForRoom, let profile = profile(of: descriptor), SocketTraffic.hasSentAll(descriptor)
        else { return nil }
        return profile
    }

    private func profile(of descriptor: CInt) -> PortProfile? {
        let peer = Self.port(SocketAddress(peerOf: descriptor))
        switch SocketOption.protocol.value(of: descriptor) {
        case CInt(IPPROTO_TCP):
            return profiles.first { $0.port == peer }
        case CInt(IPPROTO_UDP):
            // One that is not connected may have several peers.
            let port = peer ?? Self.localPort(of: descriptor)
            return profiles.first { $0.port == port && $0.name == .sip }
        default: return nil
        }
    }

    private static func localPort(of descriptor: CInt) -> UInt16? {
        var address = sockaddr_in6()
        var length = socklen_t(MemoryLayout<sockaddr_in6>.size)
        let result = unsafe withUnsafeMutablePointer(to: &address) { pointer in
            unsafe pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                unsafe getsockname(descriptor, $0, &length)
            }
        }
        // It is at the same place in both families.
        guard result == 0, [AF_INET, AF_INET6].contains(CInt(address.sin6_family)) else { return nil }
        return UInt16(bigEndian: address.sin6_port)
    }

    private static func port(_ address: SocketAddress?) -> UInt16? {
        switch address?.internet {
        case .v4(_, let port), .v6(_, _, let port): port
        case nil: nil
        }
    }
}

extension PortProfile {
    /// A server of MQTT waits for one and a half times the client's keep-alive, which is 60 s with most. The
    /// program may have sent its last packet that long before it falls asleep.
    private static let pingInterval = Duration.seconds(25)

    /// With the protocol's standard intervals, but for MQTT.
    var profile: Profile {
        switch name {
        case .imap: .imap()
        case .irc: .irc()
        case .mqtt: .mqtt(keepAlive: Self.pingInterval)
        // Few registrars know of RFC 5626, and the program has not asked.
        case .sip: .sip(sendsPings: false)
        case .websocket: .webSocket()
        case .xmpp: .xmpp()
        }
    }
}
