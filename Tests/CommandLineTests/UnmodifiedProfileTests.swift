import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// A server of one connection, with lines that end in CR and LF.
private final class LineServer {
    private let listener: OwnedDescriptor
    private var connection: OwnedDescriptor?
    private var buffer: [UInt8] = []

    init() throws {
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        listener = OwnedDescriptor(adopting: try systemCall("socket") { socket(AF_INET, type, 0) })
        _ = try systemCall("listen") { listen(listener.rawValue, 1) }
    }

    /// The kernel has chosen it.
    func port() throws -> UInt16 {
        var address = sockaddr_in()
        var length = socklen_t(MemoryLayout<sockaddr_in>.size)
        _ = try systemCall("getsockname") {
            withUnsafeMutablePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    getsockname(listener.rawValue, $0, &length)
                }
            }
        }
        return UInt16(bigEndian: address.sin_port)
    }

    func accept() throws {
        let isThere = !Poll.wait(listener.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty
        try #require(isThere)
        let rawValue = listener.rawValue
        let accepted = try systemCall("accept") { Glibc.accept(rawValue, nil, nil) }
        _ = fcntl(accepted, F_SETFD, FD_CLOEXEC)
        connection = OwnedDescriptor(adopting: accepted)
    }

    /// -1: it is closed.
    private func connected() -> CInt {
        switch connection {
        case .some(let open): open.rawValue
        case .none: -1
        }
    }

    func send(_ text: String) throws {
        let bytes = Array(text.utf8)
        let rawValue = connected()
        let count = try systemCall("send") {
            Glibc.send(rawValue, bytes, bytes.count, CInt(MSG_NOSIGNAL))
        }
        #expect(count == bytes.count)
    }

    /// The next line from the client, without its end.
    func line() throws -> String {
        let rawValue = connected()
        while true {
            if let end = buffer.firstIndex(of: UInt8(ascii: "\n")) {
                let line = buffer[..<end].filter { $0 != UInt8(ascii: "\r") }
                buffer.removeSubrange(...end)
                return String(decoding: line, as: UTF8.self)
            }
            let isThere = !Poll.wait(rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty
            try #require(isThere, "no line after \(String(decoding: buffer, as: UTF8.self))")
            var bytes = [UInt8](repeating: 0, count: 1_000)
            let count = try systemCall("recv") { recv(rawValue, &bytes, bytes.count, 0) }
            try #require(count > 0, "the client has closed the connection")
            buffer += bytes.prefix(count)
        }
    }

    func close() { connection = nil }
}

@Suite("nightbell run --unmodified --profile", .enabled(if: geteuid() == 0, "needs root"))
struct UnmodifiedProfileTests {
    private let fixture: Fixture
    private let server: LineServer

    init() throws {
        fixture = try Fixture()
        server = try LineServer()
    }

    private func run(_ way: String, _ options: [String]) throws -> Program {
        let program = try Program(
            "nightbell",
            [
                "run", "--unmodified", "--socket", fixture.socket, "--identifier", "program", "--idle",
                "100ms",
            ] + options + ["--", "/usr/bin/python3", "-c", Script.lineClient, way, "\(server.port())"],
            endsChildren: true)
        try server.accept()
        return program
    }

    private func answersItself(_ token: String) throws {
        try server.send("PING :\(token)\r\n")
        #expect(try server.line() == "PONG :\(token)")
    }

    @Test(
        "Pings are answered without a wake, and everything else wakes, however the program waits",
        arguments: ["recv", "poll", "level", "edges", "once", "twice"])
    func pings(way: String) throws {
        let program = try run(way, ["--profile", "irc:\(server.port())"])
        try program.wrote("other ")
        try program.wrote("\n")
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            let before = try fixture.wakes("program")
            for token in ["a\(round)", "b\(round)"] { try answersItself(token) }
            #expect(try fixture.wakes("program") == before, "\(program.errors)")
            try server.send(":a PRIVMSG b :hello \(round)\r\nPING :c\(round)\r\n")
            try program.wrote("got :a PRIVMSG b :hello \(round)\n")
            // The ping behind a message is left for the program.
            #expect(try server.line() == "PONG from the program")
            #expect(try fixture.wakes("program") > before)
        }
        if way != "recv" {
            let port = try #require(
                program.output.split(separator: "\n").first?.split(separator: " ").last.flatMap { UInt16($0) }
            )
            try fixture.reaches("suspended", "program")
            try answersItself("before")
            _ = try EchoConnection(connectedTo: port)
            try program.wrote("accepted")
            try fixture.reaches("suspended", "program")
            try answersItself("after")
        }
        #expect(!program.output.contains("got PING :a") && !program.output.contains("got PING :b"))
        try fixture.reaches("suspended", "program")
        server.close()
        #expect(try program.outcome().code == 3)
    }

    @Test("OPTIONS on a UDP socket is answered without a wake, and everything else wakes")
    func datagrams() throws {
        let port = try freePort()
        let script =
            Script.imports + """
                phone = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                phone.bind(("127.0.0.1", int(sys.argv[1])))
                print("ready", flush=True)
                while True:
                    data, peer = phone.recvfrom(2000)
                    print("got", data.split()[0].decode(), flush=True)
                    phone.sendto(b"SIP/2.0 486 Busy Here\\r\\n\\r\\n", peer)
                """
        let program = try Program(
            "nightbell",
            [
                "run", "--unmodified", "--socket", fixture.socket, "--identifier", "program", "--idle",
                "100ms", "--profile", "sip:\(port)", "--", "/usr/bin/python3", "-c", script, "\(port)",
            ], endsChildren: true)
        try program.wrote("ready")
        let registrar = OwnedDescriptor(
            adopting: try systemCall("socket") {
                socket(AF_INET, CInt(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
            })
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = in_addr_t(0x7f00_0001).bigEndian
        _ = try systemCall("connect") {
            withUnsafePointer(to: &address) {
                $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                    connect(registrar.rawValue, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
                }
            }
        }
        func ask(_ method: String, _ number: Int) throws -> String {
            let text = """
                \(method) sip:phone@127.0.0.1:\(port) SIP/2.0\r
                Via: SIP/2.0/UDP 127.0.0.1:5060;rport;branch=z9hG4bK\(method)\(number)\r
                Max-Forwards: 70\r
                From: <sip:registrar@127.0.0.1>;tag=\(number)\r
                To: <sip:phone@127.0.0.1>\r
                Call-ID: \(method)\(number)@127.0.0.1\r
                CSeq: \(number) \(method)\r
                Content-Length: 0\r
                \r

                """
            let bytes = Array(text.utf8)
            let rawValue = registrar.rawValue
            _ = try systemCall("send") { send(rawValue, bytes, bytes.count, 0) }
            try #require(!Poll.wait(rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
            var answer = [UInt8](repeating: 0, count: 2_000)
            let count = try systemCall("recv") { recv(rawValue, &answer, answer.count, 0) }
            return String(decoding: answer.prefix(count), as: UTF8.self)
        }
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            let before = try fixture.wakes("program")
            #expect(try ask("OPTIONS", round).hasPrefix("SIP/2.0 200"))
            #expect(try fixture.wakes("program") == before, "\(program.errors)")
            #expect(try ask("INVITE", round).hasPrefix("SIP/2.0 486"))
            #expect(try fixture.wakes("program") > before)
        }
        #expect(!program.output.contains("OPTIONS"))
    }

    @Test("Without a profile a ping wakes the program")
    func control() throws {
        let program = try run("level", [])
        try fixture.reaches("suspended", "program")
        try server.send("PING :a\r\n")
        #expect(try server.line() == "PONG from the program")
        #expect(program.output.contains("got PING :a"))
    }

    @Test(
        "Pings are answered after the worker has died, and by the program itself after the supervisor has ended"
    )
    func deaths() throws {
        let program = try run("level", ["--profile", "irc:\(server.port())"])
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            let output = try fixture.nightbell("status", "--json").output
            let match = try #require(output.firstMatch(of: #/"process_id":(\d+)/#))
            kill(try #require(pid_t(match.1)), SIGKILL)
            try answersItself("after death \(round)".replacing(" ", with: "-"))
            try server.send("hello\r\n")
            try program.wrote("got hello\n")
        }
        try fixture.reaches("suspended", "program")
        fixture.daemon.send(signal: SIGTERM)
        #expect(try fixture.daemon.outcome().code == 0)
        try server.send("PING :end\r\n")
        #expect(try server.line() == "PONG from the program")
    }

    @Test("Profiles are refused that nothing knows, and those of ports with encrypted connections")
    func refusals() throws {
        for (profile, words) in [
            ("gopher", "expected imap, irc,"), ("irc:0", "such as irc:6667"), ("irc:70000", "with a port"),
            ("irc:6697", "are encrypted"),
        ] {
            let refused = try Program.run(
                "nightbell", ["run", "--unmodified", "--profile", profile, "--", "/bin/true"])
            #expect(refused.code == 64 && refused.errors.contains(words), "\(refused)")
        }
    }
}
