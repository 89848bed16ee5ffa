import Glibc

/// The connection of one caller. It does not use Nightbell: a program brings its own sockets.
struct Line: Sendable {
    struct Failure: Error {
        let call: String
        let code: Int32
    }

    let descriptor: Int32

    /// Listens on 127.0.0.1 until there is a caller.
    init(port: String) throws {
        let listener = try Self.check("socket", socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0))
        defer { close(listener) }
        var on: Int32 = 1
        setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, socklen_t(MemoryLayout<Int32>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        address.sin_port = (UInt16(port) ?? 0).bigEndian
        let length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let result = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(listener, $0, length) }
        }
        _ = try Self.check("bind", result)
        _ = try Self.check("listen", listen(listener, 1))
        descriptor = try Self.check("accept", accept(listener, nil, nil))
    }

    /// The caller's next words; nil: nothing more. Ends the program when the caller has hung up.
    func hear() -> String? {
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let count = recv(descriptor, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        if count == 0 { exit(0) }
        guard count > 0 else { return nil }
        return String(decoding: bytes[..<count].filter { $0 != UInt8(ascii: "\n") }, as: UTF8.self)
    }

    func say(_ words: String) {
        let bytes = Array(words.utf8)
        _ = send(descriptor, bytes, bytes.count, Int32(MSG_NOSIGNAL))
    }

    private static func check(_ call: String, _ result: Int32) throws -> Int32 {
        guard result >= 0 else { throw Failure(call: call, code: errno) }
        return result
    }
}
