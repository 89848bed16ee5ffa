import CPhone
import Descriptors
import Glibc

/// The registrar of phones: each keeps a connection to it, over which it is called.
final class PhoneLine {
    let port: UInt16
    private let listener: OwnedDescriptor
    private var lines: [CInt?]

    init(count: Int) throws(LoadError) {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw LoadError(failed: "socket") }
        listener = OwnedDescriptor(adopting: descriptor)
        var address = Self.loopback(port: 0)
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isBound = withUnsafeMutablePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                bind(descriptor, $0, length) == 0 && listen(descriptor, 4_096) == 0
                    && getsockname(descriptor, $0, &length) == 0
            }
        }
        guard isBound else { throw LoadError(failed: "listen") }
        port = UInt16(bigEndian: address.sin_port)
        lines = Array(repeating: nil, count: count)
    }

    deinit { for line in lines { if let line { close(line) } } }

    /// Connects as a phone does.
    static func connect(to port: UInt16, as index: UInt64) throws(LoadError) -> CInt {
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
        guard descriptor >= 0 else { throw LoadError(failed: "socket") }
        var address = loopback(port: port)
        let length = socklen_t(MemoryLayout<sockaddr_in>.size)
        let isConnected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                Glibc.connect(descriptor, $0, length) == 0
            }
        }
        var words = cphone_registration(index: index)
        guard isConnected, send(descriptor, &words, MemoryLayout<cphone_registration>.size, 0) > 0 else {
            throw LoadError(failed: "connect")
        }
        return descriptor
    }

    private static func loopback(port: UInt16) -> sockaddr_in {
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        return address
    }

    /// Takes the connections of so many phones.
    func take(_ count: Int) throws(LoadError) {
        for _ in 0..<count {
            guard !Poll.wait(listener.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty else {
                throw .timedOut("phones to register")
            }
            let line = accept(listener.rawValue, nil, nil)
            guard line >= 0, fcntl(line, F_SETFD, FD_CLOEXEC) == 0 else { throw LoadError(failed: "accept") }
            var words = cphone_registration()
            let size = MemoryLayout<cphone_registration>.size
            guard recv(line, &words, size, CInt(MSG_WAITALL)) == size, words.index < lines.count else {
                throw LoadError(failed: "register")
            }
            var on: CInt = 1
            setsockopt(line, CInt(IPPROTO_TCP), TCP_NODELAY, &on, socklen_t(MemoryLayout<CInt>.size))
            lines[Int(words.index)] = line
        }
    }

    /// Calls a phone: returns when that was, in nanoseconds.
    func call(_ index: Int, number: UInt64) throws(LoadError) -> Int64 {
        guard let line = lines[index] else { throw .missing("phone \(index) has no line") }
        var call = cphone_call(number: number)
        let sentAt = monotonicNow()
        guard send(line, &call, MemoryLayout<cphone_call>.size, CInt(MSG_NOSIGNAL)) > 0 else {
            throw LoadError(failed: "call")
        }
        return sentAt
    }

    /// The answer of a phone that was called; nil: none came in time.
    func answer(_ index: Int, number: UInt64, within milliseconds: CInt) throws(LoadError) -> cphone_answer? {
        guard let line = lines[index] else { throw .missing("phone \(index) has no line") }
        guard !Poll.wait(line, for: .readable, timeoutMilliseconds: milliseconds).isEmpty else { return nil }
        var answer = cphone_answer()
        let size = MemoryLayout<cphone_answer>.size
        guard recv(line, &answer, size, CInt(MSG_WAITALL)) == size, answer.number == number else {
            return nil
        }
        return answer
    }
}
