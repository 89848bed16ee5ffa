import ChatService
import EdgeTestSupport
import Foundation
import Glibc
import Testing

/// Any message of the server.
struct Words: Decodable, Equatable {
    struct Line: Decodable, Equatable {
        var name: String
        var text: String
        var number: Int
        var time: Int
    }

    var type: String
    var room: String?
    var name: String?
    var text: String?
    var number: Int?
    var names: [String]?
    var members: Int?
    var history: [Line]?
}

/// A blocking WebSocket client, which can also violate the protocol.
final class ChatClient: @unchecked Sendable {
    // Sendable: one thread at a time uses it.

    enum Heard: Equatable {
        case words(Words)
        case ping([UInt8])
        case pong([UInt8])
        case close(Int?)
        /// The connection is over.
        case end
    }

    struct Refused: Error {
        let answer: String
    }

    let descriptor: CInt
    private var buffer: [UInt8] = []

    /// - Parameter early: sent together with the request, without waiting for an answer.
    init(
        _ port: Int, path: String = "/ws", headers: String = "", early: [UInt8] = [],
        receiveBuffer: CInt? = nil
    ) throws {
        descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        if var receiveBuffer {
            setsockopt(descriptor, SOL_SOCKET, SO_RCVBUF, &receiveBuffer, socklen_t(MemoryLayout<CInt>.size))
        }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let socket = descriptor
        let result = withUnsafeBytes(of: &address) { bytes in
            connect(
                socket, bytes.assumingMemoryBound(to: sockaddr.self).baseAddress, socklen_t(bytes.count))
        }
        try #require(result == 0)
        let request = """
            GET \(path) HTTP/1.1\r\nHost: 127.0.0.1:\(port)\r\nConnection: Upgrade\r\nUpgrade: websocket\r
            Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\(headers)\r\n
            """
        try write(Array(request.utf8) + early)
        let answer = try readHead()
        // RFC 6455, section 1.3: the accept value of this key.
        guard answer.hasPrefix("HTTP/1.1 101 "), answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=") else {
            throw Refused(answer: answer)
        }
    }

    deinit { close(descriptor) }

    // MARK: Sending

    func write(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes {
                send(descriptor, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL))
            }
            try #require(count > 0, "errno \(errno)")
            rest = rest.dropFirst(count)
        }
    }

    static func frame(
        _ opcode: UInt8, _ payload: [UInt8], isLast: Bool = true, isMasked: Bool = true
    ) -> [UInt8] {
        var frame: [UInt8] = [(isLast ? 0x80 : 0) | opcode]
        let mask: UInt8 = isMasked ? 0x80 : 0
        switch payload.count {
        case ..<126: frame += [mask | UInt8(payload.count)]
        case ..<65_536: frame += [mask | 126, UInt8(payload.count >> 8), UInt8(payload.count & 0xFF)]
        default: frame += [mask | 127] + (0..<8).reversed().map { UInt8(payload.count >> ($0 * 8) & 0xFF) }
        }
        let key: [UInt8] = [0x12, 0x34, 0x56, 0x78]
        if isMasked { frame += key }
        return frame + payload.enumerated().map { isMasked ? $1 ^ key[$0 % 4] : $1 }
    }

    static func text(_ words: [String: String]) throws -> [UInt8] {
        frame(1, Array(try JSONEncoder().encode(words)))
    }

    func join(_ room: String = "lobby", as name: String) throws {
        try write(Self.text(["type": "join", "room": room, "name": name]))
    }

    func say(_ text: String) throws {
        try write(Self.text(["type": "say", "text": text]))
    }

    // MARK: Receiving

    /// The next message; pings are answered.
    func hear(within milliseconds: Int = 20_000) throws -> Words {
        while true {
            switch try next(within: milliseconds) {
            case .words(let words): return words
            case .ping(let payload): try write(Self.frame(10, payload))
            case .pong: break
            case .close, .end: throw Refused(answer: "it is over")
            }
        }
    }

    /// The next message of this type; others are skipped.
    func hear(_ type: String) throws -> Words {
        while true {
            let words = try hear()
            if words.type == type { return words }
        }
    }

    func next(within milliseconds: Int = 20_000) throws -> Heard {
        guard try fill(2, milliseconds) else { return .end }
        try #require(buffer[0] & 0x70 == 0 && buffer[1] & 0x80 == 0, "no frame of a server's")
        var (start, count) = (2, Int(buffer[1]))
        if count >= 126 {
            start += count == 126 ? 2 : 8
            guard try fill(start, milliseconds) else { return .end }
            count = buffer[2..<start].reduce(0) { $0 << 8 | Int($1) }
        }
        guard try fill(start + count, milliseconds) else { return .end }
        let (opcode, payload) = (buffer[0] & 0x0F, Array(buffer[start..<start + count]))
        try #require(buffer[0] & 0x80 != 0, "the server sends whole messages")
        buffer.removeFirst(start + count)
        switch opcode {
        case 1: return .words(try JSONDecoder().decode(Words.self, from: Data(payload)))
        case 8: return .close(payload.count < 2 ? nil : Int(payload[0]) << 8 | Int(payload[1]))
        case 9: return .ping(payload)
        default: return .pong(payload)
        }
    }

    /// Whether the connection is over, and with which reason; earlier messages are skipped.
    func end() throws -> Heard {
        while true {
            switch try next() {
            case .close(let code): return .close(code)
            case .end: return .end
            case .words, .ping, .pong: break
            }
        }
    }

    /// Whether there are this many bytes, or an end before.
    private func fill(_ count: Int, _ milliseconds: Int) throws -> Bool {
        while buffer.count < count {
            var entry = pollfd(fd: descriptor, events: CShort(POLLIN), revents: 0)
            try #require(poll(&entry, 1, CInt(milliseconds)) == 1, "nothing to read")
            var bytes = [UInt8](repeating: 0, count: 65_536)
            let received = recv(descriptor, &bytes, bytes.count, 0)
            if received <= 0 { return false }
            buffer += bytes[..<received]
        }
        return true
    }

    private func readHead() throws -> String {
        let end: [UInt8] = [13, 10, 13, 10]
        var searched = 0
        while true {
            if let range = buffer[searched...].firstRange(of: end) {
                defer { buffer.removeFirst(range.upperBound) }
                return String(decoding: buffer[..<range.upperBound], as: UTF8.self)
            }
            searched = max(0, buffer.count - 3)
            guard try fill(buffer.count + 1, 20_000) else {
                return String(decoding: buffer, as: UTF8.self)
            }
        }
    }
}

/// A server in this process, ended with the test.
func withServer(
    idle: Duration? = .milliseconds(30), ping: Duration? = nil, threads: Int = 1,
    willRebuild: @escaping @Sendable () throws -> Void = {}, _ body: (ChatServer) throws -> Void
) throws {
    var configuration = ChatServer.Configuration()
    configuration.port = 0
    configuration.hibernateAfter = idle
    configuration.pingEvery = ping
    configuration.threads = threads
    configuration.willRebuild = willRebuild
    let server = try ChatServer(configuration)
    defer { #expect(throws: Never.self) { try server.stop() } }
    try body(server)
}

extension ChatServer {
    /// Waits until all connections sleep.
    func sleeps(_ count: Int) -> Bool {
        eventually { counters.hibernated == count && counters.connections == count }
    }
}
