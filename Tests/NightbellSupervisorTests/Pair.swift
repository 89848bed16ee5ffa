import Foundation

#if canImport(Glibc)
    import Glibc
#endif

/// Two connected sockets: `near` is the one that a client hands over, `far` the peer's.
final class Pair {
    private(set) var near: Int32
    private(set) var far: Int32

    private init(near: Int32, far: Int32) {
        self.near = near
        self.far = far
    }

    /// Children of other tests must not have copies: what we close would stay open.
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

    /// What can be read on the near side now, without waiting.
    func received() -> String {
        var buffer = [UInt8](repeating: 0, count: 4_096)
        let count = recv(near, &buffer, buffer.count, Int32(MSG_DONTWAIT))
        return String(decoding: buffer[..<max(0, count)], as: UTF8.self)
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
