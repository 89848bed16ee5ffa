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

    /// The supervisor gets the identifier, but not how to start the program again.
    @Test func theIdentifierGivenToRunWinsIfNotAllIsUTF8() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        // Closes the quotes of the shell around it.
        let strange = #"--env=STRANGE='"$(printf "\377")"'"#
        let process = try actor.run(["--identifier", name, strange])
        try process.command("hello \(other) voip")
        let shown = try #require(try supervisor.show(name))
        #expect(shown.processID == UInt32(process.pid))
        #expect(!shown.hasLaunch)
        #expect(try supervisor.show(other) == nil)
        try process.say("exit 0")
        try supervisor.forgets(name)
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
}
