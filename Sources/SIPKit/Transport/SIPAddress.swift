internal import Glibc

/// A host and a port.
public struct SIPAddress: Sendable, Hashable, CustomStringConvertible {
    /// A name or an address; an IPv6 address stands in brackets.
    public var host: String
    public var port: UInt16

    public init(host: String, port: UInt16) {
        self.host = host
        self.port = port
    }

    /// Reads `HOST`, `HOST:PORT`, or `[IPv6]:PORT`. The port of SIP is 5060.
    public init(parsing text: String) throws(SIPParseError) {
        let (host, port) = try parseHostPort(text)
        self.init(host: host, port: port ?? 5060)
    }

    public var description: String { "\(host):\(port)" }

    /// The address that a socket is bound to.
    public init(ofSocket descriptor: CInt) throws(SIPSocketError) {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = withUnsafeMutablePointer(to: &storage) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { getsockname(descriptor, $0, &length) }
        }
        guard result == 0 else { throw .system(call: "getsockname", code: errno) }
        try self.init(storage, length)
    }

    init(_ storage: sockaddr_storage, _ length: socklen_t) throws(SIPSocketError) {
        var storage = storage
        var host = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        var service = [CChar](repeating: 0, count: 16)
        let result = withUnsafePointer(to: &storage) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                getnameinfo(
                    $0, length, &host, socklen_t(host.count), &service, socklen_t(service.count),
                    NI_NUMERICHOST | NI_NUMERICSERV)
            }
        }
        guard result == 0, let port = UInt16(text(service)) else { throw .unresolvable("the peer's address") }
        self.init(host: storage.ss_family == AF_INET6 ? "[\(text(host))]" : text(host), port: port)
    }
}

private func text(_ characters: [CChar]) -> String {
    String(decoding: characters.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
}

/// An address as the kernel wants it.
struct ResolvedAddress {
    private var storage = sockaddr_storage()
    private var length: socklen_t = 0

    /// Names are looked up, which may block.
    init(_ address: SIPAddress, _ type: __socket_type) throws(SIPSocketError) {
        var hints = addrinfo()
        hints.ai_socktype = CInt(type.rawValue)
        var list: UnsafeMutablePointer<addrinfo>?
        let host = address.host.hasPrefix("[") ? String(address.host.dropFirst().dropLast()) : address.host
        guard getaddrinfo(host, String(address.port), &hints, &list) == 0, let first = list else {
            throw .unresolvable(address.host)
        }
        defer { freeaddrinfo(list) }
        length = first.pointee.ai_addrlen
        memcpy(&storage, first.pointee.ai_addr, Int(length))
    }

    var family: CInt { CInt(storage.ss_family) }

    func withSockaddr<Result>(_ body: (UnsafePointer<sockaddr>, socklen_t) -> Result) -> Result {
        withUnsafePointer(to: storage) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { body($0, length) }
        }
    }
}
