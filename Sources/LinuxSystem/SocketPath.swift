import CLinux

/// Whether a connection can still work after the network has changed, as the kernel's addresses and routes
/// tell.
package enum SocketPath: Sendable, Hashable {
    case works
    /// No interface has the socket's local address any more.
    case addressGone
    /// There is no route to the peer, or it leaves by an interface without the socket's local address.
    case unreachable

    /// Inspects a socket without touching it, and sends nothing: some 5 µs.
    package init(of descriptor: CInt) {
        self =
            switch clinux_socket_path(descriptor) {
            case CLINUX_PATH_ADDRESS_GONE: .addressGone
            case CLINUX_PATH_UNREACHABLE: .unreachable
            default: .works
            }
    }

    /// Whether a descriptor is a socket with an Internet address that the machine can lose: a specific one,
    /// and no loopback or link-local one.
    package static func isRouted(_ descriptor: CInt) -> Bool { clinux_is_routed(descriptor) == 1 }
}
