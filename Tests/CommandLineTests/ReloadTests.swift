import EdgeTestSupport
import Foundation
import Glibc
import ProgramTestSupport
import Testing

@Suite("nightbell reload", .serialized)
struct ReloadTests {
    private let files: TemporaryDirectory
    private var configuration: String { files.file("nightbelld.yaml") }

    init() throws {
        files = try TemporaryDirectory()
    }

    private func write(_ text: String, _ name: String = "nightbelld.yaml") throws {
        try Data(text.utf8).write(to: URL(fileURLWithPath: files.file(name)))
        chmod(files.file(name), 0o644)
    }

    private func worker(_ stage: Fixture) throws -> pid_t {
        let output = try stage.nightbell("status", "--json").output
        let match = try #require(output.firstMatch(of: #/"process_id":(\d+)/#))
        return try #require(pid_t(match.1))
    }

    /// Ends a worker by force.
    ///
    /// - Returns: the next one.
    private func replaced(_ worker: pid_t, _ stage: Fixture) throws -> pid_t {
        kill(worker, SIGKILL)
        var next: pid_t?
        #expect(
            eventually(within: 30_000) {
                next = try? self.worker(stage)
                return next.map { $0 != worker } ?? false
            })
        return try #require(next)
    }

    /// The first one sends Hello, the second exceeds the limit.
    private func admits(_ identifier: String, _ stage: Fixture) throws -> (Program, Bool) {
        let scripted = try Program(Program.product("scripted-client"), [])
        try scripted.say("hello \(identifier) voip socket=\(stage.socket)")
        try scripted.say("echo asked")
        try scripted.wrote("asked")
        return (scripted, scripted.output.contains("ok suspension"))
    }

    @Test("Changes apply to this worker and those after it", arguments: [[], ["--no-keeper"]])
    func numbers(arguments: [String]) throws {
        try write("quotas:\n    clientsPerUser: 1\n")
        let stage = try Fixture(["--config", configuration] + arguments)
        let sleeper = try stage.suspended("org.example.alice")
        let before = try worker(stage)
        #expect(try !admits("org.example.bob", stage).1)
        #expect(try stage.nightbell("reload").output == "nothing has changed\n")

        try write("quotas:\n    clientsPerUser: 2\nlogLevel: debug\nsocketMode: 0600\n")
        let outcome = try stage.nightbell("reload", "--json")
        #expect(outcome.code == 0, "\(outcome)")
        let object = try JSONSerialization.jsonObject(with: Data(outcome.output.utf8)) as? [String: [String]]
        #expect(
            object == [
                "changed": [
                    "logLevel is debug now, it was info", "quotas.clientsPerUser is 2 now, it was 1",
                ],
                "kept": ["socketMode is 0600, and 0666 until then"], "problems": [],
            ])
        let (bob, isAdmitted) = try admits("org.example.bob", stage)
        #expect(isAdmitted)
        #expect(try worker(stage) == before)
        try stage.reaches("suspended", "org.example.alice")
        // Reported changes are not reported again.
        #expect(
            try stage.nightbell("reload").output
                == "from the next start: socketMode is 0600, and 0666 until then\n")
        defer { withExtendedLifetime(bob) {} }
        guard arguments.isEmpty else { return }

        // The file is invalid by now, and the next worker gets the settings of this one. The keeper, which reads the
        // file as well, has done so once there is another worker.
        let last = try replaced(before, stage)
        try write("quotas: nonsense\n")
        try sleeper.say("echo awake")
        _ = try replaced(last, stage)
        #expect(try !admits("org.example.carol", stage).1)
        #expect(try stage.nightbell("wake", "org.example.alice").code == 0)
        try sleeper.wrote("ok awake")
        try write("quotas:\n    clientsPerUser: 2\nlogLevel: debug\n")
        #expect(try stage.nightbell("reload").output == "nothing has changed\n")
    }

    @Test("A configuration that cannot be used changes nothing")
    func mistakes() throws {
        try write("wakes:\n    limit: 7\n")
        let stage = try Fixture(["--config", configuration])
        try write("wakes:\n    limit: 8\n    limt: 9\n")
        let outcome = try stage.nightbell("reload")
        #expect(outcome.code == 1)
        #expect(outcome.errors.contains("\(configuration):3: wakes.limt is not a key"), "\(outcome)")
        try write("wakes:\n    limit: 8\n")
        #expect(try stage.nightbell("reload").output == "changed: wakes.limit is 8 now, it was 7\n")
    }

    @Test("SIGHUP does the same, and the log reports it", arguments: [[], ["--no-keeper"]])
    func signal(arguments: [String]) throws {
        try write("wakes:\n    limit: 7\n")
        let stage = try Fixture(["--config", configuration] + arguments)
        let before = try worker(stage)
        try write("wakes:\n    limit: 8\n")
        stage.daemon.send(signal: SIGHUP)
        #expect(eventually(within: 30_000) { stage.daemon.errors.contains("changed: wakes.limit is 8 now") })
        #expect(try worker(stage) == before)
        try write("wakes:\n    limit: none\n")
        stage.daemon.send(signal: SIGHUP)
        #expect(
            eventually(within: 30_000) { stage.daemon.errors.contains("the configuration is not read again") }
        )
        #expect(try stage.nightbell("status").code == 0)
    }

    @Test("Another user may not reload", .enabled(if: geteuid() == 0, "needs root"))
    func strangers() throws {
        let stage = try Fixture()
        chmod(stage.directory.path, 0o755)
        let outcome = try Program.run(
            "/usr/bin/setpriv",
            [
                "--reuid", "4711", "--regid", "4711", "--clear-groups", "--", Program.product("nightbell"),
                "reload", "--socket", stage.socket,
            ])
        #expect(outcome.code == 5, "\(outcome)")
    }

    @Test("Manifests: a new client is launched, a changed one counts from its next launch")
    func manifests() throws {
        let manifests = try TemporaryDirectory()
        func declare(_ name: String, _ words: String) throws {
            let path = manifests.file(name + ".yaml")
            let text = """
                identifier: org.example.\(name)
                command: [/bin/sh, -c, 'echo "\(words)"; exec sleep 1000']
                output: \(files.file(name))

                """
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, 0o644)
        }
        func says(_ name: String, _ words: String) -> Bool {
            eventually(within: 30_000) {
                (try? String(contentsOfFile: files.file(name), encoding: .utf8))?.hasSuffix(words + "\n")
                    == true
            }
        }
        try declare("one", "first")
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        #expect(says("one", "first"))
        try declare("two", "new")
        let outcome = try stage.nightbell("reload")
        #expect(outcome.output == "changed: org.example.two is declared, and launched\n", "\(outcome)")
        #expect(says("two", "new"))

        try Data("identifier: a b\ncommand: [/p]\n".utf8).write(
            to: URL(fileURLWithPath: manifests.file("bad.yaml")))
        chmod(manifests.file("bad.yaml"), 0o644)
        unlink(manifests.file("two.yaml"))
        let mistakes = try stage.nightbell("reload")
        #expect(mistakes.code == 1)
        #expect(mistakes.output.hasPrefix("changed: org.example.two is no longer declared"), "\(mistakes)")
        #expect(
            mistakes.output.contains("problem: \(manifests.file("bad.yaml")):1: identifier"), "\(mistakes)")
        #expect(try stage.nightbell("list").output.contains("org.example.one"))
    }

    @Test("Others are served while long files are read")
    func longFiles() throws {
        let manifests = try TemporaryDirectory()
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        let lines = (0..<20_000).map { "key\($0): x" }
        let path = manifests.file("long.yaml")
        try Data(lines.joined(separator: "\n").utf8).write(to: URL(fileURLWithPath: path))
        chmod(path, 0o644)
        let reload = try Program(Program.product("nightbell"), ["reload", "--socket", stage.socket])
        var answers = 0
        while reload.output.isEmpty, answers < 100 {
            #expect(try stage.nightbell("status").code == 0)
            if reload.output.isEmpty { answers += 1 }
        }
        // If it were read in between, one of them would wait for all of it.
        #expect(answers >= 3)
        let outcome = try reload.outcome()
        #expect(outcome.code == 1)
        #expect(outcome.output.contains("has 19902 more mistakes"), "\(outcome.output.suffix(1_000))")
    }

    @Test("A client that sleeps without a process is relaunched as it is declared now")
    func change() throws {
        let manifests = try TemporaryDirectory()
        func declare(_ word: String) throws {
            let path = manifests.file("phone.yaml")
            let text = """
                identifier: org.example.phone
                command: [\(Program.product("scripted-client"))]
                environment: { WORD: \(word) }
                startsWithSupervisor: false

                """
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, 0o644)
        }
        try declare("before")
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        let scripted = try Program(Program.product("scripted-client"), [])
        try scripted.say("hello org.example.phone voip socket=\(stage.socket)")
        try scripted.wrote("ok suspension")
        #expect(
            try stage.nightbell("show", "org.example.phone", "--json").output.contains("\"WORD\":\"before\""))
        try declare("after")
        #expect(
            try stage.nightbell("reload").output
                == "changed: org.example.phone has a changed declaration, which counts from its next launch\n"
        )
        for _ in 0..<2 {
            #expect(
                try stage.nightbell("show", "org.example.phone", "--json").output.contains(
                    "\"WORD\":\"after\""))
            // The next worker has it as well.
            let before = try worker(stage)
            kill(before, SIGKILL)
            #expect(eventually(within: 30_000) { (try? worker(stage)).map { $0 != before } ?? false })
        }
    }

    @Test("A client that was given up is launched when its declaration has changed")
    func another() throws {
        let manifests = try TemporaryDirectory()
        func declare(_ command: String) throws {
            let path = manifests.file("phone.yaml")
            let text = """
                identifier: org.example.phone
                command: [/bin/sh, -c, '\(command)']

                """
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, 0o644)
        }
        try declare("exit 1")
        let stage = try Fixture([
            "--set", "manifestDirectory=\(manifests.path)", "--set", "launches.retry=10ms",
            "--set", "launches.retryMaximum=10ms", "--set", "launches.relaunches=1",
        ])
        #expect(try eventually(within: 30_000) { try stage.nightbell("show", "org.example.phone").code == 4 })
        #expect(try stage.nightbell("reload").output == "nothing has changed\n")
        try declare("exec sleep 1000")
        #expect(
            try stage.nightbell("reload").output
                == "changed: org.example.phone has a changed declaration, and is launched\n")
        try stage.reaches("launching", "org.example.phone")
        // A client that was quit is not.
        #expect(try stage.nightbell("quit", "org.example.phone").code == 0)
        #expect(try eventually(within: 30_000) { try stage.nightbell("show", "org.example.phone").code == 4 })
        try declare("exec sleep 1001")
        #expect(
            try stage.nightbell("reload").output
                == "changed: org.example.phone has a changed declaration, which counts from its next launch or Hello\n"
        )
    }

    @Test(
        "A client that is declared for another user now is a problem",
        .enabled(if: geteuid() == 0, "needs root"))
    func otherUser() throws {
        let manifests = try TemporaryDirectory()
        func declare(_ user: String) throws {
            let path = manifests.file("phone.yaml")
            let text = "identifier: org.example.phone\ncommand: [/bin/sleep, 1000]\nuser: \(user)\n"
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, 0o644)
        }
        try declare("root")
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        try stage.reaches("launching", "org.example.phone")
        try declare("nobody")
        let outcome = try stage.nightbell("reload")
        #expect(outcome.code == 1)
        #expect(outcome.output.contains("problem: org.example.phone is declared for uid "), "\(outcome)")
        #expect(outcome.output.contains("a client of uid 0 goes by it: quit that"), "\(outcome)")
    }

    @Test("A long report is cut off, and the log has all of it")
    func longReport() throws {
        let manifests = try TemporaryDirectory()
        let stage = try Fixture(["--set", "manifestDirectory=\(manifests.path)"])
        // A line of the report has some 140 bytes.
        let count = 1_000
        let name = String(repeating: "n", count: 120)
        for number in 0..<count {
            let path = manifests.file("\(number).yaml")
            let text = """
                identifier: \(name).\(number)
                command: [/bin/true]
                startsWithSupervisor: false

                """
            try Data(text.utf8).write(to: URL(fileURLWithPath: path))
            chmod(path, 0o644)
        }
        let outcome = try stage.nightbell("reload")
        #expect(outcome.code == 0, "\(outcome.errors)")
        let lines = outcome.output.split(separator: "\n")
        #expect(lines.count > 100 && lines.count < count)
        #expect(lines.last == "changed: \(count - lines.count + 1) more, which are in the log")
    }

    /// Another user's client keeps its identifier while it runs; each reload says so.
    @Test(
        "A declared identifier that another user's client has is reported until it is free",
        .enabled(if: geteuid() == 0, "needs root"))
    func takenIdentifier() throws {
        let manifests = files.file("clients.d")
        try FileManager.default.createDirectory(atPath: manifests, withIntermediateDirectories: true)
        try write("manifestDirectory: \(manifests)\n")
        let stage = try Fixture(["--config", configuration])
        chmod(stage.directory.path, 0o755)
        let name = "org.example.taken"
        let stranger = try Program(
            "/usr/bin/setpriv",
            ["--reuid=65534", "--regid=65534", "--clear-groups", Program.product("scripted-client")])
        try stranger.say("hello \(name) voip socket=\(stage.socket)")
        try stranger.wrote("ok suspension")
        try write("identifier: \(name)\ncommand: [/bin/sleep, '1000']\n", "clients.d/taken.yaml")
        for _ in 0..<2 {
            let outcome = try stage.nightbell("reload")
            #expect(outcome.code == 1, "\(outcome)")
            let problem = "\(name) is declared for uid 0, and a client of uid 65534 goes by it"
            #expect(outcome.output.contains(problem), "\(outcome)")
        }
        try stranger.say("exit 0")
        #expect(try eventually { try !stage.nightbell("list").output.contains(name) })
        #expect(try stage.nightbell("reload").code == 0)
        let shown = try stage.nightbell("show", name)
        #expect(shown.code == 4 && shown.errors.contains("nightbell launch starts it"), "\(shown)")
        #expect(try stage.nightbell("launch", name).code == 0)
        let record = try stage.nightbell("show", "--json", name).output
        #expect(record.contains(#""uid":0"#), "\(record)")
        #expect(try stage.nightbell("quit", name).code == 0)
    }

    /// It counts from the next launch, also for a program that has not said Hello, and never does.
    @Test("A changed declaration of a client that is being launched counts")
    func changedWhileLaunching() throws {
        let manifests = files.file("clients.d")
        try FileManager.default.createDirectory(atPath: manifests, withIntermediateDirectories: true)
        try write("manifestDirectory: \(manifests)\nlaunches:\n    retry: 20ms\n")
        func declare(_ seconds: Int) throws {
            try write(
                "identifier: org.example.silent\ncommand: [/bin/sleep, '\(seconds)']\n",
                "clients.d/silent.yaml")
        }
        try declare(1_001)
        let stage = try Fixture(["--config", configuration])
        func pid() throws -> pid_t? {
            let shown = try stage.nightbell("show", "--json", "org.example.silent").output
            return shown.firstMatch(of: #/"process_id":([1-9]\d*)/#).flatMap { pid_t($0.1) }
        }
        func runs(_ seconds: Int, besides old: pid_t?) throws -> pid_t? {
            guard let pid = try pid(), pid != old else { return nil }
            let command = try? String(contentsOfFile: "/proc/\(pid)/cmdline", encoding: .utf8)
            return command == "/bin/sleep\0\(seconds)\0" ? pid : nil
        }
        var first: pid_t?
        #expect(
            try eventually {
                first = try runs(1_001, besides: nil); return first != nil
            })
        for (round, seconds) in [1_002, 1_003].enumerated() {
            try declare(seconds)
            let outcome = try stage.nightbell("reload")
            #expect(outcome.code == 0 && outcome.output.contains("counts from its next launch"), "\(outcome)")
            // The next worker has it from the record.
            if round == 1 { kill(try worker(stage), SIGKILL) }
            #expect(try eventually { try pid() == first })
            kill(try #require(first), SIGKILL)
            let old = first
            #expect(
                try eventually(within: 30_000) {
                    first = try runs(seconds, besides: old); return first != nil
                })
        }
        #expect(try stage.nightbell("quit", "org.example.silent").code == 0)
    }
}
