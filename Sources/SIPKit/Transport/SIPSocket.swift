internal import Glibc

/// A system call on a socket failed, or the connection is unusable.
public enum SIPSocketError: Error, Sendable, Equatable, CustomStringConvertible {
    /// `code` is errno.
    case system(call: String, code: CInt)
    case unresolvable(String)
    /// The peer closed the connection.
    case ended
    /// The input is not SIP.
    case garbage(SIPParseError)
    /// The peer does not read.
    case stalled

    public var description: String {
        switch self {
        case .system(let call, let code): "\(call): \(String(cString: strerror(code)))"
        case .unresolvable(let name): "\(name) cannot be resolved"
        case .ended: "the peer closed the connection"
        case .garbage(let error): "not SIP: \(error)"
        case .stalled: "the peer does not read"
        }
    }
}

/// A connection to a SIP peer: a TCP stream, or a connected UDP socket. Never blocks.
///
/// The descriptor is closed with the object. Release it first if it was handed over to Nightbell.
public final class SIPSocket {
    public let descriptor: CInt
    public let transport: SIPTransport
    /// A TCP connection that is not yet made: wait until the descriptor is writable, then call `flush`.
    public private(set) var isConnecting: Bool
    private var parser: SIPStreamParser
    private var output: [UInt8] = []
    private static let outputLimit = 262_144
    /// The limit of reads in one call of `receive`, so that a flood cannot block other work.
    private static let readsPerCall = 64

