import CLinux
import Glibc

/// Formats socket addresses.
enum SocketAddressText {
    static func local(of descriptor: CInt) -> String? {
        unsafe text { unsafe getsockname(descriptor, $0, $1) }
    }

    static func peer(of descriptor: CInt) -> String? {
        unsafe text { unsafe getpeername(descriptor, $0, $1) }
    }

    static func hasPeer(_ descriptor: CInt) -> Bool {
        var storage = sockaddr_storage()
        return unsafe fill(&storage) { unsafe getpeername(descriptor, $0, $1) } != nil
    }

    private typealias Source = (UnsafeMutablePointer<sockaddr>, UnsafeMutablePointer<socklen_t>) -> CInt

    private static func fill(_ storage: inout sockaddr_storage, from source: Source) -> Int? {
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let result = unsafe withUnsafeMutablePointer(to: &storage) { storage in
            unsafe storage.withMemoryRebound(to: sockaddr.self, capacity: 1) { address in
                unsafe source(address, &length)
            }
        }
        return result == 0 ? Int(length) : nil
    }

    private static func text(from source: Source) -> String? {
        var storage = sockaddr_storage()
        guard let length = unsafe fill(&storage, from: source) else { return nil }
        return unsafe withUnsafeBytes(of: storage) { bytes in
            switch unsafe CInt(bytes.loadUnaligned(as: sa_family_t.self)) {
            case AF_INET:
                let address = unsafe bytes.loadUnaligned(as: sockaddr_in.self)
                guard let host = host(AF_INET, address.sin_addr) else { return nil }
                return "\(host):\(UInt16(bigEndian: address.sin_port))"
            case AF_INET6:
                let address = unsafe bytes.loadUnaligned(as: sockaddr_in6.self)
                guard let host = host(AF_INET6, address.sin6_addr) else { return nil }
                return "[\(host)]:\(UInt16(bigEndian: address.sin6_port))"
            case AF_UNIX:
                let pathOffset = MemoryLayout<sockaddr_un>.offset(of: \.sun_path) ?? 2
                guard length > pathOffset else { return nil }
                return unsafe unixPath(Array(bytes[pathOffset..<min(length, bytes.count)]))
            default: return nil
            }
        }
    }

    private static func host<Address>(_ family: CInt, _ address: Address) -> String? {
        var text = [CChar](repeating: 0, count: Int(INET6_ADDRSTRLEN))
        let converted = unsafe withUnsafePointer(to: address) { address in
            unsafe inet_ntop(family, address, &text, socklen_t(text.count))
        }
        guard unsafe converted != nil else { return nil }
        return String(decoding: text.prefix { $0 != 0 }.map(UInt8.init(bitPattern:)), as: UTF8.self)
    }

    /// An abstract address begins with a zero byte and may contain more; a path ends at its first.
    private static func unixPath(_ bytes: [UInt8]) -> String? {
        if bytes.first == 0 { return "@" + String(decoding: bytes.dropFirst(), as: UTF8.self) }
        let path = String(decoding: bytes.prefix { $0 != 0 }, as: UTF8.self)
        return path.isEmpty ? nil : path
    }
}
