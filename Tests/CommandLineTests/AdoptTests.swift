import CLinux
import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite("nightbell adopt", .enabled(if: geteuid() == 0, "needs root"))
struct AdoptTests {
    private let fixture: Fixture

    init() throws { fixture = try Fixture() }

    private init(_ arguments: [String]) throws { fixture = try Fixture(arguments) }

    private func start(_ script: String) throws -> Program {
        try Program("/usr/bin/python3", ["-c", script], endsChildren: true)
    }

    private func adopt(_ arguments: String...) throws -> Program {
        let adopter = try Program(
            "nightbell",
            ["adopt", "--socket", fixture.socket, "--identifier", "program", "--idle", "100ms"] + arguments)
        try adopter.wrote("sleeps while it waits, as program")
        return adopter
    }

    private func refusal(_ arguments: String...) throws -> Program.Outcome {
        try Program.run("nightbell", ["adopt", "--socket", fixture.socket] + arguments)
    }

    /// An echo server, and a connection to it.
    private func echo() throws -> (server: Program, connection: EchoConnection) {
        let server = try start(Script.echo)
        try server.wrote("\n")
        let port = server.output.split(separator: "\n").first?.split(separator: " ").last
        return (server, try EchoConnection(connectedTo: try #require(port.flatMap { UInt16($0) })))
    }

    private func cgroup(of pid: pid_t) throws -> String { try SmallFile.readText("/proc/\(pid)/cgroup") }

    @Test("A server that runs already sleeps between its requests, and is given back awake")
    func server() throws {
        let (server, connection) = try echo()
        let before = try cgroup(of: server.pid)
        for end in [SIGINT, SIGTERM, SIGKILL] {
            let adopter = try adopt("\(server.pid)")
            for round in 1...3 {
                try fixture.reaches("suspended", "program")
                #expect(try connection.echoes("request \(round)"), "\(adopter.errors)")
            }
            #expect(try fixture.shown("program")["unmodified"] as? Bool == true)
            try fixture.reaches("suspended", "program")
            adopter.send(signal: end)
            #expect(try adopter.outcome().code == (end == SIGKILL ? 128 + SIGKILL : 0))
            #expect(try eventually(within: 30_000) { try fixture.nightbell("show", "program").code == 4 })
            #expect(try connection.echoes("given back"))
            #expect(try eventually { try cgroup(of: server.pid) == before })
        }
    }

    @Test("It is asleep or awake, and never lost, while workers and supervisors end")
    func deaths() throws {
        let (server, connection) = try echo()
        let adopter = try adopt("\(server.pid)")
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            let output = try fixture.nightbell("status", "--json").output
            let match = try #require(output.firstMatch(of: #/"process_id":(\d+)/#))
            kill(try #require(pid_t(match.1)), SIGKILL)
            #expect(try connection.echoes("after death \(round)"), "\(adopter.errors)")
        }
        try fixture.reaches("suspended", "program")
        fixture.daemon.send(signal: SIGTERM)
        #expect(try fixture.daemon.outcome().code == 0)
        #expect(try connection.echoes("without a supervisor"))
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
    }

    @Test("Its descendants sleep and wake with it, and the command ends with it")
    func family() throws {
        let parent = try start(Script.family)
        try parent.wrote("ready")
        let child = try #require(ProcFS.children(parent.pid).first)
        let adopter = try adopt("\(parent.pid)")
        try fixture.reaches("suspended", "program")
        #expect(try cgroup(of: parent.pid) == cgroup(of: child))
        try parent.say("hello")
        try parent.wrote("child answers hello")
        try fixture.reaches("suspended", "program")
        kill(child, SIGKILL)
        #expect(try parent.outcome().code == 8)
        #expect(try adopter.outcome().code == 0)
    }

    @Test(
        "Children that have ended, and those that come while it is adopted, do not keep it from being adopted"
    )
    func children() throws {
        // It has a child that nothing has waited for, and starts others that end soon.
        let script =
            Script.imports + """
                if os.fork() == 0: os._exit(0)
                server = socket.create_server(("127.0.0.1", 0))
                print("port", server.getsockname()[1], flush=True)
                end = time.monotonic() + 3
                while time.monotonic() < end:
                    if (child := os.fork()) == 0: os._exit(0)
                    os.waitpid(child, 0)
                client, _ = server.accept()
                while data := client.recv(1000): client.sendall(data)
                """
        let server = try start(script)
        try server.wrote("\n")
        let adopter = try adopt("\(server.pid)")
        let port = server.output.split(separator: "\n").first?.split(separator: " ").last
        let connection = try EchoConnection(connectedTo: try #require(port.flatMap { UInt16($0) }))
        for round in 1...3 {
            #expect(try connection.echoes("request \(round)"), "\(adopter.errors)")
            try fixture.reaches("suspended", "program")
        }
    }

    @Test(
        "With --first-byte a connection wakes a server with its first byte, and without it at once",
        arguments: [Script.echo, Script.accepting])
    func firstByte(script: String) throws {
        let server = try start(script)
        try server.wrote("\n")
        let port = try #require(
            server.output.split(separator: "\n").first?.split(separator: " ").last.flatMap { UInt16($0) })
        let adopter = try adopt("\(server.pid)", "--first-byte")
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            let before = try fixture.wakes("program")
            #expect(try deferral(of: server.pid) > 0)
            let connections = try (1...3).map { _ in try EchoConnection(connectedTo: port) }
            // The supervisor has seen whatever a connection does before it answers the second time.
            _ = try fixture.wakes("program")
            #expect(try fixture.wakes("program") == before)
            #expect(try connections[0].echoes("round \(round)"), "\(adopter.errors)")
            #expect(try fixture.wakes("program") > before)
        }
        try fixture.reaches("suspended", "program")
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
        #expect(try deferral(of: server.pid) == 0)
        #expect(try eventually { try fixture.nightbell("show", "program").code == 4 })

        let plain = try adopt("\(server.pid)")
        try fixture.reaches("suspended", "program")
        let before = try fixture.wakes("program")
        let connection = try EchoConnection(connectedTo: port)
        #expect(try eventually(within: 30_000) { try fixture.wakes("program") > before })
        #expect(try connection.echoes("awake"), "\(plain.errors)")
    }

    /// `TCP_DEFER_ACCEPT` of its port, in seconds.
    private func deferral(of pid: pid_t) throws -> CInt {
        let process = try ProcessHandle(opening: pid)
        for name in try SmallFile.names(in: "/proc/\(pid)/fd") {
            let duplicate = clinux_get_descriptor(process.rawValue, CInt(name) ?? -1)
            guard duplicate >= 0 else { continue }
            defer { close(duplicate) }
            guard SocketOption.isListening.value(of: duplicate) == 1 else { continue }
            return try #require(SocketOption.deferAccept.value(of: duplicate))
        }
        return try #require(nil)
    }

    @Test("A signal by nightbell kill arrives at once")
    func signal() throws {
        let (server, connection) = try echo()
        let adopter = try adopt("\(server.pid)")
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            #expect(try fixture.nightbell("kill", "program", "SIGUSR1").code == 0)
            let isTold = eventually(within: 30_000) {
                server.output.components(separatedBy: "got USR1").count - 1 == round
            }
            #expect(isTold, "\(server.output)")
        }
        #expect(try connection.echoes("still there"))
        #expect(try fixture.nightbell("kill", "program", "NONSENSE").code == 64)
        #expect(try fixture.nightbell("kill", "nobody").code == 4)
        let foreign = try Program.run(
            "/usr/bin/setpriv",
            [
                "--reuid", "4711", "--regid", "4711", "--clear-groups", "--", Program.product("nightbell"),
                "kill", "--socket", fixture.socket, "program",
            ])
        #expect(foreign.code != 0)
        try fixture.reaches("suspended", "program")
        #expect(try fixture.nightbell("kill", "program").code == 0)
        #expect(try server.outcome().code == 128 + SIGTERM)
        #expect(try adopter.outcome().code == 0)
    }

