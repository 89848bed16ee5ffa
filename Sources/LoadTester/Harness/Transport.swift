import CFloors
import Descriptors
import Glibc

/// What packets travel on.
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

    /// Where callers are to be found: a path, or a port of 127.0.0.1.
    fileprivate func withAddress<Result>(
        _ place: String, _ body: (UnsafePointer<sockaddr>, socklen_t) throws(LoadError) -> Result
    ) throws(LoadError) -> Result {
        var storage = sockaddr_storage()
        let length: Int
        switch self {
        case .unix:
            guard place.utf8.count < 108 else { throw .missing("the path \(place) is too long for a socket") }
            length = MemoryLayout<sockaddr_un>.size
            withUnsafeMutableBytes(of: &storage) { bytes in
                bytes.storeBytes(of: sa_family_t(AF_UNIX), as: sa_family_t.self)
                for (index, byte) in place.utf8.enumerated() { bytes[2 + index] = byte }
            }
        case .tcp, .udp:
            length = MemoryLayout<sockaddr_in>.size
            var address = sockaddr_in()
            address.sin_family = sa_family_t(AF_INET)
            address.sin_port = in_port_t(UInt16(place) ?? 0).bigEndian
            address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
            withUnsafeMutableBytes(of: &storage) { $0.storeBytes(of: address, as: sockaddr_in.self) }
        }
        return try withUnsafePointer(to: storage) { storage throws(LoadError) in
            let address = UnsafeRawPointer(storage).assumingMemoryBound(to: sockaddr.self)
            return try body(address, socklen_t(length))
        }
    }

    /// A sleeper's socket, connected to the callers, who are told whose it is.
    func connect(to place: String, as index: Int) throws(LoadError) -> CInt {
        let socket = try makeSocket()
        let rawValue = socket.rawValue
        while true {
            let result = try withAddress(place) { Glibc.connect(rawValue, $0, $1) }
            if result == 0 { break }
            // A queue that is full for the moment.
            guard errno == EAGAIN || errno == EINTR else {
                throw LoadError(failed: "connect to the callers at \(place)")
            }
            try pause(nanoseconds: 1_000_000)
        }
        var greeting = UInt64(index)
        guard send(rawValue, &greeting, Greetings.length, CInt(MSG_NOSIGNAL)) == Greetings.length else {
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
        let place = try bind(listener.rawValue, "0")
        let first = try makeSocket()
        if isStream { guard listen(listener.rawValue, 1) == 0 else { throw LoadError(failed: "listen") } }
        let rawValue = first.rawValue
        guard try withAddress(place, { Glibc.connect(rawValue, $0, $1) }) == 0 else {
            throw LoadError(failed: "connect")
        }
        guard isStream else { return (first.take(), listener.take()) }
        let second = cfloors_accept(listener.rawValue)
        guard second >= 0 else { throw LoadError(failed: "accept") }
        return (first.take(), second)
    }

    /// A socket to connect to, for streams.
    func makeListener(in directory: String) throws(LoadError) -> StreamListener {
        let listener = try makeSocket()
        let place = try bind(listener.rawValue, self == .unix ? "\(directory)/streams" : "0")
        guard listen(listener.rawValue, 4_096) == 0 else { throw LoadError(failed: "listen") }
        if self == .unix { chmod(place, 0o777) }
        guard fcntl(listener.rawValue, F_SETFL, O_NONBLOCK) == 0 else { throw LoadError(failed: "fcntl") }
        return StreamListener(socket: listener, place: place)
    }

    /// Returns the place by which it is reached.
    func bind(_ descriptor: CInt, _ place: String) throws(LoadError) -> String {
        guard try withAddress(place, { Glibc.bind(descriptor, $0, $1) }) == 0 else {
            throw LoadError(failed: "bind \(place)")
        }
        guard self != .unix else { return place }
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafeMutableBytes(of: &address) {
            getsockname(descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), &length)
        }
        guard result == 0 else { throw LoadError(failed: "getsockname") }
        return String(UInt16(bigEndian: address.sin_port))
    }
}

/// A socket that clients of their own accord connect to.
struct StreamListener: ~Copyable {
    private let socket: OwnedDescriptor
    let place: String

    fileprivate init(socket: consuming OwnedDescriptor, place: String) {
        self.socket = socket
        self.place = place
    }

    /// Whoever has connected to it, if anybody has.
    func accept() throws(LoadError) -> CInt? {
        let accepted = cfloors_accept(socket.rawValue)
        if accepted >= 0 { return accepted }
        guard errno == EAGAIN || errno == EINTR else { throw LoadError(failed: "accept") }
        return nil
    }
}
