import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport

/// One connection to a server on this machine that sends and reads bytes as a test wants them: a library
/// would not send what a hostile peer does.
final class HTTPPeer {
    struct Response {
        var status: Int
        /// Names in lower case.
        var headers: [String: String]
        var body: String

        var json: Any? { try? JSONSerialization.jsonObject(with: Data(body.utf8)) }
        var object: [String: Any] { json as? [String: Any] ?? [:] }
        var errorCode: String? { (object["error"] as? [String: Any])?["code"] as? String }
    }

    private let socket: OwnedDescriptor
    private var unread: [UInt8] = []
    private(set) var hasEnded = false

    init(port: Int) throws {
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        socket = OwnedDescriptor(adopting: try systemCall("socket") { Glibc.socket(AF_INET, type, 0) })
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = UInt16(port).bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let rawValue = socket.rawValue
        _ = try systemCall("connect") {
            withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(rawValue, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
    }

    func send(_ text: String) throws {
        let rawValue = socket.rawValue
        var bytes = Array(text.utf8)[...]
        while !bytes.isEmpty {
            let part = Array(bytes)
            let count = try systemCall("send") {
                Glibc.send(rawValue, part, part.count, CInt(MSG_NOSIGNAL))
            }
            bytes = bytes.dropFirst(count)
        }
    }

    func request(
        _ method: String, _ path: String, token: String? = nil, headers: [String] = [], body: String = ""
    ) throws {
        var lines = ["\(method) \(path) HTTP/1.1", "Host: localhost"] + headers
        if let token { lines.append("Authorization: Bearer \(token)") }
        if method == "POST" { lines.append("Content-Length: \(body.utf8.count)") }
        try send((lines + ["", ""]).joined(separator: "\r\n") + body)
    }

    /// Reads more; false at the end of the connection.
    @discardableResult
    func readMore(within milliseconds: CInt = 30_000) throws -> Bool {
        guard !Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: milliseconds).isEmpty else {
            throw Program.Failure(
                description: "nothing is sent, after: \(String(decoding: unread, as: UTF8.self))")
        }
        var bytes = [UInt8](repeating: 0, count: 65_536)
        let count = recv(socket.rawValue, &bytes, bytes.count, 0)
        guard count > 0 else {
            hasEnded = true
            return false
        }
        unread += bytes[..<count]
        return true
    }

    /// Whether the server ends the connection, whatever else it sends.
    func ends(within milliseconds: CInt) throws -> Bool {
        let deadline = BootClock.now() + Int64(milliseconds) * 1_000_000
        while BootClock.now() < deadline {
            let left = CInt(max(1, (deadline - BootClock.now()) / 1_000_000))
            guard !Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: left).isEmpty else {
                return false
            }
            guard try readMore() else { return true }
        }
        return false
    }

    /// The responses that have arrived since this was asked last; none is read afterwards.
    func answersSoFar() throws -> Int {
        while !hasEnded, !Poll.wait(socket.rawValue, for: .readable, timeoutMilliseconds: 0).isEmpty {
            try readMore()
        }
        defer { unread = [] }
        return String(decoding: unread, as: UTF8.self).components(separatedBy: "HTTP/1.1 ").count - 1
    }

    private func takeLine() throws -> String {
        while true {
            if let end = unread.firstIndex(of: UInt8(ascii: "\n")) {
                defer { unread.removeFirst(end + 1) }
                return String(decoding: unread[..<end], as: UTF8.self)
                    .trimmingCharacters(in: .whitespacesAndNewlines)
            }
            guard try readMore() else {
                throw Program.Failure(description: "the connection ends in a header")
            }
        }
    }

    private func take(_ count: Int) throws -> String {
        while unread.count < count {
            guard try readMore() else { throw Program.Failure(description: "the connection ends in a body") }
        }
        defer { unread.removeFirst(count) }
        return String(decoding: unread[..<count], as: UTF8.self)
    }

    /// All that has arrived when it contains this, or the connection has ended.
    func text(until part: String) throws -> String {
        while true {
            let text = String(decoding: unread, as: UTF8.self)
            if text.contains(part) { return text }
            guard try readMore() else { return String(decoding: unread, as: UTF8.self) }
        }
    }

    /// The status and the header fields of the next response.
    func head() throws -> Response {
        let words = try takeLine().split(separator: " ")
        guard words.count >= 2, let status = Int(words[1]) else {
            throw Program.Failure(description: "no status line: \(words)")
        }
        var headers: [String: String] = [:]
        while true {
            let line = try takeLine()
            if line.isEmpty { return Response(status: status, headers: headers, body: "") }
            let parts = line.split(separator: ":", maxSplits: 1)
            headers[parts[0].lowercased()] = parts.dropFirst().first.map {
                $0.trimmingCharacters(in: .whitespaces)
            }
        }
    }

    func response() throws -> Response {
        var response = try head()
        if let length = response.headers["content-length"].flatMap(Int.init) {
            response.body = try take(length)
        } else if response.headers["transfer-encoding"] == "chunked" {
            while let part = try chunk() { response.body += part }
        }
        return response
    }

    /// The next part of a chunked body; nil at its end.
    func chunk() throws -> String? {
        guard let size = Int(try takeLine(), radix: 16) else {
            throw Program.Failure(description: "no chunk")
        }
        let part = try take(size)
        _ = try takeLine()
        return size == 0 ? nil : part
    }

    /// Reads a stream until its text contains this.
    func streams(_ part: String, upTo chunks: Int = 10_000) throws -> String {
        var text = ""
        for _ in 0..<chunks {
            guard let more = try chunk() else { break }
            text += more
            if text.contains(part) { return text }
        }
        throw Program.Failure(description: "the stream has no \(part), but: \(text)")
    }
}
