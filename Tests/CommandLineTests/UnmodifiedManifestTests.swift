import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// An echo server that knows nothing of Nightbell. It appends its port and its limit of open files to its
/// output.
private let echo = """
    import ctypes, os, resource, select, socket, sys
    # As the kernel does for a program that changes its user: it lives on when its parent ends (PR_SET_PDEATHSIG).
    if "SPARED" in os.environ: ctypes.CDLL(None).prctl(1, 0)
    server = socket.create_server(("127.0.0.1", 0))
    events = select.epoll()
    events.register(server, select.EPOLLIN)
    clients = {}
    names = [name for name in os.environ if name.startswith(("NIGHTBELL_", "LISTEN_"))]
    print("port", server.getsockname()[1], os.getuid(), resource.getrlimit(resource.RLIMIT_NOFILE)[0], names, flush=True)
    while True:
        for number, _ in events.poll():
            if number == server.fileno():
                client, _ = server.accept()
                clients[client.fileno()] = client
                events.register(client, select.EPOLLIN)
                continue
            data = clients[number].recv(1000)
            if data == b"end well":
                sys.exit(0)
            if data:
                clients[number].sendall(data)
            else:
                events.unregister(number)
                clients.pop(number).close()
    """

@Suite("Programs as they are in manifests", .enabled(if: geteuid() == 0, "needs root"))
struct UnmodifiedManifestTests {
    private let files: TemporaryDirectory
    private let name = "org.example.echo"

    init() throws {
        files = try TemporaryDirectory()
        // Any user writes there.
        chmod(files.path, 0o777)
        try Data(echo.utf8).write(to: URL(fileURLWithPath: files.file("echo.py")))
        mkdir(files.file("manifests"), 0o755)
    }

    private func declare(_ more: String = "") throws {
        let text = """
            identifier: \(name)
            command: [/usr/bin/python3, \(files.file("echo.py"))]
            output: \(files.file("output"))
            unmodified: true
            idle: 100ms
            \(more)

            """
        let path = files.file("manifests/echo.yaml")
        try Data(text.utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o644)
    }

    private func fixture(_ more: [String] = [], program: String = "nightbelld") throws -> Fixture {
        let fixture = try Fixture(
            ["--set", "manifestDirectory=\(files.file("manifests"))", "--set", "launches.retry=10ms"] + more,
            program: program)
        chmod(fixture.directory.path, 0o755)
        return fixture
    }

    /// It would outlive its supervisor.
    private func quit(_ fixture: Fixture) {
        _ = try? fixture.nightbell("quit", name)
        _ = try? eventually(within: 30_000) { try fixture.nightbell("show", name).code == 4 }
    }

    private var output: String {
        (try? String(contentsOfFile: files.file("output"), encoding: .utf8)) ?? ""
    }

    private var starts: [Substring] {
        output.split(separator: "\n").filter { $0.hasPrefix("port ") }
    }

