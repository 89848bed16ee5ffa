import EdgeTestSupport
import FoundationEssentials
import Glibc
import Launching
import Logging
import Nightbell
import NightbellCore
import NightbellSupervisor
import Synchronization
import Testing

/// A phone on a machine that sleeps. No kernel can be asked to move its clocks apart, so the supervisor's are moved.
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
        // A zombie that is not reaped would be the only child that swift-testing's monitor of exit tests ever sees.
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

    private func phone(_ server: TestServer, _ directory: String) throws -> Declaration {
        var registration = Registration(
            identifier: try #require(ClientIdentifier(identifier)), user: geteuid(), modes: .voip)
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
