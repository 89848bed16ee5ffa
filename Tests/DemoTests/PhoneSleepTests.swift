import EdgeTestSupport
import FoundationEssentials
import Glibc
import Launching
import LinuxSystem
import Logging
import Nightbell
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Synchronization
import Testing

/// A phone on a machine that sleeps. No kernel can be asked to move its clocks apart, so the supervisor's are
/// moved.
@Suite struct PhoneSleepTests {
    private let identifier = "org.example.sleep"

    @Test func aPhoneIsReachableAfterItsMachineHasSlept() throws {
        let directory = try TemporaryDirectory()
        let server = try TestServer(passwords: ["alice": "secret"])
        let slept = Mutex(Duration.zero)
        var configuration = SupervisorConfiguration(
            socketPath: "\(directory.path)/nightbell.sock", runtimeDirectory: directory.path)
        configuration.pretendedSleep = { slept.withLock { $0 } }
        configuration.settings.wakes.linger = .milliseconds(50)
        configuration.declarations = [try phone(server, directory.path)]
        let supervisor = try Supervisor(
            configuration, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        // A zombie that is not reaped would be the only child that swift-testing's monitor of exit tests ever
        // sees.
        var process: pid_t = 0
        defer {
            if process > 0 {
                kill(process, SIGKILL)
                waitpid(process, nil, 0)
            }
        }
        let thread = OwnThread { try supervisor.run() }
        defer { try? thread.join() }
        defer { supervisor.stop() }
        var administration = try Administration(socketPath: configuration.socketPath)

        #expect(server.run(atMost: 60) { server.isRegistered("alice") })
        try #require(sleeps(server, &administration))
        process = try administration.show(identifier).processID

        // Long enough for its keep-alive, and for every budget.
        let registrations = server.registrations
        slept.withLock { $0 = .seconds(7_200) }
        // Any request makes a turn.
        _ = try administration.status()
        #expect(server.run(atMost: 30) { server.registrations > registrations })
        try #require(sleeps(server, &administration))

        // In the middle of a wake: its budget does not pass.
        try administration.wake(identifier)
        slept.withLock { $0 = .seconds(14_400) }
        _ = try administration.status()
        try #require(sleeps(server, &administration))
        #expect(try administration.show(identifier).processID == process)
        #expect(try administration.show(identifier).counters["overruns_wake"] == 0)

        let caller = try TestCaller(server)
        #expect(caller.call("alice", talkFor: .milliseconds(200), atMost: 60))
        try administration.quit(identifier)
        #expect(server.run(atMost: 30) { !server.isRegistered("alice") })
    }

    /// The phone has no sound, so that PipeWire, where it runs, knows nothing of its calls.
    @Test func aCallThatPipeWireDoesNotHearKeepsThePhoneAwake() throws {
        let directory = try TemporaryDirectory()
        let server = try TestServer(passwords: ["alice": "secret"])
        let monitors = try SilentMonitors(directory.path)
        var configuration = SupervisorConfiguration(
            socketPath: "\(directory.path)/nightbell.sock", runtimeDirectory: directory.path)
        configuration.monitor = HelperProgram(path: monitors.program)
        configuration.settings.wakes.linger = .milliseconds(50)
        // A call that held a task for all its time would be hung up.
        configuration.settings.budgets.backgroundTasks = .seconds(8)
        configuration.settings.budgets.expirationNotice = .seconds(1)
        configuration.declarations = [try phone(server, directory.path, modes: [.voip, .audio])]
        let supervisor = try Supervisor(
            configuration, logger: Logger(label: "test") { _ in SwiftLogNoOpLogHandler() })
        let thread = OwnThread { try supervisor.run() }
        defer { try? thread.join() }
        defer { supervisor.stop() }
        let monitoring = OwnThread { try monitors.serve() }
        defer { try? monitoring.join() }
        defer { monitors.stop() }
        var administration = try Administration(socketPath: configuration.socketPath)
        #expect(server.run(atMost: 60) { server.isRegistered("alice") })
        try #require(sleeps(server, &administration))

        let before = try administration.show(identifier).counters["suspensions"]
        let caller = try TestCaller(server)
        #expect(caller.call("alice", talkFor: .seconds(10), atMost: 60))
        try #require(sleeps(server, &administration))
        let after = try administration.show(identifier)
        #expect(after.counters["suspensions"] == before + 1, "it slept during the call")
        #expect(after.counters["overruns_background_tasks"] == 0)
        try administration.quit(identifier)
        #expect(server.run(atMost: 30) { !server.isRegistered("alice") })
    }

    private func phone(_ server: TestServer, _ directory: String, modes: Modes = .voip) throws -> Declaration
    {
        var registration = Registration(
            identifier: try #require(ClientIdentifier(identifier)), user: geteuid(), modes: modes)
        registration.isLaunchable = true
        let launch = LaunchSpecification(
            arguments: [
                try programDirectory() + "/nightbell-softphone", "--user", "alice", "--domain",
                "example.test",
                "--registrar", "127.0.0.1:\(server.port)", "--expires", "3600", "--answer-after", "50",
            ],
            directory: directory, environment: ["SOFTPHONE_PASSWORD": "secret"])
        return Declaration(registration, launch: launch, identity: nil, startsWithSupervisor: true)
    }

    private func sleeps(_ server: TestServer, _ administration: inout Administration) -> Bool {
        server.run(atMost: 60) { (try? administration.show(identifier))?.state == .suspended }
    }
}

/// Monitors that have found PipeWire, and no stream. One is asked anew each time its user's client wakes.
private final class SilentMonitors: Sendable {
    private let listener: SeqPacketSocket
    private let isOver = Mutex(false)
    let program: String

    init(_ directory: String) throws {
        let socket = "\(directory)/monitor.sock"
        listener = try SeqPacketSocket.listen(path: socket, mode: 0o666)
        program = "\(directory)/monitor"
        let relay = try programDirectory() + "/monitor-relay"
        try Data("#!/bin/sh\nexec '\(relay)' '\(socket)'\n".utf8).write(to: URL(filePath: program))
        for path in [directory, program] { chmod(path, 0o755) }
    }

    func stop() { isOver.withLock { $0 = true } }

    /// Until `stop`.
    func serve() throws {
        var report = WireMonitorReport()
        report.audio.isPipewireThere = true
        let answer: [UInt8] = try report.serializedBytes()
        var buffer = PacketBuffer()
        var connection: SeqPacketSocket?
        while !isOver.withLock({ $0 }) {
            let descriptor = connection?.rawValue ?? listener.rawValue
            guard !Poll.wait(descriptor, for: .readable, timeoutMilliseconds: 50).isEmpty else { continue }
            guard let monitor = connection.take() else {
                connection = try listener.accept()
                continue
            }
            guard case .packet = try monitor.receive(into: &buffer), try monitor.send(answer) else {
                continue
            }
            connection = consume monitor
        }
    }
}
