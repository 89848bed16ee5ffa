import CFloors
import Glibc
import LinuxSystem

/// The transport of packets.
package enum Transport: String, CaseIterable, Sendable {
    case unix, tcp, udp

    var isStream: Bool { self != .udp }

    func makeSocket() throws(LoadError) -> OwnedDescriptor {
        let type = isStream ? SOCK_STREAM : SOCK_DGRAM
        let family = self == .unix ? AF_UNIX : AF_INET
        let descriptor = socket(family, CInt(type.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw LoadError(failed: "socket") }
        return OwnedDescriptor(adopting: descriptor)
    }

    /// The socket address of an endpoint: a path, or a port of 127.0.0.1.
    fileprivate func withAddress<Result>(
        _ endpoint: String, _ body: (UnsafePointer<sockaddr>, socklen_t) throws(LoadError) -> Result
    ) throws(LoadError) -> Result {
        var storage = sockaddr_storage()
        let length: Int
        switch self {
        case .unix:
            guard endpoint.utf8.count < 108 else {
                throw .missing("the path \(endpoint) is too long for a socket")
            }
            length = MemoryLayout<sockaddr_un>.size
            withUnsafeMutableBytes(of: &storage) { bytes in
                bytes.storeBytes(of: sa_family_t(AF_UNIX), as: sa_family_t.self)
                for (index, byte) in endpoint.utf8.enumerated() { bytes[2 + index] = byte }
            }
        case .tcp, .udp:
            length = MemoryLayout<sockaddr_in>.size
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = in_port_t(UInt16(endpoint) ?? 0).bigEndian
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            withUnsafeMutableBytes(of: &storage) { $0.storeBytes(of: address, as: sockaddr_in.self) }
        }
        return try withUnsafePointer(to: storage) { storage throws(LoadError) in
            let address = UnsafeRawPointer(storage).assumingMemoryBound(to: sockaddr.self)
            return try body(address, socklen_t(length))
        }
    }

    /// Connects a socket of this transport.
    func connect(_ socket: CInt, to endpoint: String) throws(LoadError) {
        while true {
            let result = try withAddress(endpoint) { Glibc.connect(socket, $0, $1) }
            if result == 0 { return }
            // The accept queue is full for the moment.
            guard errno == EAGAIN || errno == EINTR else {
                throw LoadError(failed: "connect to \(endpoint)")
            }
            try pause(nanoseconds: 1_000_000)
        }
    }

    /// A sleeper's socket, connected to the callers, with the handshake sent.
    func connect(to endpoint: String, as index: Int) throws(LoadError) -> CInt {
        let socket = try makeSocket()
        let rawValue = socket.rawValue
        try connect(rawValue, to: endpoint)
        var handshake = UInt64(index)
        guard
            send(rawValue, &handshake, PendingHandshakes.length, CInt(MSG_NOSIGNAL))
                == PendingHandshakes.length
        else {
            throw LoadError(failed: "send")
        }
        return socket.take()
    }

    /// Two stream sockets connected to each other, or two datagram sockets.
    func pair() throws(LoadError) -> (CInt, CInt) {
        if self == .unix {
            var ends: [CInt] = [-1, -1]
            guard socketpair(AF_UNIX, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0, &ends) == 0
            else {
                throw LoadError(failed: "socketpair")
            }
            return (ends[0], ends[1])
        }
        let listener = try makeSocket()
        let endpoint = try bind(listener.rawValue, "0")
        let first = try makeSocket()
        if isStream { guard listen(listener.rawValue, 1) == 0 else { throw LoadError(failed: "listen") } }
        let rawValue = first.rawValue
        guard try withAddress(endpoint, { Glibc.connect(rawValue, $0, $1) }) == 0 else {
            throw LoadError(failed: "connect")
        }
        guard isStream else { return (first.take(), listener.take()) }
        let second = cfloors_accept(listener.rawValue)
        guard second >= 0 else { throw LoadError(failed: "accept") }
        return (first.take(), second)
    }

    /// A listening socket, for streams.
    func makeListener(in directory: String) throws(LoadError) -> StreamListener {
        let listener = try makeSocket()
        let endpoint = try bind(listener.rawValue, self == .unix ? "\(directory)/streams" : "0")
        guard listen(listener.rawValue, 4_096) == 0 else { throw LoadError(failed: "listen") }
        if self == .unix { chmod(endpoint, 0o777) }
        guard fcntl(listener.rawValue, F_SETFL, O_NONBLOCK) == 0 else { throw LoadError(failed: "fcntl") }
        return StreamListener(socket: listener, endpoint: endpoint)
    }

    /// Returns the endpoint that the socket is reached by.
    func bind(_ descriptor: CInt, _ endpoint: String) throws(LoadError) -> String {
        guard try withAddress(endpoint, { Glibc.bind(descriptor, $0, $1) }) == 0 else {
            throw LoadError(failed: "bind \(endpoint)")
        }
        guard self != .unix else { return endpoint }
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutableBytes(of: &address) {
            getsockname(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        guard result == 0 else { throw LoadError(failed: "getsockname") }
        return String(UInt16(bigEndian: address.sin_port))
    }
}

/// A listening socket for stream clients.
struct StreamListener: ~Copyable {
    private let socket: OwnedDescriptor
    let endpoint: String

    fileprivate init(socket: consuming OwnedDescriptor, endpoint: String) {
        self.socket = socket
        self.endpoint = endpoint
    }

    /// The next pending connection, if any.
    func accept() throws(LoadError) -> CInt? {
        let accepted = cfloors_accept(socket.rawValue)
        if accepted >= 0 { return accepted }
        guard errno == EAGAIN || errno == EINTR else { throw LoadError(failed: "accept") }
        return nil
    }
}
