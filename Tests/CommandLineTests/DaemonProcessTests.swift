import EdgeTestSupport
import Foundation
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite("nightbelld, as a process", .serialized)
struct DaemonProcessTests {
    @Test(
        "It notifies its service manager, and ends with 0 on every stop signal",
        arguments: [(SIGTERM, []), (SIGINT, []), (SIGTERM, ["--no-keeper"])])
    func stops(how: (signal: CInt, arguments: [String])) throws {
        let stage = try Fixture(how.arguments)
        stage.daemon.send(signal: how.signal)
        try stage.manager.heard("STOPPING=1")
        #expect(try stage.daemon.outcome().code == 0)
        #expect(try stage.nightbell("status").code == 3)
    }

    @Test("It may have as many descriptors as the hard limit allows")
    func idle() throws {
        let stage = try Fixture()
        let limits = try String(contentsOfFile: "/proc/\(stage.daemon.pid)/limits", encoding: .utf8)
        let line = try #require(limits.split(separator: "\n").first { $0.hasPrefix("Max open files") })
        let numbers = line.split(separator: " ").compactMap { Int($0) }
        #expect(numbers.count == 2 && numbers[0] == numbers[1])
    }

    @Test("A second supervisor exits and leaves the first one's clients asleep")
    func second() throws {
        let stage = try Fixture()
        let scripted = try stage.suspended("org.example.frank")
        for arguments in [[], ["--thaw-leftovers"]] {
            let second = try Program.run(
                "nightbelld", ["--system", "--runtime-directory", stage.directory.path] + arguments)
            #expect(second.code == 71)
            #expect(second.errors.contains("another supervisor uses \(stage.directory.path)\n"))
            #expect(!second.errors.contains("thawed"))
        }
        try scripted.say("echo awake")
        let info = try stage.nightbell("show", "org.example.frank", "--json").output
        #expect(info.contains("\"state\":\"suspended\""))
        #expect(!scripted.output.contains("awake"), "it runs although it is suspended")
    }

    /// The second one gets the method by which to thaw, also another one than that of the stop.
    @Test(
        "Stopped clients of a killed supervisor are thawed on request, and no cgroup is left",
        arguments: [("auto", "auto"), ("signal", "signal"), ("cgroup", "signal"), ("cgroup", "none")])
    func leftovers(methods: (first: String, second: String)) throws {
        let stage = try Fixture(["--suspend", methods.first, "--no-keeper"])
        let scripted = try stage.suspended("org.example.grace")
        stage.daemon.send(signal: SIGKILL)
        #expect(try stage.daemon.outcome().code == 128 + 9)
        try scripted.say("echo awake")
        #expect(!scripted.output.contains("awake"), "it is not thawed yet")
        let thaw = try Program.run(
            "nightbelld",
            [
                "--system", "--thaw-leftovers", "--suspend", methods.second, "--runtime-directory",
                stage.directory.path,
            ])
        #expect(thaw.code == 0, "\(thaw)")
        #expect(thaw.errors.contains("thawed pid \(scripted.pid)"), "\(thaw)")
        try scripted.wrote("ok awake")
        #expect(cgroupsLeft(by: stage.directory.path) == [])
    }

