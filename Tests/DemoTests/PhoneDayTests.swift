import EdgeTestSupport
import FoundationEssentials
import Glibc
import Nightbell
import SIPKit
import Testing

/// A phone through a day, with a real supervisor and a real SIP server: it can be called whenever it should
/// be. Minutes are seconds here. Its machine sleeps in `PhoneSleepTests`, which needs clocks of its own.
@Suite(.serialized) struct PhoneDayTests {
    private let identifier = "org.example.day"
    private let password = "secret"

    /// Below the ports that the kernel gives to connections, so that none has it when the server comes.
    private func portForLater() -> UInt16? {
        for _ in 0..<100 {
            let port = UInt16.random(in: 20_000..<32_000)
            if (try? TestServer(passwords: [:], port: port)) != nil { return port }
        }
        return nil
    }

    @Test func reachableWheneverItShouldBe() throws {
        let directory = try TemporaryDirectory()
        // The server's address is known, and nothing listens there yet.
        let port = try #require(portForLater())
        let supervisor = try SupervisorRun(
            directory,
            manifest: """
                identifier: \(identifier)
                modes: [voip, audio]
                command: [\(try programDirectory())/nightbell-softphone, --user, alice, --domain, example.test,
                    --registrar, '127.0.0.1:\(port)', --expires, '8', --answer-after, '50',
                    --report, \(directory.path)/report]
                environment: { SOFTPHONE_PASSWORD: \(password) }
                """)
        let report = PhoneReport(path: "\(directory.path)/report")

        // Launched without network, it tries for as long as its budget allows, sleeps, and tries again.
        #expect(eventually(30) { report.count("connection_lost") > 1 })
        #expect(eventually(60) { report.count("repair_postponed") > 0 })
        #expect(eventually(30) { report.count("keep_alive") > 0 })

        // The network comes.
        let server = try TestServer(passwords: ["alice": password], port: port)
        #expect(server.run(atMost: 60) { server.isRegistered("alice") })
        try #require(server.run(atMost: 60) { supervisor.state(identifier) == .suspended })
        let first = try supervisor.show(identifier).processID

        // A call that lasts longer than the time of background tasks.
        let caller = try TestCaller(server)
        try #require(caller.call("alice", talkFor: .seconds(14), atMost: 60))
        #expect(eventually(30) { report.count("\"by\":\"remote\"") == 1 })
        #expect(report.count("\"by\":\"local\"") == 0)
        #expect(try supervisor.show(identifier).processID == first)
        try #require(server.run(atMost: 60) { supervisor.state(identifier) == .suspended })

        // Memory is short. The connection stays, and a call does not wait until memory is there again.
        let connections = server.connectionCount
        try supervisor.relieveMemory()
        try #require(server.run(atMost: 30) { supervisor.state(identifier) != .suspended })
        try #require(caller.call("alice", talkFor: .milliseconds(200), atMost: 60))
        let second = try supervisor.show(identifier).processID
        #expect(second != first)
        #expect(server.connectionCount == connections)
        try #require(server.run(atMost: 60) { supervisor.state(identifier) == .suspended })

        // Without a call it comes back by itself to keep its registration.
        let registrations = server.registrations
        try supervisor.relieveMemory()
        #expect(
            server.run(atMost: 60) {
                server.registrations > registrations && supervisor.state(identifier) == .suspended
            })
        #expect(try supervisor.show(identifier).processID != second)
        #expect(server.connectionCount == connections)
        #expect(eventually(30) { report.count("taken_over") == 2 })
        try #require(caller.call("alice", talkFor: .milliseconds(200), atMost: 60))

        // Its registrar does not answer for longer than a task lasts: it is asked again as early as a
        // keep-alive may run.
        let shortest = report.count("\"timeout_ms\":2000")
        #expect(eventually(60) { report.count("\"timeout_ms\":2000") > shortest })
        let usual = report.count("\"timeout_ms\":4000")
        #expect(server.run(atMost: 60) { report.count("\"timeout_ms\":4000") > usual })
        #expect(server.run(atMost: 60) { supervisor.state(identifier) == .suspended })
        try #require(caller.call("alice", talkFor: .milliseconds(200), atMost: 60))

        // The supervisor is replaced while it sleeps: the same process is called.
        try #require(server.run(atMost: 60) { supervisor.state(identifier) == .suspended })
        let third = try supervisor.show(identifier).processID
        try supervisor.restart()
        try #require(server.run(atMost: 60) { supervisor.state(identifier) == .suspended })
        try #require(caller.call("alice", talkFor: .milliseconds(200), atMost: 60))
        #expect(try supervisor.show(identifier).processID == third)

        // Its user quits it: it is gone, and is not launched again.
        try supervisor.quit(identifier)
        #expect(server.run(atMost: 30) { !server.isRegistered("alice") && supervisor.isGone(identifier) })
        #expect(!caller.call("alice", talkFor: .zero, atMost: 30))
        #expect(supervisor.isGone(identifier))

        // Neither does another supervisor launch it, though it launches what else is declared.
        try supervisor.restart()
        #expect(eventually(30) { supervisor.hasLaunchedOther })
        #expect(!caller.call("alice", talkFor: .zero, atMost: 30))
        #expect(supervisor.isGone(identifier))

        // A launch on request brings it back.
        try supervisor.launch(identifier)
        #expect(server.run(atMost: 60) { server.isRegistered("alice") })
        #expect(caller.call("alice", talkFor: .milliseconds(200), atMost: 60))
        try supervisor.quit(identifier)
        #expect(server.run(atMost: 30) { supervisor.isGone(identifier) })
    }

    /// Polls a condition, and yields in between.
    private func eventually(_ seconds: Int, _ condition: () -> Bool) -> Bool {
        let end = ContinuousClock.now + .seconds(seconds)
        while !condition() {
            guard .now < end else { return false }
            _ = poll(nil, 0, 20)
        }
        return true
    }
}