    /// Takes over a connected non-blocking socket.
    public init(adopting descriptor: CInt, transport: SIPTransport, isConnecting: Bool = false) {
        self.descriptor = descriptor
        self.transport = transport
        self.isConnecting = isConnecting
        parser = SIPStreamParser()
        // The kernel notes when each packet came in; see `nextArrival`.
        var on: CInt = 1
        setsockopt(descriptor, SOL_SOCKET, timestampOption, &on, socklen_t(MemoryLayout<CInt>.size))
        if transport == .tcp {
            setsockopt(descriptor, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
        }
    }

    deinit { close(descriptor) }

    /// Begins a connection to a server.
    public static func connect(
        to address: SIPAddress, _ transport: SIPTransport
    ) throws(SIPSocketError) -> SIPSocket {
        let type = transport == .tcp ? SOCK_STREAM : SOCK_DGRAM
        let target = try ResolvedAddress(address, type)
        let flags = CInt(type.rawValue) | CInt(SOCK_NONBLOCK.rawValue) | CInt(SOCK_CLOEXEC.rawValue)
        let descriptor = socket(target.family, flags, 0)
        guard descriptor >= 0 else { throw .system(call: "socket", code: errno) }
        let result = target.withSockaddr { Glibc.connect(descriptor, $0, $1) }
        let code = errno
        guard result == 0 || code == EINPROGRESS else {
            close(descriptor)
            throw .system(call: "connect", code: code)
        }
        return SIPSocket(adopting: descriptor, transport: transport, isConnecting: result != 0)
    }

    /// When this connection is closed, its peer gets a reset instead of an orderly end.
    public func resetAtClose() {
        var never = linger(l_onoff: 1, l_linger: 0)
        setsockopt(descriptor, SOL_SOCKET, SO_LINGER, &never, socklen_t(MemoryLayout<linger>.size))
    }

    /// This end of the connection.
    public func localAddress() throws(SIPSocketError) -> SIPAddress {
        try SIPAddress(ofSocket: descriptor)
    }

    /// Something waits to be written: call `flush` when the descriptor is writable.
    public var wantsToWrite: Bool { isConnecting || !output.isEmpty }

    /// Part of a message has been read; the rest is still to come.
    public var hasPartialInput: Bool { parser.pendingBytes > 0 }

    /// Sends a message, or as much of it as goes now.
    public func send(_ message: SIPMessage) throws(SIPSocketError) {
        let bytes = message.serialized()
        guard transport == .tcp else {
            // A datagram that cannot go now is lost, like any other: it will be sent again.
            _ = bytes.withUnsafeBytes { Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL)) }
            return
        }
        guard output.count + bytes.count <= Self.outputLimit else { throw .stalled }
        output += bytes
        try flush()
    }

    /// Writes what waits.
    public func flush() throws(SIPSocketError) {
        if isConnecting {
            var code: CInt = 0
            var length = socklen_t(MemoryLayout<CInt>.size)
            getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &code, &length)
            guard code == 0 else { throw .system(call: "connect", code: code) }
            var state = pollfd(fd: descriptor, events: Int16(POLLOUT), revents: 0)
            guard poll(&state, 1, 0) == 1 else { return }
            isConnecting = false
        }
        while !output.isEmpty {
            let count = output.withUnsafeBytes {
                Glibc.send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
            }
            if count < 0 {
                if errno == EINTR { continue }
                if errno == EAGAIN { return }
                throw .system(call: "send", code: errno)
            }
            output.removeFirst(count)
        }
    }

    /// The result of one call of `receive`.
    public struct Reception: Sendable {
        public var messages: [SIPMessage] = []
        public var bytes = 0
        /// Nothing more will come.
        public var end: SIPSocketError?
        /// Datagrams that were not SIP.
        public var malformed = 0
    }

    /// Reads the waiting input up to a limit: a level-triggered poll reports the rest.
    public func receive() -> Reception {
        var reception = Reception()
        var buffer = [UInt8](repeating: 0, count: 65_536)
        for _ in 0..<Self.readsPerCall {
            let count = buffer.withUnsafeMutableBytes { recv(descriptor, $0.baseAddress, $0.count, 0) }
            if count < 0 {
                // An ICMP error for an earlier datagram does not end the connection: the server may come
                // back.
                if errno == EINTR || (transport == .udp && errno == ECONNREFUSED) { continue }
                if errno != EAGAIN { reception.end = .system(call: "recv", code: errno) }
                break
            }
            reception.bytes += count
            switch transport {
            case .udp:
                take(datagram: Array(buffer[..<count]), into: &reception)
            case .tcp:
                guard count > 0 else {
                    reception.end = .ended
                    return reception
                }
                parser.append(buffer[..<count])
                do throws(SIPParseError) {
                    while let message = try parser.next() { reception.messages.append(message) }
                } catch {
                    reception.end = .garbage(error)
                    return reception
                }
            }
        }
        return reception
    }

    private func take(datagram: [UInt8], into reception: inout Reception) {
        do throws(SIPParseError) {
            if let message = try SIPMessage(datagram: datagram) { reception.messages.append(message) }
        } catch {
            reception.malformed += 1
        }
    }

    /// When the next unread byte came in, by the kernel's wall clock, in nanoseconds since 1970. Nil: nothing
    /// is there to read. It is looked at, not taken.
    ///
    /// For TCP it is the time of the segment that holds the byte; segments that the kernel has merged have
    /// the time of the last one.
    public func nextArrival() -> Int64? {
        var byte: UInt8 = 0
        return withUnsafeMutablePointer(to: &byte) { byte in
            var piece = iovec(iov_base: byte, iov_len: 1)
            // Room for one control message: its header, and a time stamp.
            var control = (cmsghdr(), timespec(), timespec())
            return withUnsafeMutableBytes(of: &control) { control in
                withUnsafeMutablePointer(to: &piece) { piece in
                    var header = msghdr()
                    header.msg_iov = piece
                    header.msg_iovlen = 1
                    header.msg_control = control.baseAddress
                    header.msg_controllen = control.count
                    let flags = CInt(MSG_PEEK) | CInt(MSG_DONTWAIT)
                    guard recvmsg(descriptor, &header, flags) >= 0, header.msg_controllen > 0 else {
                        return nil
                    }
                    let kind = control.load(as: cmsghdr.self)
                    guard kind.cmsg_level == SOL_SOCKET, kind.cmsg_type == timestampOption else { return nil }
                    let time = control.load(fromByteOffset: MemoryLayout<cmsghdr>.size, as: timespec.self)
                    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
                }
            }
        }
    }
}

/// The control message has the number of the option.
private let timestampOption = SO_TIMESTAMPNS
