import CChat
import CFloors
import Glibc
import LinuxSystem

/// A `chat-server` of the run's own.
final class ChatServer {
    /// The counters that the server publishes.
    struct Counters {
        var connections = 0
        var hibernated = 0
        var hibernations = 0
        var wakes = 0
        /// Connections that could not be brought back.
        var lost = 0
    }

    let process: ChildProcess
    let port: UInt16

    init(_ runDirectory: RunDirectory, _ name: String, _ arguments: [String]) throws {
        process = try runDirectory.start("chat-server", ["--port", "0"] + arguments, log: name)
        var port: UInt16?
        try wait(for: "the chat server", atMost: .seconds(20), firstPause: 2_000_000) {
            try runDirectory.requireAllRunning()
            port = Self.port(in: runDirectory.log(of: name))
            return port != nil
        }
        self.port = port ?? 0
    }

    /// nil: the server has not printed it yet.
    static func port(in text: String) -> UInt16? {
        let prefix = "listening on http://127.0.0.1:"
        guard
            let line = text.split(separator: "\n", omittingEmptySubsequences: false).dropLast().first(
                where: { $0.hasPrefix(prefix) })
        else { return nil }
        return UInt16(line.dropFirst(prefix.count).prefix { $0.isNumber })
    }

    func counters() throws(LoadError) -> Counters {
        let answer = try get("/counters")
        guard answer.starts(with: Array("HTTP/1.1 200 ".utf8)),
            let start = answer.firstIndex(of: UInt8(ascii: "{"))
        else { throw .missing("the chat server does not tell its counters") }
        let object = answer[start...]
        func number(_ name: String) throws(LoadError) -> Int {
            let value = object.withUnsafeBytes {
                cchat_number($0.baseAddress?.assumingMemoryBound(to: CChar.self), $0.count, name)
            }
            guard value >= 0 else { throw .missing("the chat server does not count \(name)") }
            return Int(value)
        }
        return Counters(
            connections: try number("connections"), hibernated: try number("hibernated"),
            hibernations: try number("hibernations"), wakes: try number("wakes"), lost: try number("lost"))
    }

    private func get(_ path: String) throws(LoadError) -> [UInt8] {
        let socket = OwnedDescriptor(
            adopting: Glibc.socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var limit = timeval(tv_sec: 20, tv_usec: 0)
        setsockopt(socket.rawValue, SOL_SOCKET, SO_RCVTIMEO, &limit, socklen_t(MemoryLayout<timeval>.size))
        let descriptor = socket.rawValue
        let connected = withUnsafeBytes(of: &address) {
            connect(
                descriptor, $0.baseAddress?.assumingMemoryBound(to: sockaddr.self), socklen_t($0.count))
        }
        guard connected == 0 else { throw LoadError(failed: "connect to the chat server") }
        let request = Array("GET \(path) HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".utf8)
        guard send(descriptor, request, request.count, CInt(MSG_NOSIGNAL)) == request.count else {
            throw LoadError(failed: "ask the chat server")
        }
        var answer: [UInt8] = []
        var bytes = [UInt8](repeating: 0, count: 4_096)
        while true {
            let count = recv(descriptor, &bytes, bytes.count, 0)
            guard count >= 0 else {
                if errno == EINTR { continue }
                throw LoadError(failed: "hear from the chat server")
            }
            if count == 0 { return answer }
            answer += bytes[..<count]
        }
    }
}
