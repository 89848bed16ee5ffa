import EdgeTestSupport
import Glibc
import SIPKit
import Testing

/// The softphone without a supervisor: it stays awake and does the same.
@Suite struct SoftphoneTests {
    @Test(arguments: ["tcp", "udp"])
    func registersRefreshesAndSaysGoodbye(transport: String) throws {
        let server = try TestServer(passwords: ["alice": "secret"])
        let phone = try SoftphoneProcess(server, transport: transport, password: "secret", expires: 2)
        // The registration lasts two seconds: three registrations mean two refreshes.
        #expect(server.run(atMost: 10) { server.registrations >= 3 })
        #expect(server.isRegistered("alice"))
        phone.send(SIGTERM)
        #expect(server.run(atMost: 10) { !phone.isRunning })
        #expect(phone.exitStatus == 0)
        #expect(!server.isRegistered("alice"))
    }

    @Test(arguments: [false, true])
    func connectsAgain(afterReset: Bool) throws {
        let server = try TestServer(passwords: ["alice": "secret"])
        let phone = try SoftphoneProcess(server, transport: "tcp", password: "secret", expires: 600)
        #expect(server.run(atMost: 10) { server.isRegistered("alice") })
        server.closeConnections(byReset: afterReset)
        #expect(!server.isRegistered("alice"))
        #expect(server.run(atMost: 10) { server.isRegistered("alice") })
        #expect(phone.isRunning)
    }

    @Test func aPasswordThatIsRefusedEndsIt() throws {
        let server = try TestServer(passwords: ["alice": "secret"])
        let phone = try SoftphoneProcess(server, transport: "udp", password: "wrong", expires: 600)
        #expect(server.run(atMost: 10) { !phone.isRunning })
        #expect(phone.exitStatus == 1)
    }

    @Test func itWaitsForAServerThatIsNotThere() throws {
        var server: TestServer? = try TestServer(passwords: ["alice": "secret"])
        let port = try #require(server?.port)
        server = nil
        let phone = try SoftphoneProcess(port: port, transport: "tcp", password: "secret", expires: 600)
        // It has tried, and found no server.
        #expect(phone.reports("connection_lost", within: 10))
        #expect(phone.isRunning)
        let late = try TestServer(passwords: ["alice": "secret"], port: port)
        #expect(late.run(atMost: 15) { late.isRegistered("alice") })
    }
}

/// A softphone that finds no supervisor.
final class SoftphoneProcess {
    private let id: pid_t
    /// Its events, one a line.
    private let journal: CInt
    private var text = ""
    private(set) var exitStatus: CInt?

    convenience init(_ server: TestServer, transport: String, password: String, expires: Int) throws {
        try self.init(port: server.port, transport: transport, password: password, expires: expires)
    }

    init(port: UInt16, transport: String, password: String, expires: Int) throws {
        let program = try programDirectory() + "/nightbell-softphone"
        let arguments: [String] = [
            "--user", "alice", "--registrar", "127.0.0.1:\(port)", "--domain", "example.test",
            "--transport", transport, "--expires", String(expires),
            "--supervisor-socket", "/nonexistent/nightbell.sock", "--report", "fd:3",
        ]
        var ends: [CInt] = [-1, -1]
        guard pipe(&ends) == 0 else { throw Failure(text: "pipe") }
        for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        // By way of another number: dup2 to the same one would keep close-on-exec.
        posix_spawn_file_actions_adddup2(&actions, ends[1], 99)
        posix_spawn_file_actions_adddup2(&actions, 99, 3)
        defer { close(ends[1]) }
        id = try spawn(program, arguments, environment: ["SOFTPHONE_PASSWORD": password], &actions)
        journal = ends[0]
    }

    deinit {
        close(journal)
        guard isRunning else { return }
        kill(id, SIGKILL)
        var status: CInt = 0
        waitpid(id, &status, 0)
    }

