import CLinux
import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// Declared clients that lose their connections and run on.
@Suite(.serialized, .timeLimit(.minutes(20))) struct DepartedClientTests {
    private let name = "org.example.phone"
    private let manifests: TemporaryDirectory
    private let place: TemporaryDirectory

    init() throws {
        manifests = try TemporaryDirectory()
        place = try TemporaryDirectory()
    }

    private func start() throws -> (daemon: DaemonProcess, client: TestClient, process: TestClientProcess) {
        let client = try TestClient(name, socketPath: place.path + "/nightbell.sock")
        let environment = client.specification.environment.map { "  \($0.key): '\($0.value)'" }
        let text = """
            identifier: \(name)
            command: [\(client.program)]
            environment:
            \(environment.joined(separator: "\n"))
            """
        let path = manifests.file("\(name).yaml")
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o644)
        let daemon = try startDaemon()
        return (daemon, client, try client.returns("voip socket=\(daemon.socketPath)"))
    }

    private func startDaemon() throws -> DaemonProcess {
        try DaemonProcess(
            suspension: "none", directory: place.path, before: "umask 0",
            """
            --set manifestDirectory=\(manifests.path) --set launches.retry=50ms \
            --set launches.retryMaximum=500ms
            """)
    }

    /// Those that a supervisor has noted for its next worker.
    private func noted() throws -> [String] {
        let state = try SmallFile.read(place.path + "/runtime-state")
        let last = StoredRuntimeState.decode(state).changes.last { $0.hasDeparted }
        return last?.departed.clients.map(\.identifier) ?? []
    }

    private func isForgotten(by daemon: DaemonProcess) throws -> Bool {
        try eventually(within: 20_000) { try WireClient(path: daemon.socketPath).info(of: name) == nil }
    }

    /// It has closed its connection.
    private func startAndLeave() throws -> (
        daemon: DaemonProcess, client: TestClient, process: TestClientProcess
    ) {
        let all = try start()
        try all.process.command("goodbye")
        #expect(try isForgotten(by: all.daemon))
        return all
    }

    /// A duplicate of the descriptor by which a process is connected to the supervisor.
    private func supervisorConnection(of pid: pid_t) throws -> OwnedDescriptor {
        let process = try ProcessHandle(opening: pid)
        for name in try FileManager.default.contentsOfDirectory(atPath: "/proc/\(pid)/fd") {
            let number = clinux_get_descriptor(process.rawValue, Int32(name) ?? -1)
            guard number >= 0 else { continue }
            let descriptor = OwnedDescriptor(adopting: number)
            var (type, length) = (Int32(0), socklen_t(MemoryLayout<Int32>.size))
            if getsockopt(number, SOL_SOCKET, SO_TYPE, &type, &length) == 0,
                type == Int32(SOCK_SEQPACKET.rawValue)
            {
                return descriptor
            }
        }
        throw TestFailure("it is not connected to the supervisor")
    }

    private func send(_ packet: [UInt8], on connection: borrowing OwnedDescriptor) throws {
        let rawValue = connection.rawValue
        let flags = Int32(MSG_NOSIGNAL | MSG_DONTWAIT)
        _ = try systemCall("send") { Glibc.send(rawValue, packet, packet.count, flags) }
    }

    private func sayNonsense(on connection: borrowing OwnedDescriptor) throws {
        try send(Array(repeating: 0xff, count: 16), on: connection)
    }

    @Test("One that fails later is launched again", arguments: [false, true])
    func fails(workerIsReplaced: Bool) throws {
        let (daemon, client, process) = try startAndLeave()
        if workerIsReplaced { try daemon.killWorker() }
        #expect(client.staysAway(milliseconds: 1_000), "its process runs")
        try process.say("exit 3")
        try daemon.end(client.returns("voip"))
    }

    @Test("One that the supervisor has disconnected, and that fails, is launched again")
    func disconnected() throws {
        let (daemon, client, process) = try start()
        kill(process.pid, SIGSTOP)
        try sayNonsense(on: try supervisorConnection(of: process.pid))
        #expect(try isForgotten(by: daemon))
        kill(process.pid, SIGKILL)
        try daemon.end(client.returns("voip"))
    }

    @Test("One that fails while its worker is replaced is launched again")
    func failsMeanwhile() throws {
        let (daemon, client, process) = try startAndLeave()
        let worker = try daemon.worker()
        kill(worker, SIGSTOP)
        kill(process.pid, SIGKILL)
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        kill(worker, SIGKILL)
        try daemon.end(client.returns("voip"))
    }

    /// Kills a process that has sent something before, of which the worker learns at the same time.
    private func end(
        _ process: TestClientProcess, beside daemon: DaemonProcess,
        after send: (borrowing OwnedDescriptor) throws -> Void
    ) throws {
        let worker = try daemon.worker()
        kill(worker, SIGSTOP)
        #expect(eventually { threads(of: worker, are: "T") })
        try send(try supervisorConnection(of: process.pid))
        kill(process.pid, SIGKILL)
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        kill(worker, SIGCONT)
    }

    @Test("One that has failed before it is disconnected is launched again")
    func failsBefore() throws {
        let (daemon, client, process) = try start()
        try end(process, beside: daemon) { try sayNonsense(on: $0) }
        try daemon.end(client.returns("voip"))
    }

    @Test("All messages that a client has sent before its end are handled")
    func lastMessages() throws {
        let (daemon, client, process) = try start()
        try end(process, beside: daemon) { try sayMuch(on: $0) }
        // It is launched again, and gets its state.
        let next = try client.appears()
        #expect(try WireClient(path: daemon.socketPath).info(of: name)?.stateBytes == 4)
        try next.command("hello \(name) voip socket=\(daemon.socketPath)")
        try daemon.end(next)
    }

    /// Requests that are answered, and at last one to save four bytes of state.
    private func sayMuch(on connection: borrowing OwnedDescriptor) throws {
        for request in 1...240 as ClosedRange<UInt64> {
            let message = WireClientMessage.with {
                $0.request = 1_000 + request
                if request < 240 {
                    $0.backgroundTimeRemaining = WireBackgroundTimeRemaining()
                } else {
                    $0.saveState = .with { $0.state = Data("last".utf8) }
                }
            }
            try send(try message.serializedBytes(), on: connection)
        }
    }

    private func reportPush(to daemon: DaemonProcess) throws {
        let push = WirePushesWaiting.with {
            $0.uid = geteuid()
            $0.identifier = name
            $0.number = 1
            $0.urgency = .normal
        }
        guard case .done = try WireClient(path: daemon.socketPath).ask(.pushesWaiting(push)) else {
            throw TestFailure("the supervisor takes no report of pushes")
        }
    }

    @Test("One that may be about to come back is not launched for a push")
    func push() throws {
        let (daemon, client, process) = try startAndLeave()
        try reportPush(to: daemon)
        #expect(client.staysAway(milliseconds: 500))
        try process.command("hello \(name) voip socket=\(daemon.socketPath)")
        #expect(client.staysAway(milliseconds: 5_000), "its process has come back")
        try process.say("exit 0")
    }

    @Test("One that fails while a push waits for it to come back is launched again, once")
    func failsWithPush() throws {
        let (daemon, client, process) = try startAndLeave()
        try reportPush(to: daemon)
        try process.say("exit 3")
        let next = try client.returns("voip")
        #expect(client.staysAway(milliseconds: 1_000))
        try daemon.end(next)
    }

    @Test("A changed manifest does not launch another process beside one")
    func reload() throws {
        let (daemon, client, process) = try startAndLeave()
        let path = manifests.file("\(name).yaml")
        let text = try String(contentsOfFile: path, encoding: .utf8)
        try Data((text + "\nkeepAlive: 1h\n").utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o644)
        guard case .reloaded = try WireClient(path: daemon.socketPath).ask(.reload(WireReload())) else {
            throw TestFailure("it does not reload")
        }
        #expect(client.staysAway(milliseconds: 1_000))
        try process.say("exit 3")
        try daemon.end(client.returns("voip"))
    }

    @Test("One that ends well is not launched again")
    func endsWell() throws {
        let (daemon, client, process) = try startAndLeave()
        try process.say("exit 0")
        #expect(eventually { ProcFS.state(process.pid) == nil }, "it has been waited for")
        #expect(client.staysAway(milliseconds: 1_500))
        withExtendedLifetime(daemon) {}
    }

    @Test("One that comes back, and ends well then, is not launched again")
    func comesBackAndEndsWell() throws {
        let (daemon, client, process) = try startAndLeave()
        try process.command("hello \(name) voip socket=\(daemon.socketPath)")
        // Its end is read once.
        #expect(try noted() == [])
        try process.say("exit 0")
        #expect(client.staysAway(milliseconds: 1_500))
        withExtendedLifetime(daemon) {}
    }

    @Test("The next supervisor launches it, and has none noted")
    func nextSupervisor() throws {
        let (first, client, process) = try startAndLeave()
        #expect(try noted() == [name])
        let handle = try first.child.handle()
        kill(first.child.pid, SIGTERM)
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty)
        let second = try startDaemon()
        let next = try client.returns("voip")
        #expect(try noted() == [])
        try process.say("exit 0")
        try second.end(next)
        withExtendedLifetime(first) {}
    }

    @Test("One that comes back, and fails then, is launched once")
    func comesBack() throws {
        let (daemon, client, process) = try startAndLeave()
        try process.command("hello \(name) voip socket=\(daemon.socketPath)")
        try process.say("exit 3")
        let next = try client.returns("voip")
        #expect(client.staysAway(milliseconds: 1_500))
        try daemon.end(next)
    }
}