    /// Connects to the process that was started as this one in turn.
    private func connection(to start: Int) throws -> EchoConnection {
        let isThere = eventually(within: 30_000) { starts.count >= start }
        try #require(isThere, "\(output)")
        let fields = starts[start - 1].split(separator: " ")
        return try EchoConnection(connectedTo: try #require(UInt16(fields[1])))
    }

    private func process(_ fixture: Fixture) throws -> pid_t {
        pid_t(try #require(try fixture.shown(name)["process_id"] as? Int))
    }

    @Test("Without nightbell beside nightbelld, only such programs are left out, and named")
    func withoutNightbell() throws {
        try declare()
        let plain = files.file("manifests/plain.yaml")
        try Data("identifier: org.example.plain\ncommand: [/bin/true]\nstartsWithSupervisor: false\n".utf8)
            .write(to: URL(fileURLWithPath: plain))
        chmod(plain, 0o644)
        let program = files.file("nightbelld")
        // Not by this process: a program that another test starts meanwhile would have the copy open for
        // writing.
        #expect(try Program.run("/bin/cp", [Program.product("nightbelld"), program]).code == 0)
        let fixture = try fixture(program: program)
        let declared = try fixture.nightbell("show", "org.example.plain")
        #expect(declared.errors.contains("it is declared"), "\(declared)")
        let leftOut = try fixture.nightbell("show", name)
        #expect(leftOut.code == 4 && !leftOut.errors.contains("it is declared"), "\(leftOut)")
        #expect(
            fixture.daemon.errors.contains("\(name) is unmodified, and needs nightbell beside nightbelld"))
    }

    @Test("One is launched with the supervisor, sleeps, and is launched again after a crash")
    func life() throws {
        try declare("limits: {openFiles: 64}")
        let fixture = try fixture()
        defer { quit(fixture) }
        for start in 1...3 {
            let connection = try connection(to: start)
            for round in 1...2 {
                try fixture.reaches("suspended", name)
                #expect(try connection.echoes("request \(round)"), "\(fixture.daemon.errors)")
            }
            let shown = try fixture.shown(name)
            #expect(shown["unmodified"] as? Bool == true && shown["can_launch"] as? Bool == true)
            try fixture.reaches("suspended", name)
            kill(try process(fixture), SIGKILL)
        }
        _ = try connection(to: 4)
        // Its limits are its own, and it sees nothing of how it was launched.
        #expect(starts.allSatisfy { $0.hasSuffix(" 0 64 ['NIGHTBELL_SOCKET']") }, "\(output)")
    }

    @Test("One that ends well, or is quit, is not launched again, until that is asked for")
    func end() throws {
        try declare()
        let fixture = try fixture()
        defer { quit(fixture) }
        try fixture.reaches("suspended", name)
        _ = try connection(to: 1).echoes("end well")
        #expect(try eventually(within: 30_000) { try fixture.nightbell("show", name).code == 4 })
        #expect(try fixture.nightbell("launch", name).code == 0)
        let connection = try connection(to: 2)
        try fixture.reaches("suspended", name)
        #expect(try connection.echoes("hello"))
        #expect(try fixture.nightbell("quit", name).code == 0)
        #expect(try eventually(within: 30_000) { try fixture.nightbell("show", name).code == 4 })
        #expect(starts.count == 2)
    }

    @Test(
        "If the process that speaks for it is killed, it is killed as well, and launched again",
        arguments: [false, true])
    func parentKilled(isSpared: Bool) throws {
        try declare(isSpared ? "environment: {SPARED: yes}" : "")
        let fixture = try fixture()
        defer { quit(fixture) }
        for start in 1...3 {
            let connection = try connection(to: start)
            try fixture.reaches("suspended", name)
            #expect(try connection.echoes("hello"), "\(fixture.daemon.errors)")
            let pid = try process(fixture)
            let program = try ProcessHandle(opening: pid)
            kill(try #require(ProcFS.statistics(pid)?.parent), SIGKILL)
            #expect(!Poll.wait(program.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        }
        _ = try connection(to: 4)
    }

    @Test("A worker that is killed leaves it asleep, and launches it again later")
    func workerKilled() throws {
        try declare()
        let fixture = try fixture()
        defer { quit(fixture) }
        let first = try connection(to: 1)
        for round in 1...3 {
            try fixture.reaches("suspended", name)
            let output = try fixture.nightbell("status", "--json").output
            let match = try #require(output.firstMatch(of: #/"process_id":(\d+)/#))
            kill(try #require(pid_t(match.1)), SIGKILL)
            #expect(try first.echoes("round \(round)"), "\(fixture.daemon.errors)")
        }
        try fixture.reaches("suspended", name)
        kill(try process(fixture), SIGKILL)
        let second = try connection(to: 2)
        try fixture.reaches("suspended", name)
        #expect(try second.echoes("again"), "\(fixture.daemon.errors)")
    }

    @Test("One of another user sleeps as well")
    func user() throws {
        try declare("user: nobody\ndirectory: /")
        let fixture = try fixture()
        defer { quit(fixture) }
        let connection = try connection(to: 1)
        for round in 1...3 {
            try fixture.reaches("suspended", name)
            #expect(try connection.echoes("request \(round)"), "\(fixture.daemon.errors)")
        }
        #expect(starts[0].contains(" 65534 "))
        #expect(try fixture.shown(name)["uid"] as? Int == 65_534)
    }

    @Test("It outlives a supervisor that is stopped, and is not launched a second time by the next one")
    func supervisorStopped() throws {
        try declare()
        let place = try TemporaryDirectory()
        chmod(place.path, 0o755)
        let there = ["--runtime-directory", place.path]
        func nightbell(_ arguments: String...) throws -> Program.Outcome {
            try Program.run(
                "nightbell", arguments, environment: ["NIGHTBELL_SOCKET": place.file("nightbell.sock")])
        }
        func sleeps() throws -> Bool {
            try eventually(within: 30_000) {
                try nightbell("show", name, "--json").output.contains(#""state":"suspended""#)
            }
        }
        let first = try fixture(there)
        let connection = try connection(to: 1)
        #expect(try sleeps(), "\(first.daemon.errors)")
        first.daemon.send(signal: SIGTERM)
        #expect(try first.daemon.outcome().code == 0)
        #expect(try connection.echoes("without a supervisor"))
        let second = try fixture(there)
        #expect(try sleeps(), "\(second.daemon.errors)")
        #expect(try connection.echoes("with the next supervisor"))
        #expect(try sleeps())
        #expect(try nightbell("show", name, "--json").output.contains(#""can_launch":true"#))
        #expect(starts.count == 1)
        #expect(try nightbell("quit", name).code == 0)
        #expect(try eventually(within: 30_000) { try nightbell("show", name).code == 4 })
    }
}
