import Glibc

/// A socket option with an integer value.
package struct SocketOption: Sendable {
    private let level: CInt
    private let name: CInt

    private init(_ level: CInt, _ name: CInt) {
        self.level = level
        self.name = name
    }

    package static let sendBuffer = SocketOption(SOL_SOCKET, SO_SNDBUF)
    package static let receiveBuffer = SocketOption(SOL_SOCKET, SO_RCVBUF)
    package static let lowWaterMark = SocketOption(SOL_SOCKET, SO_RCVLOWAT)
    package static let peekOffset = SocketOption(SOL_SOCKET, SO_PEEK_OFF)
    /// `UDP_GRO` of linux/udp.h.
    package static let joinsDatagrams = SocketOption(CInt(IPPROTO_UDP), 104)
    package static let keepAlive = SocketOption(SOL_SOCKET, SO_KEEPALIVE)
    package static let keepIdle = SocketOption(CInt(IPPROTO_TCP), TCP_KEEPIDLE)
    package static let keepInterval = SocketOption(CInt(IPPROTO_TCP), TCP_KEEPINTVL)
    package static let keepCount = SocketOption(CInt(IPPROTO_TCP), TCP_KEEPCNT)
    package static let userTimeout = SocketOption(CInt(IPPROTO_TCP), TCP_USER_TIMEOUT)

    /// In seconds, of a listening socket: it reports a connection with its first byte, or when it has said
    /// nothing for so long.
    package static let deferAccept = SocketOption(CInt(IPPROTO_TCP), TCP_DEFER_ACCEPT)
    package static let isListening = SocketOption(SOL_SOCKET, SO_ACCEPTCONN)
    /// Of a Unix socket: each packet comes with the credentials of its sender.
    static let namesSender = SocketOption(SOL_SOCKET, SO_PASSCRED)
    package static let `protocol` = SocketOption(SOL_SOCKET, SO_PROTOCOL)

    package func value(of descriptor: CInt) -> CInt? {
        var value: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        guard unsafe getsockopt(descriptor, level, name, &value, &length) == 0 else { return nil }
        return value
    }

    @discardableResult
    package func set(_ value: CInt, on descriptor: CInt) -> Bool {
        var value = value
        return unsafe setsockopt(descriptor, level, name, &value, socklen_t(MemoryLayout<CInt>.size)) == 0
    }
}

/// The kernel's keep-alive settings of a TCP connection.
package struct TCPKeepAlive: Sendable, Hashable {
    package var isOn: Bool
    package var idleSeconds: Int32
    package var intervalSeconds: Int32
    package var probes: Int32
    package var userTimeoutMilliseconds: Int32

    package init(
        isOn: Bool, idleSeconds: Int32, intervalSeconds: Int32, probes: Int32, userTimeoutMilliseconds: Int32
    ) {
        self.isOn = isOn
        self.idleSeconds = idleSeconds
        self.intervalSeconds = intervalSeconds
        self.probes = probes
        self.userTimeoutMilliseconds = userTimeoutMilliseconds
    }

    /// The current settings; nil: it is no TCP connection.
    package init?(of descriptor: CInt) {
        guard let isOn = SocketOption.keepAlive.value(of: descriptor),
            let idle = SocketOption.keepIdle.value(of: descriptor),
            let interval = SocketOption.keepInterval.value(of: descriptor),
            let count = SocketOption.keepCount.value(of: descriptor),
            let timeout = SocketOption.userTimeout.value(of: descriptor)
        else { return nil }
        self.init(
            isOn: isOn != 0, idleSeconds: idle, intervalSeconds: interval, probes: count,
            userTimeoutMilliseconds: timeout)
    }

    package func apply(to descriptor: CInt) {
        // Options that fail are skipped: a connection that has ended accepts some and refuses others.
        SocketOption.keepIdle.set(idleSeconds, on: descriptor)
        SocketOption.keepInterval.set(intervalSeconds, on: descriptor)
        SocketOption.keepCount.set(probes, on: descriptor)
        SocketOption.userTimeout.set(userTimeoutMilliseconds, on: descriptor)
        // Last: it starts the timer.
        SocketOption.keepAlive.set(isOn ? 1 : 0, on: descriptor)
    }
}

/// The kernel's statistics of a socket's memory (`SO_MEMINFO`), without side effects.
package enum SocketMemory {
    /// The datagrams dropped since the socket was made, most for lack of buffer space; nil: not available.
    package static func drops(of descriptor: CInt) -> UInt32? {
        let (memoryInfo, dropsIndex): (CInt, Int) = (55, 8)
        var info = [UInt32](repeating: 0, count: dropsIndex + 1)
        var length = socklen_t(info.count * MemoryLayout<UInt32>.stride)
        guard unsafe getsockopt(descriptor, SOL_SOCKET, memoryInfo, &info, &length) == 0,
            Int(length) == info.count * MemoryLayout<UInt32>.stride
        else { return nil }
        return info[dropsIndex]
    }
}

/// The state of a connection according to TCP.
package enum TCPState {
    /// Whether the kernel closed a connection because data or its own probes went unanswered. Reading it does
    /// not consume the pending error.
    package static func wasGivenUp(_ descriptor: CInt) -> Bool {
        // The beginning of `struct tcp_info`: state, congestion state, retransmissions, probes.
        var info = [UInt8](repeating: 0, count: 4)
        var length = socklen_t(info.count)
        guard unsafe getsockopt(descriptor, CInt(IPPROTO_TCP), TCP_INFO, &info, &length) == 0, length == 4
        else { return false }
        let closed: UInt8 = 7
        return info[0] == closed && (info[2] > 0 || info[3] > 0)
    }

    /// Whether the kernel encrypts and decrypts (kTLS), in both directions.
    package static func hasKernelTLS(_ descriptor: CInt) -> Bool {
        let tls = Array("tls".utf8)
        let (upperLayer, tlsLevel, transmit, receive): (CInt, CInt, CInt, CInt) = (31, 282, 1, 2)
        var name = [UInt8](repeating: 0, count: 16)
        var length = socklen_t(name.count)
        guard unsafe getsockopt(descriptor, CInt(IPPROTO_TCP), upperLayer, &name, &length) == 0,
            name.starts(with: tls), name[tls.count] == 0
        else { return false }
        return [transmit, receive].allSatisfy { direction in
            // Version and cipher, which are present once the keys are.
            var info: [UInt16] = [0, 0]
            var length = socklen_t(4)
            return unsafe getsockopt(descriptor, tlsLevel, direction, &info, &length) == 0
        }
    }
}
