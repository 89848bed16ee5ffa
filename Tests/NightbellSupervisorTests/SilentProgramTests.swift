import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Launched programs that have not said Hello, or never do.
@Suite(.serialized, .timeLimit(.minutes(40))) struct SilentProgramTests {
    private let name = "org.example.phone"
    private let other = "org.example.other"

    @Test func aQuitBeforeHelloEndsTheProgramOfALaunchedShell() throws {
        let directory = NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        let actor = try TestClient(name, socketPath: directory + "/nightbell.sock")
        let marker = directory + ".child"
        defer { unlink(marker) }
        actor.program = "/bin/sh"
        actor.arguments = ["-c", "sleep 1000 & echo $! > \(marker).new; mv \(marker).new \(marker); wait"]
        let declaration = try actor.declaration()
        let supervisor = try TestSupervisor(directory: directory) { $0.declarations = [declaration] }
        #expect(eventually { access(marker, R_OK) == 0 })
        let child = try #require(pid_t(try String(contentsOfFile: marker, encoding: .utf8).dropLast()))
        let process = try ProcessHandle(opening: child)
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        #expect(!Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        try supervisor.stop()
    }

    /// Another launch follows, so what a failed one has left would be a second copy.
    @Test func aShellThatFailsBeforeHelloLeavesNoCopy() throws {
        let directory = NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        let actor = try TestClient(name, socketPath: directory + "/nightbell.sock")
        let marker = directory + ".child"
        defer { unlink(marker) }
        actor.program = "/bin/sh"
        actor.arguments = [
            "-c", "sleep 1000 & echo $! > \(marker).new; mv \(marker).new \(marker); kill -9 $$",
        ]
        let declaration = try actor.declaration()
        let supervisor = try TestSupervisor(directory: directory) {
            $0.settings.launches.retry = .seconds(600)
            $0.settings.launches.retryMaximum = .seconds(600)
            $0.declarations = [declaration]
        }
        #expect(eventually { access(marker, R_OK) == 0 })
        let child = try #require(pid_t(try String(contentsOfFile: marker, encoding: .utf8).dropLast()))
        #expect(eventually { ProcFS.state(child).map { $0 == "Z" } ?? true })
        try supervisor.stop()
    }

    /// A program that knows nothing of Nightbell can save its work, or ignore that it is asked.
    @Test(arguments: [false, true], [false, true])
    func aSilentProgramIsAskedToEnd(isStubborn: Bool, isQuit: Bool) throws {
        let directory = NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        let actor = try TestClient(name, socketPath: directory + "/nightbell.sock")
        let (marker, asked) = (directory + ".runs", directory + ".asked")
        defer { for path in [marker, asked] { unlink(path) } }
        actor.program = "/bin/sh"
        let trap = "echo asked >> \(asked)" + (isStubborn ? "" : "; exit 0")
        actor.arguments = [
            "-c",
            "trap '\(trap)' TERM; echo $$ > \(marker).new; mv \(marker).new \(marker);"
                + " while :; do sleep 1000 & wait; done",
        ]
        let declaration = try actor.declaration()
        let supervisor = try TestSupervisor(directory: directory) {
            $0.settings.budgets.termination = .milliseconds(500)
            $0.declarations = [declaration]
        }
        #expect(eventually { access(marker, R_OK) == 0 })
        let pid = try #require(pid_t(try String(contentsOfFile: marker, encoding: .utf8).dropLast()))
        let process = try ProcessHandle(opening: pid)
        if isQuit {
            try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
            #expect(!Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
            try supervisor.forgets(name)
        }
        try supervisor.stop()
        #expect(!Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        #expect(access(asked, F_OK) == 0, "it was killed without notice")
    }

    /// The shell that was launched ends at once; the program that it has started has the same time, and no
    /// more.
    @Test(arguments: [false, true], ["exit 0", "exit 143"])
    func theProgramsOfASilentShellHaveTime(isQuit: Bool, end: String) throws {
        let directory = NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        let actor = try TestClient(name, socketPath: directory + "/nightbell.sock")
        let (marker, saved, stubborn) = (directory + ".runs", directory + ".saved", directory + ".stubborn")
        defer { for path in [marker, saved, stubborn] { unlink(path) } }
        actor.program = "/bin/sh"
        let saving = "trap 'sleep 0.3; echo > \(saved); exit 0' TERM; while :; do sleep 1000 & wait; done"
        let ignoring = "trap '' TERM; echo $$ > \(stubborn); while :; do sleep 1000; done"
        actor.arguments = [
            "-c",
            """
            trap '\(end)' TERM; sh -c "\(saving)" & sh -c "\(ignoring.replacing("$$", with: "\\$\\$"))" &
            while [ ! -s \(stubborn) ]; do sleep 0.05; done
            echo $$ > \(marker).new; mv \(marker).new \(marker); wait
            """,
        ]
        let declaration = try actor.declaration()
        let supervisor = try TestSupervisor(directory: directory) {
            $0.settings.budgets.termination = .milliseconds(1_500)
            $0.declarations = [declaration]
        }
        #expect(eventually { access(marker, R_OK) == 0 })
        let text = try String(contentsOfFile: stubborn, encoding: .utf8)
        let process = try ProcessHandle(opening: try #require(pid_t(text.dropLast())))
        if isQuit {
            try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
            #expect(!Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        }
        try supervisor.stop()
        #expect(!Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        #expect(access(saved, F_OK) == 0, "it had no time to save")
    }

    /// As while a package is replaced. A crash would have the client given up at once here.
    @Test func aProgramThatIsMissingIsNoCrash() throws {
        let place = try TemporaryDirectory()
        let actor = try TestClient(name, socketPath: place.file("nightbell.sock"))
        let program = actor.program
        actor.program = place.file("program")
        let declaration = try actor.declaration()
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .warning
        let supervisor = try TestSupervisor(directory: place.path, logger: logger) {
            $0.settings.launches.relaunches = 0
            $0.declarations = [declaration]
        }
        func info() throws -> WireClientInfo {
            guard let shown = try supervisor.show(name) else { throw TestFailure("it is not shown") }
            return shown
        }
        #expect(try eventually { try !info().warnings.isEmpty })
        for _ in 0..<3 {
            let before = try info().counters["launches"]
            try supervisor.administrate(.launchClient(.with { $0.identifier = name }))
            #expect(try eventually { try info().counters["launches"] > before && info().state == .dormant })
            let shown = try info()
            #expect(shown.warnings.contains { $0.contains("No such file") && $0.contains("up to 300 s") })
            #expect(shown.counters["crashes"] == 0)
            #expect(shown.stateDetail.contains(/, in \d+ s at the earliest$/), "\(shown.stateDetail)")
        }
        #expect(log.lines.count { $0.contains("cannot launch \(name)") } == 1)
        #expect(symlink(program, actor.program) == 0)
        try supervisor.administrate(.launchClient(.with { $0.identifier = name }))
        let process = try actor.returns()
        supervisor.launched.note(process.pid)
        #expect(try info().warnings.isEmpty)
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        try supervisor.forgets(name)
        try supervisor.stop()
    }

    @Test func aProgramThatNeverSpeaksIsLeftAlone() throws {
        let directory = NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        let actors = try [name, other].map { try TestClient($0, socketPath: directory + "/nightbell.sock") }
        let declarations = try actors.map { try $0.declaration() }
        let log = Log()
        var logger = Logger(label: "test") { _ in log.handler }
        logger.logLevel = .warning
        let supervisor = try TestSupervisor(directory: directory, logger: logger) {
            $0.settings.launches.budget = .milliseconds(300)
            $0.settings.launches.concurrentInBackground = 1
            $0.declarations = declarations
        }
        let silent = try actors[0].appears()
        supervisor.launched.note(silent.pid)
        // It takes no launch slot: the other one is launched when its time is over.
        let speaking = try actors[1].appears()
        supervisor.launched.note(speaking.pid)
        try speaking.command("hello \(other) voip")
        let info = try #require(try supervisor.show(name))
        #expect(info.state == .launching && info.stateDetail.contains("does not speak to Nightbell"))
        #expect(info.processID == UInt32(silent.pid))
        let wake = try WireClient(path: supervisor.socketPath).ask(
            .wakeClient(.with { $0.identifier = name }))
        guard case .error(let refusal) = wake else { throw TestFailure("cannot be woken, and was: \(wake)") }
        #expect(refusal.code == .illegalState)
        #expect(log.lines.count { $0.contains(name) && $0.contains("does not speak to Nightbell") } == 1)
        // It is neither ended nor launched again nor told that it is late.
        #expect(actors[0].staysAway(milliseconds: 1_500))
        try silent.command("hello \(name) voip")
        #expect(try supervisor.show(name)?.processID == UInt32(silent.pid))
        // From now on it is a client that speaks.
        kill(silent.pid, SIGKILL)
        // A process ends by itself when the test releases it.
        var launched: [TestClientProcess] = []
        for _ in 0..<2 {
            launched.append(try actors[0].appears())
            supervisor.launched.note(launched.last?.pid ?? 0)
        }
        try supervisor.stop()
    }
}