    @Test("Where only signals can stop programs, one with a single process sleeps, and others are refused")
    func signals() throws {
        let stage = try AdoptTests(["--suspend", "signal"])
        let (server, connection) = try stage.echo()
        let adopter = try stage.adopt("\(server.pid)")
        try stage.fixture.reaches("suspended", "program")
        #expect(try connection.echoes("hello"), "\(adopter.errors)")
        try stage.fixture.reaches("suspended", "program")
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
        #expect(try connection.echoes("given back"))
        let parent = try stage.start(Script.family)
        try parent.wrote("ready")
        let refused = try stage.refusal("\(parent.pid)")
        #expect(refused.code == 1 && refused.errors.contains("2 processes"), "\(refused)")
        try parent.say("hello")
        try parent.wrote("child answers hello")
    }

    @Test("Any user adopts its own programs, where that may be traced")
    func user() throws {
        let scope = (try? SmallFile.readText("/proc/sys/kernel/yama/ptrace_scope")) ?? "0"
        chmod(fixture.directory.path, 0o755)
        let drop = ["--reuid", "4711", "--regid", "4711", "--clear-groups", "--"]
        let server = try Program("/usr/bin/setpriv", drop + ["/usr/bin/python3", "-c", Script.echo])
        try server.wrote("\n")
        let port = server.output.split(separator: "\n").first?.split(separator: " ").last
        let connection = try EchoConnection(connectedTo: try #require(port.flatMap { UInt16($0) }))
        let adopter = try Program(
            "/usr/bin/setpriv",
            drop + [
                Program.product("nightbell"), "adopt", "--socket", fixture.socket, "--identifier", "program",
                "--idle", "100ms", "\(server.pid)",
            ])
        guard scope.hasPrefix("0") else {
            let refused = try adopter.outcome()
            #expect(refused.code == 5 && refused.errors.contains("ptrace_scope"), "\(refused)")
            return
        }
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            #expect(try connection.echoes("request \(round)"), "\(adopter.errors)")
        }
        try fixture.reaches("suspended", "program")
        adopter.send(signal: SIGINT)
        #expect(try adopter.outcome().code == 0)
        #expect(try connection.echoes("given back"))
    }

