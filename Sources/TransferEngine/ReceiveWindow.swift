import Glibc

/// The receive window of connections to servers that are near.
///
/// The bytes that wait in a connection's receive buffer are lost, and fetched again, when the process is
/// killed. The kernel lets the window grow as long as the process reads faster than it estimates, which for
/// servers on the same machine or network is many times as much as the connection can hold on its way.
enum ReceiveWindow {
    /// In bytes: enough for 8 Gbit/s over the longest round trip that counts as near.
    private static let bytes: CInt = 208 << 10
    /// In microseconds.
    private static let nearRoundTrip: UInt32 = 200

    /// Fixes the window, if the server is near. Others keep what the kernel finds right.
    static func fixIfNear(_ socket: CInt) {
        var info = tcp_info()
        var length = socklen_t(MemoryLayout<tcp_info>.size)
        guard unsafe getsockopt(socket, CInt(IPPROTO_TCP), TCP_INFO, &info, &length) == 0,
            info.tcpi_state == UInt8(TCP_ESTABLISHED), info.tcpi_rtt > 0, info.tcpi_rtt <= nearRoundTrip
        else { return }
        var bytes = bytes
        let size = socklen_t(MemoryLayout<CInt>.size)
        // The kernel doubles it, for its own needs, and from then on changes neither of the two.
        guard unsafe setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &bytes, size) == 0 else { return }
        _ = unsafe setsockopt(socket, CInt(IPPROTO_TCP), TCP_WINDOW_CLAMP, &bytes, size)
    }
}
