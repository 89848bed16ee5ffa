import EdgeTestSupport
import FoundationEssentials
import Glibc
import LinuxSystem
import SwiftProtobuf
import Testing
import TransferClient
import TransferWire

/// Tinyproxy, on loopback.
private final class Proxy {
    static let program = "/usr/bin/tinyproxy"

    private let directory: TemporaryDirectory
    private var process: Child
    private let port: UInt16

    /// - Parameters:
    ///   - login: a name and a password that it asks for, with a colon between; nil: none.
    ///   - tunnelsTo: the only port to which it makes tunnels.
    init(login: (name: String, password: String)? = nil, tunnelsTo: UInt16) throws {
        directory = try TemporaryDirectory()
        port = try freePort()
        let text = """
            Port \(port)
            Listen 127.0.0.1
            Timeout 60
            Allow 127.0.0.1
            ConnectPort \(tunnelsTo)
            LogFile "\(directory.path)/log"
            LogLevel Connect
            \(login.map { "BasicAuth \($0.name) \($0.password)" } ?? "")

            """
        try Nginx.write(Array(text.utf8), to: directory.path + "/tinyproxy.conf")
        process = try Self.start(directory.path)
        try waitUntilReady()
    }

    private static func start(_ path: String) throws -> Child {
        try Child(program, "-d", "-c", path + "/tinyproxy.conf")
    }

    private func waitUntilReady() throws {
        guard eventually(within: 20_000, { Nginx.connects(to: port) }) else { throw TimedOut() }
    }

    func end() { process.end() }

    func start() throws {
        process = try Self.start(directory.path)
        try waitUntilReady()
    }

    /// - Parameter login: a name and a password, with `:` between and `@` behind them.
    func address(_ login: String = "") -> String { "http://\(login)127.0.0.1:\(port)" }

    /// How often it was asked for this.
    func requests(_ words: String) -> Int {
        log.split(separator: "\n").filter { $0.contains("Request") && $0.contains(words) }.count
    }

    var log: String { (try? SmallFile.readText(directory.path + "/log")) ?? "" }
}

@Suite("Transfers through proxies")
struct ProxyTests {
    private let server: Nginx
    private let bytes = randomBytes(1_500_000)

    init() throws {
        server = try Nginx(rate: "4m")
        try server.add("a", bytes)
    }

    private func add(_ client: TransferClient, _ address: String, through proxy: String = "") throws {
        try client.add(address + "/a") {
            $0.proxy = proxy
            $0.expectedDigest = .init(digest(bytes))
        }
    }

    @Test("A task names its proxy, also for HTTPS, and with a login", arguments: [false, true])
    func named(isSecure: Bool) throws {
        let proxy = try Proxy(login: ("reader", "secret"), tunnelsTo: server.securePort)
        let process = try TransferProcess(["--authorities", server.authorities])
        let client = try process.open()
        let address = isSecure ? server.secureAddress : server.address
        try add(client, address, through: proxy.address("reader:secret@"))
        #expect(try client.nextResult().0.failure == .none)
        #expect(proxy.requests(isSecure ? "CONNECT 127.0.0.1:\(server.securePort)" : "GET http://") == 1)
    }

    @Test("A proxy that refuses ends the task with its status", arguments: [false, true])
    func refused(isSecure: Bool) throws {
        let proxy = try Proxy(login: ("reader", "secret"), tunnelsTo: server.securePort)
        let process = try TransferProcess(["--authorities", server.authorities])
        let client = try process.open()
        let address = isSecure ? server.secureAddress : server.address
        try add(client, address, through: proxy.address())
        let result = try client.nextResult().0
        #expect(result.failure == .status && result.status == 407)
        #expect(server.log.isEmpty)
    }

    @Test("A proxy that makes no tunnel to this port ends the task with its status")
    func noTunnel() throws {
        let proxy = try Proxy(tunnelsTo: 1)
        let process = try TransferProcess(["--authorities", server.authorities])
        let client = try process.open()
        try add(client, server.secureAddress, through: proxy.address())
        let result = try client.nextResult().0
        #expect(result.failure == .status && result.status == 403)
    }

    @Test("The environment names the proxy, and the servers that need none")
    func environment() throws {
        let proxy = try Proxy(tunnelsTo: server.securePort)
        let options = ["--authorities", server.authorities]
        let variables = ["http_proxy": proxy.address(), "https_proxy": proxy.address()]
        for exceptions in ["", "127.0.0.1"] {
            let process = try TransferProcess(
                options, environment: variables.merging(["no_proxy": exceptions]) { $1 })
            let client = try process.open()
            try add(client, server.address)
            try add(client, server.secureAddress)
            for _ in 0..<2 { #expect(try client.nextResult().0.failure == .none) }
            #expect(proxy.requests("GET http://") == 1 && proxy.requests(": CONNECT ") == 1, "\(proxy.log)")
        }
    }

    @Test("A proxy that ends in the middle and comes back costs no byte twice")
    func cut() throws {
        let proxy = try Proxy(tunnelsTo: server.securePort)
        let process = try TransferProcess()
        let client = try process.open()
        let large = randomBytes(8_000_000)
        try server.add("large", large)
        try client.add(server.address + "/large") {
            $0.proxy = proxy.address()
            $0.expectedDigest = .init(digest(large))
        }
        #expect(eventually(within: 30_000) { Self.received(process) > 500_000 })
        proxy.end()
        // Attempts in vain.
        #expect(eventually(within: 30_000) { server.log.count == 1 })
        try proxy.start()
        #expect(try client.nextResult().0.failure == .none)
        #expect(proxy.requests("GET http://") == 2)
        #expect(server.log.map(\.status) == [200, 206])
    }

    /// The bytes of the only task so far.
    private static func received(_ process: TransferProcess) -> Int {
        var status = stat()
        let path = process.data + "/sessions/1"
        let name = (try? SmallFile.names(in: path))?.first { $0.hasSuffix(".data") } ?? ""
        return stat(path + "/" + name, &status) == 0 ? status.st_size : 0
    }
}
