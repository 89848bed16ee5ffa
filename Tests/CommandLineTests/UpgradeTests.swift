import EdgeTestSupport
import Foundation
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite("Upgrades", .serialized, .timeLimit(.minutes(40)))
struct UpgradeTests {
    /// A copy of the program, which can be replaced by another.
    private final class Installation {
        let directory: TemporaryDirectory
        var program: String { directory.file("nightbelld") }

        init() throws {
            directory = try TemporaryDirectory()
            try install(Program.product("nightbelld"), as: program)
        }

        /// By a process of its own: processes launched by other tests would have the file open for writing as
        /// well, so that it could not be executed.
        private func install(_ file: String, as program: String) throws {
            #expect(try Program.run("/usr/bin/install", ["-m", "755", file, program]).code == 0)
        }

        /// As in an installation: the new file replaces the old one, which is in use.
        func replace(by script: String) throws {
            let text = directory.file("script")
            try ("#!/bin/sh\n" + script + "\n").write(toFile: text, atomically: false, encoding: .utf8)
            let file = directory.file("new")
            try install(text, as: file)
            rename(file, program)
        }
    }

    private func worker(_ stage: Fixture) throws -> Int {
        let output = try stage.nightbell("status", "--json").output
        let match = try #require(output.firstMatch(of: #/"process_id":(\d+)/#))
        return try #require(Int(match.1))
    }

    private func keepers(_ stage: Fixture) throws -> String {
        let output = try stage.nightbell("status", "--json").output
        return String(try #require(output.firstMatch(of: #/"keeper_process_id":(\d+)/#)).1)
    }

    @Test("nightbell upgrade: another worker, the same keeper, and no client notices", arguments: [1, 3])
    func upgrade(times: Int) throws {
        let stage = try Fixture()
        let scripted = try stage.suspended("org.example.alice")
        var worker = try worker(stage)
        for time in 1...times {
            let outcome = try stage.nightbell("upgrade")
            #expect(outcome.code == 0, "\(outcome) \(stage.daemon.errors)")
            let next = try self.worker(stage)
            #expect(next != worker && outcome.output.contains("process \(next)"))
            worker = next
            #expect(try keepers(stage) == "\(stage.daemon.pid)")
            let status = try stage.nightbell("status", "--json").output
            #expect(status.contains("\"restarts\":\(time)"))
            try stage.reaches("suspended", "org.example.alice")
        }
        // The new worker can be replaced, too, and can thaw clients that another one has frozen.
        kill(pid_t(worker), SIGKILL)
        try scripted.say("echo awake")
        #expect(try stage.nightbell("wake", "org.example.alice").code == 0)
        try scripted.wrote("ok awake")
        #expect(!scripted.output.contains("lost"))
        stage.daemon.send(signal: SIGTERM)
        #expect(try stage.daemon.outcome().code == 0)
    }

    @Test(
        "A program that does not work is stopped, and nothing changes",
        arguments: [
            ("exit 1", "the new program does not start: exit code 1"),
            ("case $* in *--keeper-state*) exit 4; esac; exit 0", "does not start: exit code 4"),
            ("case $* in *--preflight*) exit 0; esac; exit 3", "could not serve: exit code 3"),
            ("case $* in *--preflight*) exit 0; esac; exec sleep 60", "more than five seconds"),
        ])
    func rollback(script: String, reason: String) throws {
        let installation = try Installation()
        let stage = try Fixture(program: installation.program)
        let scripted = try stage.suspended("org.example.bob")
        let worker = try worker(stage)
        try installation.replace(by: script)
        let outcome = try stage.nightbell("upgrade")
        #expect(outcome.code == 1 && outcome.errors.contains(reason), "\(outcome)")
        #expect(try self.worker(stage) == worker)
        try stage.reaches("suspended", "org.example.bob")
        // A worker that dies now is replaced by the working program.
        kill(pid_t(worker), SIGKILL)
        try scripted.say("echo awake")
        #expect(try stage.nightbell("wake", "org.example.bob").code == 0)
        try scripted.wrote("ok awake")
        #expect(!scripted.output.contains("lost"))
        stage.daemon.send(signal: SIGTERM)
        #expect(try stage.daemon.outcome().code == 0)
    }

    @Test("A worker that dies while another program is tried does not count as its success")
    func deathMeanwhile() throws {
        let installation = try Installation()
        let stage = try Fixture(program: installation.program)
        let scripted = try stage.suspended("org.example.carol")
        let worker = try worker(stage)
        let sign = installation.directory.file("tried")
        try installation.replace(
            by: "case $* in *--worker-state*) : > \(sign); sleep 2; exit 3; esac; exit 0")
        let command = try Program(
            "nightbell", ["upgrade"], environment: ["NIGHTBELL_SOCKET": stage.socket])
        #expect(eventually(within: 30_000) { access(sign, F_OK) == 0 })
        kill(pid_t(worker), SIGKILL)
        let outcome = try command.outcome()
        #expect(outcome.code == 1 && outcome.errors.contains("could not serve: exit code 3"), "\(outcome)")
        let next = try self.worker(stage)
        #expect(next != worker)
        // The same with a working program: the request is repeated.
        let program = Program.product("nightbelld")
        unlink(sign)
        try installation.replace(
            by: """
                case $* in *--worker-state*) test -e \(sign) || { : > \(sign); sleep 2; exit 3; }; esac
                exec \(program) "$@"
                """)
        let other = try Program(
            "nightbell", ["upgrade"], environment: ["NIGHTBELL_SOCKET": stage.socket])
        #expect(eventually(within: 30_000) { access(sign, F_OK) == 0 })
        kill(pid_t(next), SIGKILL)
        #expect(try other.outcome().code == 0)
        #expect(stage.daemon.errors.contains("the new worker serves"))
        try scripted.say("echo awake")
        #expect(try stage.nightbell("wake", "org.example.carol").code == 0)
        try scripted.wrote("ok awake")
        #expect(!scripted.output.contains("lost"))
    }

    @Test("Without a keeper there is no upgrade, and not every user may ask for one")
    func refused() throws {
        let stage = try Fixture(["--no-keeper"])
        let outcome = try stage.nightbell("upgrade")
        #expect(outcome.code == 1 && outcome.errors.contains("without a keeper"))
    }

    @Test("Another configuration of the same program is taken over, another directory is not")
    func configuration() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("nightbelld.yaml")
        try "wakes:\n    linger: 50ms\n".write(toFile: file, atomically: false, encoding: .utf8)
        let stage = try Fixture(["--config", file])
        let worker = try worker(stage)
        try "socket: /tmp/elsewhere.sock\n".write(toFile: file, atomically: false, encoding: .utf8)
        let outcome = try stage.nightbell("upgrade")
        #expect(outcome.code == 1 && outcome.errors.contains("configured to be another one"), "\(outcome)")
        try "wakes:\n    nonsense: 50ms\n".write(toFile: file, atomically: false, encoding: .utf8)
        #expect(try stage.nightbell("upgrade").errors.contains("exit code 78"))
        #expect(try self.worker(stage) == worker)
        try "logLevel: debug\n".write(toFile: file, atomically: false, encoding: .utf8)
        #expect(try stage.nightbell("upgrade").code == 0)
        #expect(try self.worker(stage) != worker)
    }
}
