import Foundation
import LinuxSystem

#if canImport(Glibc)
    import Glibc
#endif

/// Two connected sockets: a client hands over `near`, and the peer has `far`.
final class Pair {
    private(set) var near: Int32
    private(set) var far: Int32

    private init(near: Int32, far: Int32) {
        self.near = near
        self.far = far
    }

    /// Children of other tests must not have copies: a socket that we close would stay open.
    private static func kind(_ type: __socket_type) -> Int32 { Int32(type.rawValue | SOCK_CLOEXEC.rawValue) }

    static func unix(_ type: __socket_type = SOCK_STREAM) throws -> Pair {
        var ends: [Int32] = [-1, -1]
        guard socketpair(AF_UNIX, kind(type), 0, &ends) == 0 else {
            throw failure("socketpair")
        }
        return Pair(near: ends[0], far: ends[1])
    }

    static func pipe() throws -> Pair {
        var ends: [Int32] = [-1, -1]
        guard Glibc.pipe(&ends) == 0 else { throw failure("pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        return Pair(near: ends[0], far: ends[1])
    }

    static func tcp() throws -> Pair {
        let (listener, address) = try Pair.listener()
        defer { close(listener) }
        let near = socket(AF_INET, kind(SOCK_STREAM), 0)
        guard withAddress(address, { connect(near, $0, $1) }) == 0 else { throw failure("connect") }
        let far = accept(listener, nil, nil)
        _ = fcntl(far, F_SETFD, FD_CLOEXEC)
        return Pair(near: near, far: far)
    }

    /// `near` is bound, and connected to `far` if asked for; `far` is connected to `near`.
    static func udp(connected: Bool) throws -> Pair {
        let (near, nearAddress) = try bound(SOCK_DGRAM)
        let (far, farAddress) = try bound(SOCK_DGRAM)
        guard withAddress(nearAddress, { connect(far, $0, $1) }) == 0 else { throw failure("connect") }
        if connected {
            guard withAddress(farAddress, { connect(near, $0, $1) }) == 0 else { throw failure("connect") }
        }
        return Pair(near: near, far: far)
    }

    /// `near` is bound to one address, and `far` is connected to the same port of another.
    static func udp(bound: String, asked: String) throws -> Pair {
        let isV6 = bound.contains(":")
        let near = socket(isV6 ? AF_INET6 : AF_INET, kind(SOCK_DGRAM), 0)
        guard try withAddress(bound, port: 0, { bind(near, $0, $1) }) == 0 else { throw failure("bind") }
        let far = socket(asked.contains(":") ? AF_INET6 : AF_INET, kind(SOCK_DGRAM), 0)
        let pair = Pair(near: near, far: far)
        let connected = try withAddress(asked, port: try port(of: near)) { connect(far, $0, $1) }
        guard connected == 0 else { throw failure("connect") }
        return pair
    }

    /// From now on packets go to that socket of the loopback interface.
    func pointFar(at socket: Int32) throws {
        let port = try Self.port(of: socket)
        let connected = try Self.withAddress("127.0.0.1", port: port) { connect(far, $0, $1) }
        guard connected == 0 else { throw Self.failure("connect") }
    }

    func connectNear() throws {
        let port = try Self.port(of: far)
        let connected = try Self.withAddress("127.0.0.1", port: port) { connect(near, $0, $1) }
        guard connected == 0 else { throw Self.failure("connect") }
    }

    private static func port(of socket: Int32) throws -> in_port_t {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let named = withUnsafeMutableBytes(of: &storage) {
            getsockname(socket, $0.assumingMemoryBound(to: sockaddr.self).baseAddress, &length)
        }
        guard named == 0 else { throw failure("getsockname") }
        // The port lies in the same place for both families.
        return withUnsafeBytes(of: storage) { $0.loadUnaligned(as: sockaddr_in.self).sin_port }
    }

    /// - Parameter port: in network order.
    private static func withAddress(
        _ text: String, port: in_port_t, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) throws -> Int32 {
        guard text.contains(":") else {
            var address = sockaddr_in()
            (address.sin_family, address.sin_port) = (sa_family_t(AF_INET), port)
            guard inet_pton(AF_INET, text, &address.sin_addr) == 1 else { throw failure("inet_pton") }
            return withAddress(address, body)
        }
        var address = sockaddr_in6()
        (address.sin6_family, address.sin6_port) = (sa_family_t(AF_INET6), port)
        guard inet_pton(AF_INET6, text, &address.sin6_addr) == 1 else { throw failure("inet_pton") }
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in6>.size))
            }
        }
    }

    static func listener() throws -> (descriptor: Int32, address: sockaddr_in) {
        let (descriptor, address) = try bound(SOCK_STREAM)
        guard listen(descriptor, 16) == 0 else { throw failure("listen") }
        return (descriptor, address)
    }

    private static func bound(_ type: __socket_type) throws -> (descriptor: Int32, address: sockaddr_in) {
        let descriptor = socket(AF_INET, kind(type), 0)
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        guard withAddress(address, { bind(descriptor, $0, $1) }) == 0 else { throw failure("bind") }
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let named = withUnsafeMutablePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
        }
        guard named == 0 else { throw failure("getsockname") }
        return (descriptor, address)
    }

    static func withAddress(
        _ address: sockaddr_in, _ body: (UnsafePointer<sockaddr>, socklen_t) -> Int32
    ) -> Int32 {
        var address = address
        return withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                body($0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
    }

    func send(_ text: String) throws {
        guard write(far, text, text.utf8.count) == text.utf8.count else { throw Self.failure("write") }
    }

    /// All that can be read on the near side now, without waiting.
    func received() -> String {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = recv(near, &buffer, buffer.count, Int32(MSG_DONTWAIT))
        return String(decoding: buffer[..<max(0, count)], as: UTF8.self)
    }

    /// From now on the last close of `near`, a TCP socket, waits up to this long for the peer, which does not
    /// read.
    func fillAndLinger(seconds: Int32 = 60) throws {
        // With little memory.
        SocketOption.receiveBuffer.set(1, on: far)
        SocketOption.sendBuffer.set(1, on: near)
        // More than the buffers hold.
        let chunk = [UInt8](repeating: 0, count: 65_536)
        while Glibc.send(near, chunk, chunk.count, Int32(MSG_DONTWAIT)) > 0 {}
        var linger = linger(l_onoff: 1, l_linger: seconds)
        let size = socklen_t(MemoryLayout<Glibc.linger>.size)
        guard setsockopt(near, SOL_SOCKET, SO_LINGER, &linger, size) == 0 else {
            throw Self.failure("setsockopt")
        }
    }

    func closeNear() {
        guard near >= 0 else { return }
        close(near)
        near = -1
    }

    func closeFar() {
        guard far >= 0 else { return }
        close(far)
        far = -1
    }

    /// Closes the peer's end so that the near one is reset.
    func reset() {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(far, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<Glibc.linger>.size))
        closeFar()
    }

    static func failure(_ call: String) -> TestFailure {
        TestFailure("\(call): errno \(errno)")
    }

    deinit {
        closeFar()
        closeNear()
    }
}
