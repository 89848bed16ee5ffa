import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("nightbell, against a real supervisor", .serialized)
struct CommandLineTests {
    @Test("Status, list and show report real clients, as text and as JSON")
    func looks() throws {
        let stage = try Fixture()
        let scripted = try stage.suspended("org.example.alice")
        let status = try stage.nightbell("status")
        #expect(status.code == 0)
        #expect(status.output.contains("1: 1 suspended"))
        let list = try stage.nightbell("list")
        #expect(list.code == 0)
        #expect(list.output.contains("org.example.alice"))
        #expect(list.output.contains("suspended"))
        let show = try stage.nightbell("show", "org.example.alice")
        #expect(show.output.contains("unix stream"))
        #expect(show.output.contains("scripted-client"), "the command that `run` recorded")

        let objects = try #require(try json(stage.nightbell("list", "--json")) as? [[String: Any]])
        #expect(objects.count == 1)
        #expect(objects.first?["identifier"] as? String == "org.example.alice")
        #expect(
            objects.first?["process_id"] as? Int == Int(scripted.pid), "`run` was replaced by the program")
        let info = try #require(
            try json(stage.nightbell("show", "org.example.alice", "--json")) as? [String: Any])
        #expect((info["sockets"] as? [[String: Any]])?.first?["condition"] as? String == "armed")
        #expect(
            (info["launch"] as? [String: Any])?["arguments"] as? [String] == [
                Program.product("scripted-client")
            ])
        let machine = try #require(try json(stage.nightbell("status", "--json")) as? [String: Any])
        let worker = try #require(machine["process_id"] as? Int)
        let facts = try String(contentsOfFile: "/proc/\(worker)/status", encoding: .utf8)
        #expect(facts.contains("PPid:\t\(stage.daemon.pid)\n"))
        #expect(machine["clients_by_state"] as? [String: Int] == ["suspended": 1])
    }

    @Test("A misspelled identifier gets a suggestion", arguments: ["show", "wake", "quit"])
    func nearly(verb: String) throws {
        let stage = try Fixture()
        let scripted = try stage.client("org.example.alice")
        let outcome = try stage.nightbell(verb, "org.exmaple.alice")
        #expect(
            outcome.code == 4 && outcome.errors.hasSuffix(" Did you mean org.example.alice?\n"), "\(outcome)")
        let other = try stage.nightbell(verb, "com.something.else")
        #expect(other.code == 4 && !other.errors.contains("Did you mean"))
        withExtendedLifetime(scripted) {}
    }

    @Test("Watching a client that is not there says so, and waits for it")
    func watchesAnAbsentClient() throws {
        let stage = try Fixture()
        let there = try stage.client("org.example.alice")
        let watch = try Program("nightbell", ["watch", "--socket", stage.socket, "org.example.alise"])
        // By then it watches.
        let isTold = eventually(within: 30_000) {
            watch.errors.hasSuffix(" Did you mean org.example.alice?\n")
        }
        #expect(isTold, "\(watch.errors)")
        let late = try stage.client("org.example.alise")
        try watch.wrote("registered")
        let present = try Program("nightbell", ["watch", "--socket", stage.socket, "org.example.alice"])
        let isConnected = try eventually(within: 30_000) {
            try stage.nightbell("status", "--json").output.contains("\"connections\":5")
        }
        #expect(isConnected)
        stage.daemon.send(signal: SIGTERM)
        #expect(try present.outcome().code == 3)
        #expect(!present.errors.contains("not there"), "\(present.errors)")
        withExtendedLifetime((there, late)) {}
    }

    @Test("A list shows the warnings of a client, as show does")
    func warnings() throws {
        let manifests = try TemporaryDirectory()
        let file = manifests.file("a.yaml")
        try Data("identifier: org.example.broken\ncommand: [/no/such/program]\n".utf8).write(
            to: URL(fileURLWithPath: file))
        chmod(file, 0o644)
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        let isShown = try eventually(within: 30_000) {
            try stage.nightbell("show", "org.example.broken").output.contains("/no/such/program")
                && stage.nightbell("show", "org.example.broken").output.contains("warning")
        }
        #expect(isShown)
        let listed = try #require(try json(stage.nightbell("list", "--json")) as? [[String: Any]])
        #expect((listed.first?["warnings"] as? [String])?.count == 1)
        #expect(try stage.nightbell("list").output.contains("No such file"))
    }

    @Test("Wake, suspend and quit act on the client")
    func acts() throws {
        let stage = try Fixture(["--set", "wakes.linger=50s"])
        let scripted = try stage.suspended("org.example.bob")
        #expect(try stage.nightbell("wake", "org.example.bob").code == 0)
        try scripted.wrote("reasons=request")
        try stage.reaches("background", "org.example.bob")
        #expect(
            try stage.nightbell("suspend", "org.example.bob").code == 0,
            "it does not wait for the linger time")
        try stage.reaches("suspended", "org.example.bob")
        let quit = try stage.nightbell("quit", "org.example.bob", "--json")
        #expect(quit.code == 0)
        #expect(quit.output == "{\"request\":\"quit\",\"identifier\":\"org.example.bob\",\"done\":true}\n")
        _ = try scripted.outcome()
        #expect(try stage.nightbell("show", "org.example.bob").code == 4)
    }

    @Test("Watch prints events and ends with the supervisor")
    func watches() throws {
        let stage = try Fixture()
        let everything = try Program("nightbell", ["watch", "--json", "--socket", stage.socket])
        let another = try Program("nightbell", ["watch", "--socket", stage.socket, "org.example.other"])
        // A watcher that is not connected yet sees nothing: wait for both.
        let connected = try eventually(within: 30_000) {
            try stage.nightbell("status", "--json").output.contains("\"connections\":3")
        }
        #expect(connected)
        let scripted = try stage.suspended("org.example.carol")
        _ = try stage.nightbell("wake", "org.example.carol")
        try everything.wrote("\"kind\":\"wake\"")
        for line in everything.output.split(separator: "\n") {
            let event = try #require(
                try JSONSerialization.jsonObject(with: Data(line.utf8)) as? [String: Any])
            #expect(event["kind"] is String)
            #expect(event["at_unix_ns"] is NSNumber)
        }
        stage.daemon.send(signal: SIGTERM)
        #expect(try everything.outcome().code == 3)
        let other = try another.outcome()
        #expect(other.code == 3)
        #expect(!other.output.contains("carol"))
        withExtendedLifetime(scripted) {}
    }

    @Test("Refusals have exit codes of their own")
    func exitCodes() throws {
        let stage = try Fixture()
        for verb in ["show", "wake", "suspend", "quit"] {
            let outcome = try stage.nightbell(verb, "nobody")
            #expect(outcome.code == 4, "\(verb)")
            #expect(outcome.errors.hasPrefix("nightbell: "))
            #expect(outcome.output.isEmpty)
        }
        #expect(try stage.nightbell("frobnicate").code == 64)
        #expect(try stage.nightbell("show").code == 64)
        #expect(try stage.nightbell("list", "--socket", "/nonexistent/socket").code == 3)
        let scripted = try stage.client("org.example.dora")
        #expect(try stage.nightbell("suspend", "org.example.dora").code == 1, "it is in the foreground")
        withExtendedLifetime(scripted) {}
    }

    @Test(
        "An empty path is a mistake, not a default",
        arguments: ["list", "status", "doctor", "run"])
    func emptySocketPath(verb: String) throws {
        let outcome = try Program.run(
            "nightbell", [verb, "--socket", ""] + (verb == "run" ? ["--", "true"] : []))
        #expect(outcome.code == 64)
        #expect(outcome.errors.contains("--socket needs a path"), "\(outcome)")
    }

    @Test("Another user cannot control the clients of others", .enabled(if: geteuid() == 0, "needs root"))
    func otherUser() throws {
        let stage = try Fixture()
        chmod(stage.directory.path, 0o755)
        let scripted = try stage.client("org.example.eve")
        let drop = ["--reuid", "4711", "--regid", "4711", "--clear-groups", "--"]
        let nightbell = Program.product("nightbell")
        let quit = try Program.run(
            "/usr/bin/setpriv", drop + [nightbell, "quit", "org.example.eve", "--socket", stage.socket])
        #expect([4, 5].contains(quit.code), "\(quit)")
        let list = try Program.run(
            "/usr/bin/setpriv", drop + [nightbell, "list", "--json", "--socket", stage.socket])
        #expect(list.output == "[]\n")
        chmod(stage.socket, 0o600)
        let refused = try Program.run(
            "/usr/bin/setpriv", drop + [nightbell, "status", "--socket", stage.socket])
        #expect(refused.code == 5, "\(refused)")
        #expect(try stage.nightbell("show", "org.example.eve").code == 0, "it is unharmed")
        withExtendedLifetime(scripted) {}
    }

    @Test("Run sets the environment and becomes the program")
    func runs() throws {
        let outcome = try Program.run(
            "nightbell",
            [
                "run", "--identifier", "a.b", "--socket", "relative", "--env", "LEVEL=3", "--env", "NO", "--",
                "env",
            ],
            environment: ["PATH": "/usr/bin:/bin", "SECRET": "s3cr3t", "HOME": "/root"])
        #expect(outcome.code == 0)
        let lines = outcome.output.split(separator: "\n").map(String.init)
        #expect(lines.contains("NIGHTBELL_IDENTIFIER=a.b"))
        #expect(lines.contains("NIGHTBELL_SOCKET=\(FileManager.default.currentDirectoryPath)/relative"))
        #expect(lines.contains("LEVEL=3"))
        #expect(lines.contains("SECRET=s3cr3t"), "the program keeps its environment")
        let launch = try #require(lines.first { $0.hasPrefix("NIGHTBELL_LAUNCH=") })
        let bytes = try #require(Data(base64Encoded: String(launch.dropFirst("NIGHTBELL_LAUNCH=".count))))
        let text = String(decoding: bytes, as: UTF8.self)
        #expect(text.contains("LEVEL") && text.contains("/root"))
        #expect(!text.contains("s3cr3t"), "variables that are not recorded stay private")

        let show = "printf '%s' \"$1\" | od -An -tx1; echo \"[$NIGHTBELL_LAUNCH]\""
        // With the choice of its user alone, which is an identifier of one byte, or with nothing.
        for (option, launch) in [("--identifier a", "IgFh"), ("", "")] {
            let strange = try Program.run(
                "/bin/sh",
                [
                    "-c",
                    "NIGHTBELL_LAUNCH=old exec \"$0\" run \(option) -- /bin/sh -c \"$1\" x \"$(printf 'a\\377b')\"",
                    Program.product("nightbell"), show,
                ], environment: ["PATH": "/usr/bin:/bin"])
            #expect(strange.output == " 61 ff 62\n[\(launch)]\n", "\(strange)")
            #expect(strange.errors.contains("it cannot be launched again"))
        }
        for option in ["--env ", "--env="] {
            let strange = try Program.run(
                "/bin/sh",
                [
                    "-c",
                    "exec \"$0\" run --identifier a \(option)LEVEL=\"$(printf 'a\\377=b')\" -- /bin/sh -c \"$1\"",
                    Program.product("nightbell"), "printf '%s' \"$LEVEL\" | od -An -tx1",
                ], environment: ["PATH": "/usr/bin:/bin"])
            #expect(strange.output == " 61 ff 3d 62\n", "\(strange)")
            #expect(strange.errors.contains("it cannot be launched again"))
        }
        #expect(try Program.run("nightbell", ["run", "--", "/nonexistent"]).code == 127)
        #expect(try Program.run("nightbell", ["run", "--", "/tmp"]).code == 126)
        #expect(try Program.run("nightbell", ["run"]).code == 64)
        #expect(try Program.run("nightbell", ["run", "--identifier", "a b", "--", "true"]).code == 64)
        let unnamed = try Program.run("nightbell", ["run", "--", "/"])
        #expect(unnamed.code == 64 && unnamed.errors.contains("choose one with --identifier"))
    }

    @Test("Doctor counts the descriptors that a supervisor would have")
    func doctorCountsDescriptors() throws {
        var limit = rlimit()
        #expect(getrlimit(__rlimit_resource_t(RLIMIT_NOFILE.rawValue), &limit) == 0)
        let doctor = try Program.run(
            "/bin/sh", ["-c", "ulimit -Sn 200; exec \"$0\" doctor --json", Program.product("nightbell")])
        #expect(doctor.output.contains("\"\(limit.rlim_max) descriptors: about "), "\(doctor)")
    }

    /// The findings of doctor, by key.
    private func findings(_ fixture: Fixture, _ variables: [String: String] = [:]) throws -> [String: String]
    {
        var environment = variables
        environment["NIGHTBELL_SOCKET"] = fixture.socket
        let outcome = try Program.run("nightbell", ["doctor", "--json"], environment: environment)
        let all = try #require(try json(outcome) as? [String: Any])
        var found: [String: String] = [:]
        for finding in try #require(all["findings"] as? [[String: Any]]) {
            let text = [finding["status"], finding["explanation"]].compactMap { $0 as? String }
            found[try #require(finding["key"] as? String)] = text.joined(separator: ": ")
        }
        return found
    }

    @Test("Doctor names each component that tells about the machine, though no client needs it")
    func doctorOfTheMachine() throws {
        let fixture = try Fixture()
        let directory = try TemporaryDirectory()
        let absent = try findings(
            fixture,
            [
                "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(directory.file("bus"))",
                "PIPEWIRE_RUNTIME_DIR": directory.path,
            ])
        #expect(absent["monitor-program"]?.hasPrefix("ok: ") == true)
        #expect(absent["transfer-program"] == "ok: nightbell-transfer runs")
        #expect(absent["system-bus"]?.hasPrefix("warning: nightbell-monitor: the system bus: ") == true)
        #expect(absent["bluez"] == nil)
        #expect(absent["pressure"] != nil && absent["real-time-clock"] != nil && absent["wake-alarm"] != nil)

        let bus = try Program(
            "/usr/bin/dbus-daemon",
            ["--session", "--nofork", "--address=unix:path=\(directory.file("bus"))", "--print-address"])
        try bus.wrote("unix:path=")
        #expect(FileManager.default.createFile(atPath: directory.file("pipewire-0"), contents: nil))
        let owner = try Program(
            "/usr/bin/python3",
            [
                "-c",
                """
                import dbus, sys
                bus = dbus.bus.BusConnection('unix:path=\(directory.file("bus"))')
                bus.request_name('org.bluez')
                bus.request_name('org.freedesktop.login1')
                print('owned', flush=True)
                sys.stdin.read()
                """,
            ])
        try owner.wrote("owned")
        let present = try findings(
            fixture,
            [
                "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=\(directory.file("bus"))",
                "PIPEWIRE_RUNTIME_DIR": directory.path,
            ])
        #expect(present["system-bus"] == nil)
        #expect(present["bluez"]?.hasPrefix("ok: BlueZ is on the system bus") == true)
        #expect(present["logind"]?.hasPrefix("ok: ") == true)
        for key in ["network-manager", "upower", "geoclue"] {
            #expect(present[key]?.hasPrefix("warning: ") == true, "\(key): \(present[key] ?? "missing")")
        }
        #expect(present["pipewire"] == "ok: PipeWire listens at \(directory.path)/pipewire-0")
    }

    @Test("Doctor says if the monitor's program is missing, or cannot run")
    func doctorWithoutMonitor() throws {
        let fixture = try Fixture()
        let directory = try TemporaryDirectory()
        // By another process: a child that this one starts meanwhile would have the copy open for writing,
        // and so it could not be executed.
        func copy(_ program: String, to name: String) throws -> String {
            let copy = directory.file(name)
            #expect(try Program.run("/bin/cp", [program, copy]).code == 0)
            chmod(copy, 0o755)
            return copy
        }
        let program = try copy(Program.product("nightbell"), to: "nightbell")
        func finding() throws -> String {
            try Program.run(program, ["doctor"], environment: ["NIGHTBELL_SOCKET": fixture.socket]).output
        }
        #expect(try finding().contains("there is no nightbell-monitor beside nightbell"))
        #expect(try finding().contains("there is no nightbell-transfer beside nightbell"))
        let script = "#!/bin/sh\necho 'libsystemd.so.0: cannot open shared object file' >&2\nexit 127\n"
        try script.write(toFile: directory.file("script"), atomically: true, encoding: .utf8)
        _ = try copy(directory.file("script"), to: "nightbell-monitor")
        _ = try copy(directory.file("script"), to: "nightbell-transfer")
        #expect(try finding().contains("nightbell-transfer cannot run: libsystemd.so.0"))
        #expect(try finding().contains("cannot run: libsystemd.so.0: cannot open shared object file"))
    }

    @Test("Doctor reports whether a supervisor is there")
    func doctor() throws {
        let stage = try Fixture()
        let there = try #require(try json(stage.nightbell("doctor", "--json")) as? [String: Any])
        let findings = try #require(there["findings"] as? [[String: Any]])
        for key in ["kernel", "cgroup2", "pidfd", "descriptors", "supervisor", "socket"] {
            #expect(findings.contains { $0["key"] as? String == key }, "\(key)")
        }
        #expect(findings.first { $0["key"] as? String == "supervisor" }?["status"] as? String == "ok")
        let away = try stage.nightbell("doctor", "--socket", "/nonexistent/socket")
        #expect(away.code == 1)
        #expect(away.output.contains("/nonexistent/socket"))
        #expect(away.output.contains("→ Start one"))
    }

    private func json(_ outcome: Program.Outcome) throws -> Any {
        #expect(outcome.output.count { $0 == "\n" } == 1, "one line: \(outcome)")
        return try JSONSerialization.jsonObject(with: Data(outcome.output.utf8))
    }
}
