import EdgeTestSupport
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing
import TransferClient

@Suite("Receive windows of transfers")
struct ReceiveWindowTests {
    /// A process that is killed loses no more than that: the kernel would let the buffer grow to some MiB.
    @Test("The receive buffer of a connection to a near server keeps its size, however fast it is")
    func near() throws {
        let server = try Pouring(bytes: 1 << 30)
        let process = try TransferProcess()
        let client = try process.open()
        try client.add(server.address + "/a")
        try server.accept()
        #expect(try server.pour(64 << 20) == 64 << 20)
        let sockets = try Program.run("/usr/bin/ss", ["-Htnm", "dst", server.name]).output
        // The kernel doubles what was asked for.
        let most = try require(Int(try SmallFile.readText("/proc/sys/net/core/rmem_max").filter(\.isNumber)))
        #expect(sockets.contains("rb\(2 * min(208 << 10, most)),"), "\(sockets)")
    }
}

/// A server of one file, which has no end.
private final class Pouring {
    private let listener: OwnedDescriptor
    private var connection: OwnedDescriptor?
    private let bytes: Int
    private let piece = [UInt8](repeating: 7, count: 1 << 16)
    /// Address and port.
    let name: String

    var address: String { "http://\(name)" }

    init(bytes: Int) throws {
        self.bytes = bytes
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        listener = OwnedDescriptor(adopting: try systemCall("socket") { socket(AF_INET, type, 0) })
        let rawValue = listener.rawValue
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        try withUnsafeMutablePointer(to: &address) {
            try $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { pointer in
                _ = try systemCall("bind") { bind(rawValue, pointer, length) }
                _ = try systemCall("listen") { listen(rawValue, 1) }
                _ = try systemCall("getsockname") { getsockname(rawValue, pointer, &length) }
            }
        }
        name = "127.0.0.1:\(UInt16(bigEndian: address.sin_port))"
    }

    /// Takes the request, and answers with the head of the file.
    func accept() throws {
        let rawValue = listener.rawValue
        let accepted = OwnedDescriptor(
            adopting: try systemCall("accept") { Glibc.accept(rawValue, nil, nil) })
        var request: [UInt8] = []
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while !String(decoding: request, as: UTF8.self).hasSuffix("\r\n\r\n") {
            let count = recv(accepted.rawValue, &buffer, buffer.count, 0)
            guard count > 0 else { throw TimedOut() }
            request += buffer[..<count]
        }
        let head = Array("HTTP/1.1 200 OK\r\nContent-Length: \(bytes)\r\n\r\n".utf8)
        guard send(accepted.rawValue, head, head.count, CInt(MSG_NOSIGNAL)) == head.count else {
            throw TimedOut()
        }
        connection = consume accepted
    }

    /// Sends so many bytes, unless none are taken for a while.
    ///
    /// - Returns: how many were taken.
    func pour(_ wanted: Int) throws -> Int {
        guard let socket = connection?.rawValue else { throw TimedOut() }
        var sent = 0
        while sent < wanted,
            Poll.wait(socket, for: .writable, timeoutMilliseconds: 20_000).contains(.writable)
        {
            let most = min(piece.count, wanted - sent)
            let count = send(socket, piece, most, CInt(MSG_NOSIGNAL | MSG_DONTWAIT))
            guard count > 0 else { throw TimedOut() }
            sent += count
        }
        return sent
    }
}