    /// A mistake must not keep processes frozen: it is reported, and everything else counts.
    @Test("Stopped clients are thawed in spite of a mistake in the configuration")
    func leftoversOfAMistake() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("nightbelld.yaml")
        let stage = try Fixture(["--no-keeper"])
        let scripted = try stage.suspended("org.example.mallory")
        stage.daemon.send(signal: SIGKILL)
        #expect(try stage.daemon.outcome().code == 128 + 9)
        try scripted.say("echo awake")
        for text in ["logLevel: loud\n", "no: such\n", "  - [\n"] {
            try text.write(toFile: file, atomically: false, encoding: .utf8)
            #expect(try Program.run("nightbelld", ["--system", "--config", file]).code == 78)
        }
        // Where it ran is not known, or no more.
        let place = stage.directory.path
        for text in ["runtimeDirectory: \(place)\nwakes: [oops\n", "runtimeDirectroy: \(place)\n"] {
            try text.write(toFile: file, atomically: false, encoding: .utf8)
            let lost = try Program.run("nightbelld", ["--system", "--thaw-leftovers", "--config", file])
            #expect(lost.code == 78 && lost.errors.contains("--runtime-directory"), "\(lost)")
        }
        #expect(!scripted.output.contains("awake"))
        try "nonsense: 1\nlogLevel: loud\nruntimeDirectory: \(stage.directory.path)\n".write(
            toFile: file, atomically: false, encoding: .utf8)
        let thaw = try Program.run("nightbelld", ["--system", "--thaw-leftovers", "--config", file])
        #expect(thaw.code == 0, "\(thaw)")
        #expect(thaw.errors.contains("thawed pid \(scripted.pid)"), "\(thaw)")
        #expect(thaw.errors.contains("nonsense is not a key") && thaw.errors.contains("loud"), "\(thaw)")
        try scripted.wrote("ok awake")
    }

    @Test("A configuration that others could have written is refused, and a FIFO is not waited for")
    func distrustedConfiguration() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("nightbelld.yaml")
        try "logLevel: info\n".write(toFile: file, atomically: false, encoding: .utf8)
        #expect(chmod(file, 0o666) == 0)
        func problem(_ path: String) throws -> String {
            let outcome = try Program.run(
                "nightbelld", ["--system", "--config", path, "--print-configuration"])
            #expect(outcome.code == 78)
            return outcome.errors
        }
        #expect(try problem(file).contains("can be written to by others than its owner"))
        #expect(chmod(file, 0o644) == 0 && chown(file, 65_534, 65_534) == 0)
        #expect(try problem(file).contains("belongs to uid 65534"))
        let fifo = directory.file("fifo")
        #expect(mkfifo(fifo, 0o644) == 0)
        #expect(try problem(fifo).contains("is not a file"))
        // Defaults would apply unnoticed if a link to nothing counted as no file.
        let link = directory.file("link")
        #expect(symlink("gone.yaml", link) == 0)
        #expect(try problem(link).contains("is a link to a file that is missing"))
    }

    @Test("An orderly stop thaws and notifies all clients")
    func thawsAtTheEnd() throws {
        let stage = try Fixture()
        let scripted = try stage.suspended("org.example.heidi")
        stage.daemon.send(signal: SIGTERM)
        try scripted.wrote("supervisor-stopping")
        #expect(try stage.daemon.outcome().code == 0)
    }

    @Test("Invalid configuration is refused with its file and line")
    func wrongConfiguration() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("nightbelld.yaml")
        try "wakes:\n    limits: 3\n".write(toFile: file, atomically: false, encoding: .utf8)
        let outcome = try Program.run("nightbelld", ["--system", "--config", file])
        #expect(outcome.code == 78)
        #expect(
            outcome.errors == "nightbelld: \(file):2: wakes.limits is not a key; did you mean wakes.limit?\n"
                || outcome.errors.hasPrefix("nightbelld: \(file):2: wakes.limits is not a key"))
        #expect(try Program.run("nightbelld", ["--system", "--set", "wakes.limit=0"]).code == 78)
        #expect(try Program.run("nightbelld", ["--user"]).code == 78, "XDG_RUNTIME_DIR is not set")
        #expect(try Program.run("nightbelld", ["--user", "--system"]).code == 64)
        #expect(try Program.run("nightbelld", ["--set", "nothing"]).code == 64)
    }

    @Test("File, environment and flags reach the running supervisor")
    func configured() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("nightbelld.yaml")
        try "suspension:\n    method: none\nsocketMode: 0640\n".write(
            toFile: file, atomically: false, encoding: .utf8)
        let stage = try Fixture(["--config", file], environment: ["NIGHTBELL_LOG_LEVEL": "critical"])
        let status = try stage.nightbell("status").output
        #expect(status.contains(file))
        #expect(status.contains("none"))
        let attributes = try FileManager.default.attributesOfItem(atPath: stage.socket)
        #expect(attributes[.posixPermissions] as? Int == 0o640)
        #expect(stage.daemon.errors.isEmpty, "only critical messages were asked for")
    }

    @Test("The whole configuration can be printed")
    func printed() throws {
        let outcome = try Program.run(
            "nightbelld", ["--system", "--print-configuration"], environment: ["NIGHTBELL_WAKES_LIMIT": "7"])
        #expect(outcome.code == 0)
        #expect(outcome.output.contains("    limit: 7  # environment\n"))
    }

    @Test("Log lines have a time, or a priority for the journal")
    func logLines() throws {
        let plain = try Fixture()
        #expect(plain.daemon.errors.contains(#/(?m)^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z notice ready /#))
        let journal = try Fixture([], environment: ["JOURNAL_STREAM": "8:1"])
        #expect(journal.daemon.errors.contains(#/(?m)^<5>ready /#))
    }

    @Test("A per-user supervisor uses XDG_RUNTIME_DIR", .enabled(if: geteuid() == 0, "needs root"))
    func perUser() throws {
        let directory = try TemporaryDirectory()
        chown(directory.path, 4_711, 4_711)
        let manager = try Listener()
        let daemon = try Program(
            "/usr/bin/setpriv",
            ["--reuid", "4711", "--regid", "4711", "--clear-groups", "--", Program.product("nightbelld")],
            environment: ["XDG_RUNTIME_DIR": directory.path, "NOTIFY_SOCKET": manager.address])
        defer { try? FileManager.default.removeItem(atPath: directory.file("nightbell")) }
        try manager.heard("READY=1")
        let socket = directory.file("nightbell/nightbell.sock")
        let attributes = try FileManager.default.attributesOfItem(atPath: socket)
        #expect(attributes[.posixPermissions] as? Int == 0o600)
        let status = try Program.run(
            "nightbell", ["status"], environment: ["XDG_RUNTIME_DIR": directory.path])
        #expect(status.code == 0)
        #expect(status.output.contains(socket))
        daemon.send(signal: SIGTERM)
        #expect(try daemon.outcome().code == 0)
    }
}