/// The reports of a phone so far.
private struct PhoneReport {
    let path: String

    /// The lines that contain this word, in quotes unless it has some.
    func count(_ word: String) -> Int {
        let bytes = FileManager.default.contents(atPath: path) ?? Data()
        let text = String(decoding: bytes, as: UTF8.self)
        let wanted = word.contains("\"") ? word : "\"event\":\"\(word)\""
        return text.split(separator: "\n").count { $0.contains(wanted) }
    }
}

/// `nightbelld` with one manifest of a test, and another one of a program that says nothing; stopped at the
/// end.
private final class SupervisorRun {
    private var id: pid_t = 0
    private let path: String
    private let socketPath: String
    /// The other program writes it.
    private let mark: String

    init(_ directory: TemporaryDirectory, manifest: String) throws {
        path = directory.path
        mark = "\(path)/mark"
        socketPath = "\(path)/run/nightbell.sock"
        for name in ["\(path)/manifests", "\(path)/run", "\(path)/state"] { mkdir(name, 0o755) }
        let other = """
            identifier: org.example.other
            command: [/usr/bin/touch, \(mark)]
            """
        for (name, text) in [("phone", manifest), ("other", other)] {
            try Data(text.utf8).write(to: URL(filePath: "\(path)/manifests/\(name).yaml"))
            chmod("\(path)/manifests/\(name).yaml", 0o644)
        }
        try start()
    }

    private func start() throws {
        let settings: [String] = [
            "manifestDirectory=\(path)/manifests", "stateDirectory=\(path)/state", "memoryPressure.file=",
            "memoryPressure.pause=4s", "budgets.backgroundTasks=10s", "budgets.expirationNotice=1s",
            "launches.retry=50ms", "wakes.linger=50ms", "wakes.limit=10000",
        ]
        let arguments: [String] =
            [
                "--system", "--runtime-directory", "\(path)/run",
                "--socket", socketPath, "--keep-alive-minimum-timeout", "2s",
            ] + settings.flatMap { ["--set", $0] }
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        for descriptor in [STDOUT_FILENO, STDERR_FILENO] as [CInt] {
            posix_spawn_file_actions_addopen(
                &actions, descriptor, "\(path)/nightbelld.log", O_WRONLY | O_CREAT | O_APPEND, 0o644)
        }
        let search = getenv("PATH").map { String(cString: $0) } ?? "/usr/bin:/bin"
        id = try spawn(
            try programDirectory() + "/nightbelld", arguments, environment: ["PATH": search], &actions)
        let end = ContinuousClock.now + .seconds(30)
        while (try? Administration(socketPath: socketPath)) == nil {
            guard .now < end else { throw Failure(text: "the supervisor does not answer") }
            _ = poll(nil, 0, 20)
        }
    }

    private func stop() {
        kill(id, SIGTERM)
        var status: CInt = 0
        waitpid(id, &status, 0)
    }

    deinit { stop() }

    /// Starts another supervisor after this one has ended, as a service manager does.
    func restart() throws {
        stop()
        unlink(mark)
        try start()
    }

    /// Whether the other program has been launched since the last start.
    var hasLaunchedOther: Bool { access(mark, F_OK) == 0 }

    func show(_ identifier: String) throws -> ClientInfo {
        var administration = try Administration(socketPath: socketPath)
        return try administration.show(identifier)
    }

    func state(_ identifier: String) -> ClientInfo.State? { (try? show(identifier))?.state }

    func isGone(_ identifier: String) -> Bool {
        do throws(NightbellError) {
            var administration = try Administration(socketPath: socketPath)
            _ = try administration.show(identifier)
            return false
        } catch {
            return error.code == .noSuchClient
        }
    }

    func relieveMemory() throws {
        var administration = try Administration(socketPath: socketPath)
        try administration.relieveMemory()
    }

    func quit(_ identifier: String) throws {
        var administration = try Administration(socketPath: socketPath)
        try administration.quit(identifier)
    }

    func launch(_ identifier: String) throws {
        var administration = try Administration(socketPath: socketPath)
        try administration.launch(identifier)
    }
}

/// An outside phone that calls through the server.
final class TestCaller {
    private let server: TestServer
    private let socket: SIPSocket
    private var caller: Caller
    private var outcome: Bool?

    init(_ server: TestServer) throws {
        self.server = server
        socket = try SIPSocket.connect(to: SIPAddress(parsing: "127.0.0.1:\(server.port)"), .udp)
        let local = try socket.localAddress()
        caller = Caller(
            SIPEndpoint(user: "caller", transport: .udp, host: local.host, port: local.port),
            domain: "example.test")
    }

    /// Calls, talks and hangs up. False: there was no answer, or the call did not end properly.
    func call(_ user: String, talkFor: Duration, atMost seconds: Int) -> Bool {
        outcome = nil
        perform(caller.call(user, talkFor: talkFor, at: .now).actions)
        let isOver = server.run(atMost: seconds) {
            for message in socket.receive().messages { perform(caller.receive(message, at: .now)) }
            perform(caller.advance(to: .now))
            return outcome != nil
        }
        return isOver && outcome == true
    }

    private func perform(_ actions: [Caller.Action]) {
        for action in actions {
            switch action {
            case .send(let message): try? socket.send(message)
            case .ringing, .answered: break
            case .ended: outcome = true
            case .failed: outcome = false
            }
        }
    }
}
