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

/// The identity of launched processes, and whether they can be launched again: one rule for every program and
/// every worker.
@Suite(.serialized, .timeLimit(.minutes(40))) struct LaunchIdentityTests {
    private let name = "org.example.phone"
    private let other = "org.example.other"

    private func supervisor(
        _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws -> TestSupervisor {
        try TestSupervisor {
            $0.settings.launches.retry = .milliseconds(20)
            $0.settings.launches.retryMaximum = .milliseconds(80)
            configure(&$0)
        }
    }

    private func info(_ daemon: DaemonProcess) throws -> WireClientInfo {
        try WireClient(path: daemon.socketPath).show(name)
    }

    private func makeDormant(_ process: TestClientProcess, _ daemon: DaemonProcess) throws {
        try process.say("hibernate")
        try process.say("background")
        let isReached = try eventually(within: 20_000) { try self.info(daemon).state == .dormant }
        guard isReached else { throw TestFailure("it is \(try info(daemon).state)") }
    }

    // MARK: Started by hand

    @Test func aRecordedLaunchHoldsForAProcessWithoutASpecification() throws {
        // Each crash must be that of a settled client: two in a row at the start would drop the state.
        let daemon = try DaemonProcess(
            suspension: "none", "--set launches.retry=20ms --set launches.settled=1ms")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        try makeDormant(first, daemon)
        for round in 1...2 {
            let byHand = try actor.start(isRecorded: false)
            #expect(try info(daemon).canLaunch)
            try byHand.command("save-state round \(round)")
            if round == 2 {
                try daemon.killWorker()
                #expect(try info(daemon).canLaunch)
            }
            kill(byHand.pid, SIGKILL)
            let next = try actor.returns()
            let restored = try next.event("restored")
            #expect(restored.hasSuffix("sockets=registration:3 state=round \(round)"))
            try makeDormant(next, daemon)
        }
    }

    @Test func anUntrustedLaunchSpecificationRemovesTheOneBefore() throws {
        guard geteuid() == 0 else { return }
        let daemon = try DaemonProcess(suspension: "none", before: "umask 0", "--set launches.retry=20ms")
        chmod(daemon.directory, 0o755)
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        try makeDormant(first, daemon)
        let confined = try actor.start(isConfined: true)
        #expect(try !info(daemon).canLaunch)
        try daemon.killWorker()
        #expect(try !info(daemon).canLaunch)
        kill(confined.pid, SIGKILL)
        #expect(
            try eventually { try WireClient(path: daemon.socketPath).status().clientsByState.isEmpty })
        #expect(actor.staysAway())
    }

    // MARK: Names

    @Test func aLaunchedProgramHasTheIdentifierOfItsLaunch() throws {
        let supervisor = try supervisor { $0.settings.launches.budget = .milliseconds(400) }
        let actor = try TestClient(name, of: supervisor)
        var process = try actor.start()
        let peer = try process.park("registration")
        defer { close(peer) }
        for _ in 0..<2 {
            kill(process.pid, SIGKILL)
            process = try actor.appears()
            supervisor.launched.note(process.pid)
            try process.command("hello \(other) voip")
            #expect(try process.event("restored").contains("launched=true sockets=registration:3 "))
            let info = try #require(try supervisor.show(name))
            #expect(info.processID == UInt32(process.pid) && info.canLaunch)
            #expect(info.warnings.contains { $0.contains(other) && $0.contains(name) }, "\(info.warnings)")
            #expect(try supervisor.show(other) == nil)
        }
        // For longer than a launch may take.
        #expect(actor.staysAway(milliseconds: 1_000))
        #expect(try supervisor.show(name)?.processID == UInt32(process.pid))
        try supervisor.stop()
    }

    /// Both are in the record of the client: what is shown does not depend on the worker.
    @Test func theIdentifierOfItsProgramAndItsSleepAreShownByEachWorker() throws {
        let daemon = try DaemonProcess(
            suspension: "none", "--set launches.retry=20ms --set launches.settled=1ms")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let first = try actor.start()
        try first.say("background")
        #expect(try eventually { try info(daemon).state == .suspended })
        // Long enough to be told from the sleep of the next process.
        #expect(try eventually { try info(daemon).counters.asleepNs > 1_500_000_000 })
        kill(first.pid, SIGKILL)
        let second = try actor.appears()
        try second.command("hello \(other) voip")
        for round in 0..<2 {
            let shown = try info(daemon)
            #expect(shown.warnings.contains { $0.contains(other) }, "round \(round): \(shown.warnings)")
            #expect(shown.counters.asleepNs > 1_500_000_000)
            #expect(shown.asleepSinceHelloNs < 1_000_000_000, "round \(round)")
            if round == 0 { try daemon.killWorker() }
        }
    }

    /// As one that the program has made by `connect`.
    @Test func callsOnTheConnectionOfALaunchedProgramBlock() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        let process = try actor.appears()
        supervisor.launched.note(process.pid)
        let variable = "NIGHTBELL_CONNECTION_FD="
        let environment = try SmallFile.readText("/proc/\(process.pid)/environ").split(separator: "\0")
        let number = try #require(environment.first { $0.hasPrefix(variable) }).dropFirst(variable.count)
        let flags = try SmallFile.readText("/proc/\(process.pid)/fdinfo/\(number)").split(separator: "\n")
            .first { $0.hasPrefix("flags:") }.flatMap { $0.split(whereSeparator: \.isWhitespace).last }
        let value = try #require(flags.flatMap { Int32($0, radix: 8) })
        #expect(value & O_NONBLOCK == 0)
        try process.command("hello \(name) voip")
        try supervisor.stop()
    }

    @Test func theIdentifierGivenToRunWins() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        var process = try actor.run(["--identifier", name])
        for round in 0..<3 {
            if round > 0 { supervisor.launched.note(process.pid) }
            try process.command("hello \(other) voip")
            #expect(try supervisor.show(name)?.processID == UInt32(process.pid))
            #expect(try supervisor.show(other) == nil)
            kill(process.pid, SIGKILL)
            process = try actor.appears()
        }
        supervisor.launched.note(process.pid)
        try supervisor.stop()
    }

    /// The program's own identifier is only a proposal.
    @Test func withoutAnIdentifierForRunTheProgramHasItsOwn() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let process = try actor.run([])
        try process.command("hello \(other) voip")
        #expect(try supervisor.show(other)?.processID == UInt32(process.pid))
        #expect(try supervisor.show("scripted-client") == nil)
        try process.say("exit 0")
        try supervisor.forgets(other)
        try supervisor.stop()
    }

    // MARK: Programs that start others

    @Test func aProgramStartedByALaunchedShellIsTheClient() throws {
        let supervisor = try supervisor { $0.settings.launches.settled = .milliseconds(1) }
        let actor = try TestClient(name, of: supervisor)
        actor.arguments = ["-c", "'\(actor.program)'; exit $?"]
        actor.program = "/bin/sh"
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        var shells: [pid_t] = []
        for round in 0..<4 {
            let process = try actor.returns()
            shells.append(getsid(process.pid))
            supervisor.launched.note(getsid(process.pid))
            #expect(shells[round] != process.pid, "the shell is to be its parent")
            #expect(try process.event("restored").contains("launched=true sockets=registration:"))
            #expect(try process.event("wake").contains("reasons=\(round == 3 ? "socket" : "relaunched")"))
            #expect(try supervisor.show(name)?.processID == UInt32(process.pid))
            // The input that woke the last one is unread.
            if round < 3 { try peer.say("call") }
            try process.command("read registration")
            #expect(try process.event("read").hasPrefix("read registration 4 "))
            guard round < 3 else { break }
            if round < 2 {
                kill(process.pid, SIGKILL)
            } else {
                try process.say("hibernate")
                try process.say("background")
                try supervisor.reaches(.dormant, name)
                try peer.say("call")
            }
        }
        // The launched shells have been reaped.
        #expect(ProcFS.state(shells[0]) == nil && ProcFS.state(shells[1]) == nil)
        try supervisor.stop()
    }

    /// As `setsid --wait`, `script` and `su` do.
    @Test func aProgramInASessionOfItsOwnIsTheClient() throws {
        let supervisor = try supervisor { $0.settings.launches.settled = .milliseconds(1) }
        let actor = try TestClient(name, of: supervisor)
        actor.arguments = ["-c", "setsid --wait '\(actor.program)'; exit $?"]
        actor.program = "/bin/sh"
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        for _ in 0..<3 {
            let process = try actor.returns()
            supervisor.launched.note(process.pid)
            #expect(getsid(process.pid) == process.pid)
            #expect(try process.event("restored").contains("launched=true sockets=registration:"))
            #expect(try supervisor.show(name)?.processID == UInt32(process.pid))
            kill(process.pid, SIGKILL)
        }
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        try supervisor.forgets(name)
        try supervisor.stop()
    }

    /// A launched program that says nothing itself may have opened a terminal. `NIGHTBELL_LAUNCH` holds the
    /// identifier of the recorded launch; what a manifest declares is launched without it.
    @Test func anotherProgramInASessionOfItsOwnIsAClientOfItsOwn() throws {
        let supervisor = try supervisor { $0.settings.launches.settled = .milliseconds(1) }
        let actor = try TestClient(name, of: supervisor)
        actor.arguments = ["-c", "setsid --wait env -u NIGHTBELL_LAUNCH '\(actor.program)'; exit $?"]
        actor.program = "/bin/sh"
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        let process = try actor.appears()
        supervisor.launched.note(process.pid)
        try process.command("hello \(other) voip")
        #expect(try supervisor.show(other)?.processID == UInt32(process.pid))
        #expect(try supervisor.show(name)?.state == .launching)
        kill(process.pid, SIGKILL)
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        try supervisor.stop()
    }

    /// A shell that goes on after its program could start it again, beside the next launch.
    @Test func aShellThatGoesOnIsEndedBeforeTheNextLaunch() throws {
        let supervisor = try supervisor { $0.settings.launches.settled = .milliseconds(1) }
        let actor = try TestClient(name, of: supervisor)
        actor.arguments = ["-c", "'\(actor.program)'; sleep 1000"]
        actor.program = "/bin/sh"
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        kill(first.pid, SIGKILL)
        // They end with their channels.
        var processes: [TestClientProcess] = []
        var shells: [pid_t] = []
        func runs(_ shell: pid_t) -> Bool { ProcFS.state(shell).map { $0 != "Z" } ?? false }
        for round in 0..<3 {
            let process = try actor.returns()
            processes.append(process)
            shells.append(getsid(process.pid))
            supervisor.launched.note(shells[round])
            if round > 0 { #expect(!runs(shells[round - 1]), "there are two shells") }
            if round < 2 { kill(process.pid, SIGKILL) }
        }
        #expect(runs(shells[2]))
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        #expect(eventually { !runs(shells[2]) })
        withExtendedLifetime(processes) {}
        try supervisor.forgets(name)
        try supervisor.stop()
    }

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

    // MARK: Programs that never say Hello

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

extension TestClient {
    /// As a manifest would declare it.
    fileprivate func declaration() throws -> Declaration {
        let launch = LaunchSpecification(
            arguments: specification.arguments, directory: "/", environment: specification.environment)
        var registration = Registration(
            identifier: try #require(ClientIdentifier(identifier)), user: geteuid(), modes: .voip)
        registration.isLaunchable = true
        return Declaration(registration, launch: launch, identity: nil, startsWithSupervisor: true)
    }
}
