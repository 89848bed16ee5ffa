import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf

/// The test's side of a monitor: the program that the supervisor starts only passes packets on.
final class FakeMonitor {
    private let listener: SeqPacketSocket
    let program: HelperProgram
    private let directory: String
    private var buffer = PacketBuffer()
    private var connection: SeqPacketSocket?

    init() throws {
        directory = NSTemporaryDirectory() + "nightbell-monitor-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        let socket = directory + "/monitor.sock"
        listener = try SeqPacketSocket.listen(path: socket, mode: 0o666)
        let script = directory + "/monitor"
        let relay = ScriptedClientProcess.program("monitor-relay")
        try "#!/bin/sh\nexec '\(relay)' '\(socket)'\n".write(
            toFile: script, atomically: true, encoding: .utf8)
        let mode: [FileAttributeKey: Any] = [.posixPermissions: 0o755]
        // The daemon of a test that runs as root starts it as another user.
        try FileManager.default.setAttributes(mode, ofItemAtPath: directory)
        try FileManager.default.setAttributes(mode, ofItemAtPath: script)
        program = HelperProgram(path: script)
    }

    deinit { try? FileManager.default.removeItem(atPath: directory) }

    /// Whether the supervisor starts a monitor within this time.
    func isStarted(within milliseconds: Int32) -> Bool {
        !Poll.wait(listener.rawValue, for: .readable, timeoutMilliseconds: milliseconds).isEmpty
    }

    /// Waits until the supervisor has started a monitor, or another one.
    func start() throws {
        guard isStarted(within: WireClient.patience) else { throw TestFailure("no monitor is started") }
        connection = try listener.accept()
    }

    /// The process that was started.
    func pid() throws -> pid_t { try withConnection { try $0.peerCredentials().pid } }

    /// The next demand for which `matches` holds.
    @discardableResult
    func demand(_ matches: (WireMonitorDemand) -> Bool = { _ in true }) throws -> WireMonitorDemand {
        while true {
            guard let demand = try nextDemand(within: WireClient.patience) else {
                throw TestFailure("nothing is asked of the monitor")
            }
            if matches(demand) { return demand }
        }
    }

    /// nil: none came in time, or the connection has ended.
    func nextDemand(within milliseconds: Int32) throws -> WireMonitorDemand? {
        try withConnection { connection in
            let ready = Poll.wait(connection.rawValue, for: .readable, timeoutMilliseconds: milliseconds)
            guard !ready.isEmpty, case .packet = try connection.receive(into: &buffer) else { return nil }
            return try WireMonitorDemand(serializedBytes: buffer.bytes)
        }
    }

    /// Waits for the end of the process.
    func waitForEnd() throws {
        // The supervisor has it idle for ten seconds first, which is the patience with an answer.
        let deadline = BootClock.now() + 3 * Int64(WireClient.patience) * 1_000_000
        while BootClock.now() < deadline {
            let isOver = try withConnection { connection in
                _ = Poll.wait(connection.rawValue, for: .readable, timeoutMilliseconds: WireClient.patience)
                return try connection.receive(into: &buffer) == .end
            }
            if isOver { return connection = nil }
        }
        throw TestFailure("the monitor does not end")
    }

    /// The process ends by itself.
    func end() { connection = nil }

    func report(_ fact: WireMonitorReport.OneOf_Fact) throws {
        var report = WireMonitorReport()
        report.fact = fact
        try send(try report.serializedBytes())
    }

    func send(_ bytes: [UInt8]) throws {
        try withConnection { connection in
            while try !connection.send(bytes) {
                guard
                    !Poll.wait(connection.rawValue, for: .writable, timeoutMilliseconds: WireClient.patience)
                        .isEmpty
                else { throw TestFailure("the supervisor does not read") }
            }
        }
    }

    func report(network address: [UInt8], generation: UInt64 = 1) throws {
        try report(
            .network(
                .with {
                    $0.addresses = [Data(address)]
                    $0.defaultRoutes = "via \(address)"
                    $0.isUp = true
                    $0.generation = generation
                }))
    }

    func report(unlocked users: [UInt32]) throws { try report(.users(.with { $0.unlocked = users })) }

    private func withConnection<Result>(_ body: (borrowing SeqPacketSocket) throws -> Result) throws -> Result
    {
        switch connection {
        case .some(let connection): return try body(connection)
        case .none: throw TestFailure("no monitor runs")
        }
    }
}

/// Reports on notifications, and on the server that shows them.
extension FakeMonitor {
    func report(server: String) throws {
        try report(.notificationServer(.with { $0.name = server }))
    }

    func report(shown post: WireMonitorDemand.Post, as id: UInt32) throws {
        try report(
            .notification(
                .with {
                    $0.id = id
                    $0.shown = .with {
                        $0.number = post.number
                        $0.revision = post.revision
                        $0.server = "server"
                    }
                }))
    }

    func report(activated id: UInt32, token: String = "") throws {
        try report(
            .notification(
                .with {
                    $0.id = id
                    $0.activated = .with {
                        $0.action = "default"
                        $0.token = token
                    }
                }))
    }
}