    // MARK: Cgroups

    /// A cgroup of the test's own.
    private struct TestCgroup {
        let path: String

        init(_ name: String) throws {
            let mounts = try SmallFile.readText("/proc/self/mounts").split(separator: "\n")
            let mount = try #require(mounts.first { $0.contains(" cgroup2 ") }?.split(separator: " ")[1])
            path = "\(mount)/\(name)"
            try systemCallSucceeds(mkdir(path, 0o755))
        }

        func add(_ pid: pid_t) throws { try SmallFile.write("\(pid)", to: path + "/cgroup.procs") }

        /// With all processes in it.
        func remove() {
            try? SmallFile.write("1", to: path + "/cgroup.kill")
            _ = eventually(within: 10_000) { rmdir(path) == 0 || errno == ENOENT }
        }
    }

    @Test("All processes of a cgroup sleep together, and go on when the first one has ended")
    func wholeCgroup() throws {
        let group = try TestCgroup("test-\(getpid())-adopted")
        defer { group.remove() }
        let (first, firstConnection) = try echo()
        let (second, secondConnection) = try echo()
        for server in [first, second] { try group.add(server.pid) }
        let adopter = try adopt("--cgroup", group.path)
        for round in 1...3 {
            for connection in [firstConnection, secondConnection] {
                try fixture.reaches("suspended", "program")
                #expect(try connection.echoes("request \(round)"), "\(adopter.errors)")
            }
        }
        try fixture.reaches("suspended", "program")
        #expect(try cgroup(of: first.pid) == cgroup(of: second.pid))
        kill(first.pid, SIGKILL)
        _ = try first.outcome()
        for round in 1...3 {
            try fixture.reaches("suspended", "program")
            #expect(try secondConnection.echoes("request \(round)"), "\(adopter.errors)")
        }
        #expect(try fixture.shown("program")["process_id"] as? Int == Int(second.pid))
        try fixture.reaches("suspended", "program")
        kill(second.pid, SIGKILL)
        _ = try second.outcome()
        #expect(try adopter.outcome().code == 0)
    }

    @Test("The reason is told if a program cannot be adopted")
    func refusals() throws {
        func expect(
            _ outcome: Program.Outcome, says words: String, code: Int32 = 1,
            _ location: SourceLocation = #_sourceLocation
        ) {
            let isRight = outcome.code == code && outcome.errors.contains(words)
            #expect(isRight, "\(outcome)", sourceLocation: location)
        }
        expect(try refusal("\(getpid())"), says: "has started this command")
        expect(try refusal("4194304"), says: "there is no process")
        expect(try refusal(), says: "Give a pid", code: 64)
        expect(try refusal("1", "--cgroup", "/x"), says: "Give a pid", code: 64)
        expect(try refusal("--cgroup", "/nonexistent"), says: "there is no cgroup")
        expect(try refusal("--cgroup", "/"), says: "is not a cgroup")
        expect(try refusal("1", "--identifier", "a b"), says: "no identifier", code: 64)

        let (server, connection) = try echo()
        let unit = try TestCgroup("test-\(getpid()).service")
        defer { unit.remove() }
        try unit.add(server.pid)
        expect(try refusal("\(server.pid)"), says: "which systemd manages")
        expect(try refusal("--cgroup", unit.path), says: "another program manages")
        let (other, _) = try echo()
        let container = try TestCgroup("docker-\(getpid())abcdef")
        defer { container.remove() }
        try container.add(other.pid)
        expect(try refusal("\(other.pid)"), says: "which its engine manages")
        let group = try TestCgroup("test-\(getpid())-managed")
        defer { group.remove() }
        expect(try refusal("--cgroup", group.path), says: "no process in")
        let inner = try TestCgroup("test-\(getpid())-managed/inner")
        defer { inner.remove() }
        let (third, thirdConnection) = try echo()
        try inner.add(third.pid)
        expect(try refusal("--cgroup", group.path), says: "in its cgroup inner")
        let foreign = try Program.run(
            "/usr/bin/setpriv",
            [
                "--reuid", "4711", "--regid", "4711", "--clear-groups", "--", Program.product("nightbell"),
                "adopt", "--socket", fixture.socket, "\(third.pid)",
            ])
        expect(foreign, says: "belongs to uid 0", code: 5)
        let adopter = try adopt("\(third.pid)")
        expect(try refusal("\(third.pid)"), says: "client of a supervisor already")
        #expect(try connection.echoes("unharmed") && thirdConnection.echoes("unharmed"))
        for program in [server, other, third] {
            kill(program.pid, SIGKILL)
            _ = try program.outcome()
        }
        #expect(try adopter.outcome().code == 0)
    }
}

private func systemCallSucceeds(_ result: CInt) throws {
    if result != 0 { throw SystemError("mkdir") }
}
