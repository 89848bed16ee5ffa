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

    /// The requests that processes of this role, one for each round, have told of in their log: those of the
    /// last one. nil: not all have.
    static func counts(in log: String, rounds: Int) -> (sent: Int, answered: Int)? {
        let lines = log.split(separator: "\n").filter { $0.hasPrefix("sent ") }
        guard lines.count == rounds, let words = lines.last?.split(separator: " "), words.count == 4,
            let sent = Int(words[1]), let answered = Int(words[3])
        else { return nil }
        return (sent, answered)
    }

    /// Sends until it is asked to end, whether it gets answers or not, and then writes how many requests were
    /// sent and answered.
    mutating func run() throws {
        cfloors_catch_interrupts()
        signal(SIGPIPE, SIG_IGN)
        // They would be on other machines, and take no processor from the supervisor and its clients.
        guard cfloors_leave_a_processor() == 0 else { throw LoadError(failed: "sched_setaffinity") }
        guard cfloors_run_when_idle() == 0 else { throw LoadError(failed: "sched_setscheduler") }
        let lines = (0..<Self.connections).map { _ in Line(port) }
        let start = monotonicNow()
        var (sent, answered, next) = (0, 0, 0)
        while cfloors_interrupted() == 0 {
            let due = Int((monotonicNow() - start) * Int64(rate) / 1_000_000_000)
            var failures = 0
            while sent < due, failures < lines.count {
                next = (next + 1) % lines.count
                if lines[next].send(request()) { sent += 1 } else { failures += 1 }
            }
            var waiting = lines.map { pollfd(fd: $0.rawValue, events: Int16(POLLIN), revents: 0) }
            guard poll(&waiting, nfds_t(waiting.count), 1) > 0 else { continue }
            for (index, line) in lines.enumerated() where waiting[index].revents != 0 {
                answered += line.receive()
            }
        }
        logError("sent \(sent) answered \(answered)")
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

    /// A connection that sends without waiting for answers, and is made again when it has ended.
    private final class Line {
        private let port: UInt16
        private var socket: OwnedDescriptor?
        /// The end of a request that the kernel has not taken yet.
        private var rest: ArraySlice<UInt8> = []
        private var bytes = [UInt8](repeating: 0, count: 65_536)

        init(_ port: UInt16) { self.port = port }

        /// Ignored by poll while there is none.
        var rawValue: CInt { socket?.rawValue ?? -1 }

        /// Whether the kernel has taken it, or a part of it.
        func send(_ request: [UInt8]) -> Bool {
            if socket == nil { socket = try? connectToLoopback(port) }
            guard let rawValue = socket?.rawValue, rest.isEmpty || write(&rest, to: rawValue), rest.isEmpty
            else { return false }
            var left = request[...]
            guard write(&left, to: rawValue), left.count < request.count else { return false }
            rest = left
            return true
        }

        /// Writes what the kernel takes. False: the connection has ended.
        private func write(_ left: inout ArraySlice<UInt8>, to rawValue: CInt) -> Bool {
            let count = left.withUnsafeBytes {
                Glibc.send(rawValue, $0.baseAddress, $0.count, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
            }
            if count < 0, errno != EAGAIN, errno != EINTR {
                close()
                return false
            }
            left = left.dropFirst(max(0, count))
            return true
        }

        /// The answers that have arrived.
        func receive() -> Int {
            guard let rawValue = socket?.rawValue else { return 0 }
            let count = recv(rawValue, &bytes, bytes.count, CInt(MSG_DONTWAIT))
            if count < 0, errno == EAGAIN || errno == EINTR { return 0 }
            guard count > 0 else {
                close()
                return 0
            }
            let line = Array("HTTP/1.1 ".utf8)
            return bytes[..<count].indices.count {
                bytes[$0] == line[0] && bytes[$0..<count].starts(with: line)
            }
        }

        private func close() {
            socket = nil
            rest = []
        }
    }
}
