import Glibc
import LinuxSystem

/// Connections that messages are sent on, one message at a time on each. They are made again when the gateway
/// was killed.
final class PushSenders {
    enum Outcome {
        case accepted
        /// With another status than 201.
        case refused(Int)
        /// The connection has ended before the answer: it may be stored, or not.
        case unanswered
    }

    private final class Connection {
        var socket: OwnedDescriptor?
        var push: Int?
        var answer: [UInt8] = []
    }

    private let port: UInt16
    private let connections: [Connection]

    init(port: UInt16, count: Int) {
        self.port = port
        connections = (0..<count).map { _ in Connection() }
    }

    /// Messages without an outcome.
    var underWay: Int { connections.count { $0.push != nil } }

    /// False: all connections are in use, or the gateway is not there.
    ///
    /// - Parameter topic: empty: it replaces none.
    func send(_ push: Int, to path: String, topic: String = "") -> Bool {
        guard let connection = connections.first(where: { $0.push == nil }) else { return false }
        // The gateway ends one that was idle for long.
        if let socket = connection.socket?.rawValue, hasInput(socket) { connection.socket = nil }
        if connection.socket == nil { connection.socket = try? connectToLoopback(port) }
        guard let socket = connection.socket?.rawValue else { return false }
        let body = "\(push)"
        let topicLine = topic.isEmpty ? "" : "Topic: \(topic)\r\n"
        let request = """
            POST \(path) HTTP/1.1\r
            Host: localhost\r
            TTL: 86400\r
            \(topicLine)Content-Length: \(body.utf8.count)\r
            \r
            \(body)
            """
        let bytes = Array(request.utf8)
        let sent = Glibc.send(socket, bytes, bytes.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
        guard sent == bytes.count else {
            connection.socket = nil
            return false
        }
        connection.push = push
        connection.answer = []
        return true
    }

    private func hasInput(_ socket: CInt) -> Bool {
        !Poll.wait(socket, for: .readable, timeoutMilliseconds: 0).isEmpty
    }

    /// Waits for answers.
    func collect(milliseconds: CInt, _ note: (Int, Outcome) -> Void) {
        var waiting = connections.map {
            pollfd(fd: $0.push == nil ? -1 : $0.socket?.rawValue ?? -1, events: Int16(POLLIN), revents: 0)
        }
        guard poll(&waiting, nfds_t(waiting.count), milliseconds) > 0 else { return }
        for (index, connection) in connections.enumerated() where waiting[index].revents != 0 {
            guard let push = connection.push, let outcome = read(connection) else { continue }
            connection.push = nil
            if case .unanswered = outcome { connection.socket = nil }
            note(push, outcome)
        }
    }

    /// nil: there is more to come.
    private func read(_ connection: Connection) -> Outcome? {
        guard let socket = connection.socket?.rawValue else { return .unanswered }
        var bytes = [UInt8](repeating: 0, count: 4_096)
        let count = recv(socket, &bytes, bytes.count, CInt(MSG_DONTWAIT))
        if count < 0, errno == EAGAIN || errno == EINTR { return nil }
        guard count > 0 else { return .unanswered }
        connection.answer += bytes.prefix(count)
        let text = String(decoding: connection.answer, as: UTF8.self)
        guard let end = text.firstRange(of: "\r\n\r\n") else { return nil }
        let lines = text[..<end.lowerBound].split(separator: "\r\n")
        let length = lines.first { $0.lowercased().hasPrefix("content-length:") }
            .flatMap { Int($0.split(separator: ":")[1].drop { $0 == " " }) }
        guard text[end.upperBound...].utf8.count >= length ?? 0 else { return nil }
        let status = lines.first.flatMap { Int($0.split(separator: " ")[1]) } ?? 0
        return status == 201 ? .accepted : .refused(status)
    }
}
