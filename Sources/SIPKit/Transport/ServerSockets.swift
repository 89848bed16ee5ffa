internal import Glibc

/// A socket on which TCP connections come in.
public final class SIPListener {
    public let descriptor: CInt

    /// With port 0 the kernel chooses one; see `localAddress`.
    public init(_ address: SIPAddress) throws(SIPSocketError) {
        descriptor = try boundSocket(address, SOCK_STREAM)
        guard listen(descriptor, 128) == 0 else {
            let code = errno
            close(descriptor)
            throw .system(call: "listen", code: code)
        }
    }

    deinit { close(descriptor) }

    public func localAddress() throws(SIPSocketError) -> SIPAddress {
        try SIPAddress(ofSocket: descriptor)
    }

    /// The next connection; nil when none waits.
    public func accept() throws(SIPSocketError) -> SIPSocket? {
        while true {
            let connection = Glibc.accept(descriptor, nil, nil)
            if connection >= 0 {
                _ = fcntl(connection, F_SETFD, FD_CLOEXEC)
                _ = fcntl(connection, F_SETFL, O_NONBLOCK)
                return SIPSocket(adopting: connection, transport: .tcp)
            }
            switch errno {
            case EINTR, ECONNABORTED: continue
            case EAGAIN: return nil
            default: throw .system(call: "accept", code: errno)
            }
        }
    }
}

/// A socket that receives datagrams from any peer.
public final class SIPDatagramSocket {
    public let descriptor: CInt
    private var resolved: [SIPAddress: ResolvedAddress] = [:]
    private static let resolvedLimit = 10_000

    /// With port 0 the kernel chooses one; see `localAddress`.
    public init(_ address: SIPAddress) throws(SIPSocketError) {
        descriptor = try boundSocket(address, SOCK_DGRAM)
        // Room for a burst of calls.
        var size: CInt = 1_048_576
        setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &size, socklen_t(MemoryLayout<CInt>.size))
    }

    deinit { close(descriptor) }

    public func localAddress() throws(SIPSocketError) -> SIPAddress {
        try SIPAddress(ofSocket: descriptor)
    }

    /// The waiting messages with their senders, at most 64. Datagrams that are not SIP are dropped.
    public func receive() -> [(SIPMessage, SIPAddress)] {
        var result: [(SIPMessage, SIPAddress)] = []
        var buffer = [UInt8](repeating: 0, count: 65_536)
        for _ in 0..<64 {
            var storage = sockaddr_storage()
            var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
            let count = buffer.withUnsafeMutableBytes { bytes in
                withUnsafeMutablePointer(to: &storage) {
                    $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                        recvfrom(descriptor, bytes.baseAddress, bytes.count, 0, $0, &length)
                    }
                }
            }
            if count < 0 {
                if errno == EINTR || errno == ECONNREFUSED { continue }
                break
            }
            if let sender = try? SIPAddress(storage, length),
                let message = try? SIPMessage(datagram: Array(buffer[..<count]))
            {
                result.append((message, sender))
            }
        }
        return result
    }

    /// A datagram that cannot go is lost, like any other.
    public func send(_ message: SIPMessage, to address: SIPAddress) {
        if resolved[address] == nil {
            if resolved.count >= Self.resolvedLimit { resolved.removeAll() }
            resolved[address] = try? ResolvedAddress(address, SOCK_DGRAM)
        }
        let bytes = message.serialized()
        _ = resolved[address]?.withSockaddr { target, length in
            bytes.withUnsafeBytes {
                sendto(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL), target, length)
            }
        }
    }
}

/// TCP and UDP on the same port, as SIP servers have it.
public struct SIPServerSockets {
    public let listener: SIPListener
    public let datagrams: SIPDatagramSocket
    public let port: UInt16

    /// With port 0 the kernel chooses one that is free for TCP; if it is not for UDP, another is tried.
    public init(host: String, port: UInt16 = 0) throws(SIPSocketError) {
        var attempts = port == 0 ? 20 : 1
        while true {
            attempts -= 1
            let listener = try SIPListener(SIPAddress(host: host, port: port))
            let chosen = try listener.localAddress().port
            do throws(SIPSocketError) {
                datagrams = try SIPDatagramSocket(SIPAddress(host: host, port: chosen))
                self.listener = listener
                self.port = chosen
                return
            } catch {
                guard case .system(_, EADDRINUSE) = error, attempts > 0 else { throw error }
            }
        }
    }
}

private func boundSocket(_ address: SIPAddress, _ type: __socket_type) throws(SIPSocketError) -> CInt {
    let own = try ResolvedAddress(address, type)
    let flags = CInt(type.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
    let descriptor = socket(own.family, flags, 0)
    guard descriptor >= 0 else { throw .system(call: "socket", code: errno) }
    var on: CInt = 1
    if type == SOCK_STREAM {
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<CInt>.size))
    }
    guard own.withSockaddr({ bind(descriptor, $0, $1) }) == 0 else {
        let code = errno
        close(descriptor)
        throw .system(call: "bind \(address)", code: code)
    }
    return descriptor
}