    /// Waits until it has reported this event.
    func reports(_ event: String, within seconds: Int) -> Bool {
        let end = ContinuousClock.now + .seconds(seconds)
        var buffer = [UInt8](repeating: 0, count: 4_096)
        while !text.contains("\"\(event)\"") {
            let left = end - .now
            var entry = pollfd(fd: journal, events: Int16(POLLIN), revents: 0)
            guard left > .zero, poll(&entry, 1, CInt(left / .milliseconds(1)) + 1) > 0 else { return false }
            let count = Glibc.read(journal, &buffer, buffer.count)
            guard count > 0 else { return false }
            text += String(decoding: buffer[..<count], as: UTF8.self)
        }
        return true
    }

    var isRunning: Bool {
        guard exitStatus == nil else { return false }
        var status: CInt = 0
        guard waitpid(id, &status, WNOHANG) == id else { return true }
        exitStatus = status & 0x7F == 0 ? (status >> 8) & 0xFF : 128 + (status & 0x7F)
        return false
    }

    func send(_ signal: CInt) { if isRunning { kill(id, signal) } }
}

/// A SIP server in the test's own process. It serves while `run` runs.
final class TestServer {
    let port: UInt16
    private let listener: SIPListener
    private let datagrams: SIPDatagramSocket
    private var proxy: ProxyServer
    private var connections: [FlowID: SIPSocket] = [:]
    private var peers: [FlowID: SIPAddress] = [:]
    private var lastFlow: UInt64 = 0
    /// How many times a registration was granted or removed.
    private(set) var registrations = 0

    init(passwords: [String: String], port: UInt16 = 0) throws {
        let sockets = try SIPServerSockets(host: "127.0.0.1", port: port)
        listener = sockets.listener
        datagrams = sockets.datagrams
        self.port = sockets.port
        proxy = ProxyServer(
            domain: "example.test", host: "127.0.0.1", ports: [.tcp: self.port, .udp: self.port],
            registrar: Registrar(domain: "example.test", passwords: passwords))
    }

    var connectionCount: Int { connections.count }

    func isRegistered(_ user: String) -> Bool { !proxy.registrar.bindings(of: user, at: .now).isEmpty }

    func closeConnections(byReset: Bool) {
        for (flow, socket) in connections {
            if byReset { socket.resetAtClose() }
            proxy.flowEnded(flow)
        }
        connections.removeAll()
    }

    /// Serves until the condition holds. False: it did not within this many seconds.
    func run(atMost seconds: Int, until condition: () -> Bool) -> Bool {
        let end = ContinuousClock.now + .seconds(seconds)
        while !condition() {
            guard .now < end else { return false }
            turn()
        }
        return true
    }

    private func turn() {
        let flows = Array(connections.keys)
        let descriptors =
            [listener.descriptor, datagrams.descriptor] + flows.compactMap { connections[$0]?.descriptor }
        var entries = descriptors.map { pollfd(fd: $0, events: Int16(POLLIN), revents: 0) }
        guard poll(&entries, nfds_t(entries.count), 20) > 0 else { return }
        if let socket = try? listener.accept() { connections[newFlow()] = socket }
        for (message, sender) in datagrams.receive() {
            let flow = peers.first { $0.value == sender }?.key ?? newFlow()
            peers[flow] = sender
            receive(message, on: flow)
        }
        for flow in flows {
            guard let reception = connections[flow]?.receive() else { continue }
            for message in reception.messages { receive(message, on: flow) }
            if reception.end != nil {
                connections[flow] = nil
                proxy.flowEnded(flow)
            }
        }
    }

    private func newFlow() -> FlowID {
        lastFlow += 1
        return FlowID(rawValue: lastFlow)
    }

    private func receive(_ message: SIPMessage, on flow: FlowID) {
        let outputs = proxy.receive(message, on: flow, at: .now) { flow in
            connections[flow] != nil ? .tcp : peers[flow] != nil ? .udp : nil
        }
        for output in outputs {
            if message.method == .register, output.message.status == 200 { registrations += 1 }
            if let socket = connections[output.flow] {
                try? socket.send(output.message)
            } else if let peer = peers[output.flow] {
                datagrams.send(output.message, to: peer)
            }
        }
    }
}
