import EdgeTestSupport
import Glibc
import NightbellParking
import Testing

/// Two connected sockets: `near` is parked, `far` the peer's.
final class Pair: Sendable {
    let near: CInt
    let far: CInt

    private init(near: CInt, far: CInt) {
        self.near = near
        self.far = far
    }

    deinit { close(far) }

    static func unix(_ type: __socket_type = SOCK_STREAM) throws -> Pair {
        var ends: [CInt] = [-1, -1]
        let kind = CInt(type.rawValue | SOCK_CLOEXEC.rawValue)
        try #require(socketpair(AF_UNIX, kind, 0, &ends) == 0)
        return Pair(near: ends[0], far: ends[1])
    }

    static func tcp() throws -> Pair {
        let kind = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        let listener = socket(AF_INET, kind, 0)
        defer { close(listener) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let far = socket(AF_INET, kind, 0)
        let isConnected = withUnsafeMutableBytes(of: &address) { bytes in
            let pointer = bytes.assumingMemoryBound(to: sockaddr.self).baseAddress
            return bind(listener, pointer, length) == 0 && listen(listener, 1) == 0
                && getsockname(listener, pointer, &length) == 0 && connect(far, pointer, length) == 0
        }
        try #require(isConnected)
        return Pair(near: accept(listener, nil, nil), far: far)
    }

    func say(_ text: String) throws {
        try say(Array(text.utf8))
    }

    func say(_ bytes: [UInt8]) throws {
        try #require(send(far, bytes, bytes.count, CInt(MSG_NOSIGNAL)) == bytes.count)
    }

    /// Waits for data at the peer, and returns it.
    func hear(_ count: Int) throws -> [UInt8] {
        try read(count, from: far)
    }

    /// The peer resets the connection.
    func reset() throws {
        var linger = linger(l_onoff: 1, l_linger: 0)
        try #require(
            setsockopt(far, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout<linger>.size)) == 0)
        // The number stays open, for `deinit`.
        let other = open("/dev/null", O_RDONLY | O_CLOEXEC)
        try #require(dup2(other, far) == far)
        close(other)
    }
}

func read(_ count: Int, from descriptor: CInt) throws -> [UInt8] {
    var bytes = [UInt8](repeating: 0, count: count)
    var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
    try #require(poll(&entry, 1, 10_000) == 1, "nothing to read")
    let length = recv(descriptor, &bytes, count, CInt(MSG_WAITALL))
    return Array(bytes.prefix(max(0, length)))
}

func isOpen(_ descriptor: CInt) -> Bool { fcntl(descriptor, F_GETFD) >= 0 }

/// A supervisor in the test's own loop: it runs only in `turn`.
final class Hosted {
    let supervisor: EmbeddedSupervisor
    private let told: Told

    private final class Told: @unchecked Sendable {
        // Sendable: events are delivered by `serve`, on the test's thread.
        var events: [ParkedEvent] = []
    }

    init(_ adjust: (inout EmbeddedSupervisor.Configuration) -> Void = { _ in }) throws {
        var configuration = EmbeddedSupervisor.Configuration()
        configuration.service = .host
        adjust(&configuration)
        let told = Told()
        supervisor = try EmbeddedSupervisor(configuration) { told.events += $0 }
        self.told = told
    }

    /// Serves until there is an event, as a host's loop would, and returns it.
    func next(within milliseconds: CInt = 10_000) throws -> [ParkedEvent] {
        let found = try eventually(within: Int64(milliseconds)) {
            var entry = pollfd(fd: supervisor.descriptor, events: CShort(POLLIN), revents: 0)
            try #require(poll(&entry, 1, 100) >= 0)
            supervisor.serve()
            return !told.events.isEmpty
        }
        try #require(found, "nothing was told")
        defer { told.events = [] }
        return told.events
    }

    /// Whether there is no event and no pending work.
    func isQuiet() -> Bool {
        // These turns handle everything that the kernel has reported; a spinning loop never gets quiet.
        for _ in 0..<4 { supervisor.serve() }
        var entry = pollfd(fd: supervisor.descriptor, events: CShort(POLLIN), revents: 0)
        return poll(&entry, 1, 0) == 0 && told.events.isEmpty
    }
}
