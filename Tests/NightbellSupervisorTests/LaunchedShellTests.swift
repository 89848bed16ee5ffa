import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Programs that a launched process has started: a shell, or a program that makes a session of its own.
@Suite(.serialized, .timeLimit(.minutes(40))) struct LaunchedShellTests {
    private let name = "org.example.phone"
    private let other = "org.example.other"

    private func supervisor() throws -> TestSupervisor {
        try TestSupervisor {
            $0.settings.launches.retry = .milliseconds(20)
            $0.settings.launches.retryMaximum = .milliseconds(80)
            $0.settings.launches.settled = .milliseconds(1)
        }
    }

    /// Has a client hand over a socket and crash; it is launched by this script of the shell from then on.
    ///
    /// - Returns: the other end of the socket.
    private func crash(_ actor: TestClient, launchedBy script: String) throws -> CInt {
        actor.arguments = ["-c", script]
        actor.program = "/bin/sh"
        let first = try actor.start()
        let peer = try first.park("registration")
        kill(first.pid, SIGKILL)
        return peer
    }

    @Test func aProgramStartedByALaunchedShellIsTheClient() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let peer = try crash(actor, launchedBy: "'\(actor.program)'; exit $?")
        defer { close(peer) }
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
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let peer = try crash(actor, launchedBy: "setsid --wait '\(actor.program)'; exit $?")
        defer { close(peer) }
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
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let peer = try crash(
            actor, launchedBy: "setsid --wait env -u NIGHTBELL_LAUNCH '\(actor.program)'; exit $?")
        defer { close(peer) }
        let process = try actor.appears()
        supervisor.launched.note(process.pid)
        try process.command("hello \(other) voip")
        #expect(try supervisor.show(other)?.processID == UInt32(process.pid))
        #expect(try supervisor.show(name)?.state == .launching)
        kill(process.pid, SIGKILL)
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        try supervisor.stop()
    }

    /// A program that a client has started inherits `NIGHTBELL_LAUNCH`. As the client would be launched, so
    /// would be this one, if it were believed.
    @Test(arguments: [false, true]) func aProgramStartedByAClientIsNotLaunchedInItsStead(isNamed: Bool) throws
    {
        let supervisor = try supervisor()
        let actor = try TestClient(other, of: supervisor)
        // This process is the client that starts it.
        let client = try WireClient(supervisor)
        try client.hello(name, launch: actor.specification)
        if isNamed { actor.launchIdentifier = name }
        let child = try actor.start()
        let shown = try #require(try supervisor.show(other))
        #expect(shown.processID == UInt32(child.pid) && !shown.canLaunch)
        #expect(try supervisor.show(name)?.canLaunch == true)
        // Started by `nightbell run`, it is launchable itself.
        actor.arguments = ["--another"]
        actor.launchIdentifier = ""
        try child.command("goodbye")
        try supervisor.forgets(other)
        let second = try actor.start()
        #expect(try supervisor.show(other)?.canLaunch == true)
        #expect(try supervisor.show(other)?.processID == UInt32(second.pid))
        try supervisor.administrate(.quitClient(.with { $0.identifier = other }))
        try supervisor.forgets(other)
        withExtendedLifetime((child, client)) {}
        try supervisor.stop()
    }

    /// `nightbell run --identifier` in a client, with the client's own program.
    @Test func anotherClientOfTheSameProgramIsLaunchableItself() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(other, of: supervisor)
        let client = try WireClient(supervisor)
        actor.launchIdentifier = name
        try client.hello(name, launch: actor.specification)
        actor.launchIdentifier = other
        let child = try actor.start()
        let shown = try #require(try supervisor.show(other))
        #expect(shown.processID == UInt32(child.pid) && shown.canLaunch)
        try supervisor.administrate(.quitClient(.with { $0.identifier = other }))
        try supervisor.forgets(other)
        withExtendedLifetime((child, client)) {}
        try supervisor.stop()
    }

    /// A shell that goes on after its program could start it again, beside the next launch.
    @Test func aShellThatGoesOnIsEndedBeforeTheNextLaunch() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let peer = try crash(actor, launchedBy: "'\(actor.program)'; sleep 1000")
        defer { close(peer) }
        // They end with their channels.
        var processes: [TestClientProcess] = []
        var shells: [pid_t] = []
        func runs(_ shell: pid_t) -> Bool { ProcFS.state(shell).map { $0 != "Z" } ?? false }
        for round in 0..<3 {
            let process = try actor.returns()
            processes.append(process)
            shells.append(getsid(process.pid))
            supervisor.launched.note(shells[round])
            if round > 0 { #expect(eventually { !runs(shells[round - 1]) }, "there are two shells") }
            if round < 2 { kill(process.pid, SIGKILL) }
        }
        #expect(runs(shells[2]))
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        #expect(eventually { !runs(shells[2]) })
        withExtendedLifetime(processes) {}
        try supervisor.forgets(name)
        try supervisor.stop()
    }

    /// A worker knows the shells that the one before has launched.
    @Test func aShellThatGoesOnIsEndedByTheNextWorker() throws {
        let daemon = try DaemonProcess(
            suspension: "none", "--set launches.retry=20ms --set launches.settled=1ms")
        let actor = try TestClient(name, socketPath: daemon.socketPath)
        let peer = try crash(actor, launchedBy: "'\(actor.program)'; sleep 1000")
        defer { close(peer) }
        let second = try actor.returns()
        let shell = try ProcessHandle(opening: getsid(second.pid))
        try daemon.killWorker()
        try daemon.killWorker()
        kill(second.pid, SIGKILL)
        let third = try actor.returns()
        // It has been killed; that takes a moment.
        let hasEnded = !Poll.wait(shell.rawValue, for: .readable, timeoutMilliseconds: 5_000).isEmpty
        #expect(hasEnded, "there are two shells")
        let next = try ProcessHandle(opening: getsid(third.pid))
        #expect(next.pid != third.pid)
        try daemon.killWorker()
        _ = try WireClient(path: daemon.socketPath).ask(.quitClient(.with { $0.identifier = name }))
        kill(third.pid, SIGKILL)
        #expect(!Poll.wait(next.rawValue, for: .readable, timeoutMilliseconds: 30_000).isEmpty)
        withExtendedLifetime((second, third)) {}
    }
}
