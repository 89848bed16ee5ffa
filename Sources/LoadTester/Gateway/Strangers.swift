import CFloors
import Glibc
import LinuxSystem
import Simulation

/// Processes that know no endpoint of the gateway's push service, and send to it all the same.
struct Strangers {
    private let port: UInt16
    private let rate: Int
    private var random: SplitMix64

    private static let connections = 64

    static func arguments(port: UInt16, rate: Int, seed: UInt64) -> [String] {
        ["\(port)", "\(rate)", "\(seed)"]
    }

    init(_ arguments: [String]) throws(LoadError) {
        guard arguments.count == 3, let port = UInt16(arguments[0]), let rate = Int(arguments[1]),
            let seed = UInt64(arguments[2])
        else { throw .missing("arguments") }
        self.port = port
        self.rate = rate
        random = SplitMix64(seed: seed)
    }

    /// The answers that a process of this role has told of in its log.
    static func answers(in log: String) -> Int? {
        log.split(separator: "\n").last { $0.hasPrefix("answers ") }.flatMap { Int($0.dropFirst(8)) }
    }

    /// Sends until it is asked to end, and then writes how many requests were answered.
    mutating func run() throws {
        cfloors_catch_interrupts()
        signal(SIGPIPE, SIG_IGN)
        // They would be on other machines, and take no processor from the supervisor and its clients.
        guard cfloors_leave_a_processor() == 0 else { throw LoadError(failed: "sched_setaffinity") }
        setpriority(__priority_which_t(PRIO_PROCESS.rawValue), 0, 10)
        let lines = (0..<Self.connections).map { _ in Line(port) }
        let start = monotonicNow()
        var (sent, answers) = (0, 0)
        while cfloors_interrupted() == 0 {
            let due = Int((monotonicNow() - start) * Int64(rate) / 1_000_000_000)
            for line in lines where sent < due && line.isFree {
                if line.send(request()) { sent += 1 }
            }
            var waiting = lines.map { pollfd(fd: $0.rawValue, events: Int16(POLLIN), revents: 0) }
            guard poll(&waiting, nfds_t(waiting.count), 1) > 0 else { continue }
            for (index, line) in lines.enumerated() where waiting[index].revents != 0 {
                if line.receive() { answers += 1 }
            }
            // Requests that could not be sent in time are not made up for.
            sent = max(sent, due - rate / 10)
        }
        logError("answers \(answers)")
    }

    private mutating func request() -> [UInt8] {
        let letters = Array("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_".utf8)
        let name = String(
            decoding: (0..<43).map { _ in letters[Int.random(in: 0..<64, using: &random)] }, as: UTF8.self)
        let text =
            // The connection ends with the first two.
            switch Int.random(in: 0..<64, using: &random) {
            case 0: "NOTHING \(name)\r\n\r\n"
            case 1: post("/push/\(name)", bytes: 5_000)
            case 2..<10: "GET /push/\(name) HTTP/1.1\r\nHost: localhost\r\n\r\n"
            case 10..<18: post("/push/..%2f..%2f\(name.prefix(9))", bytes: 0)
            case 18..<26: post("/push/\(name)", bytes: 100, "TTL: -7\r\nUrgency: now\r\n")
            default: post("/push/\(name)", bytes: 100, "TTL: 60\r\n")
            }
        return Array(text.utf8)
    }

    private func post(_ path: String, bytes: Int, _ fields: String = "") -> String {
        "POST \(path) HTTP/1.1\r\nHost: localhost\r\n\(fields)Content-Length: \(bytes)\r\n\r\n"
            + String(repeating: "x", count: bytes)
    }

    /// A connection with one request at a time, which is made again when it has ended.
    private final class Line {
        private let port: UInt16
        private var socket: OwnedDescriptor?
        private var isWaiting = false
        private var bytes = [UInt8](repeating: 0, count: 4_096)

        init(_ port: UInt16) { self.port = port }

        /// Ignored by poll while there is none.
        var rawValue: CInt { socket?.rawValue ?? -1 }
        var isFree: Bool { !isWaiting }

        func send(_ request: [UInt8]) -> Bool {
            if socket == nil { socket = try? connectToLoopback(port) }
            guard let rawValue = socket?.rawValue else { return false }
            guard Glibc.send(rawValue, request, request.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT)) > 0 else {
                socket = nil
                return false
            }
            isWaiting = true
            return true
        }

        /// Whether a request was answered: answers are short and come in one piece.
        func receive() -> Bool {
            guard let rawValue = socket?.rawValue else { return false }
            let count = recv(rawValue, &bytes, bytes.count, CInt(MSG_DONTWAIT))
            if count < 0, errno == EAGAIN || errno == EINTR { return false }
            let isAnswer = count > 0 && isWaiting
            isWaiting = false
            if count <= 0 { socket = nil }
            return isAnswer
        }
    }
}
