import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Launchable clients that hang up long before their process has ended, if it ever does.
@Suite(.serialized) struct SlowEndTests {
    private let name = "org.example.phone"

    /// A supervisor that is told of the client by others: a process in a namespace of its own is not trusted
    /// to say how it is started.
    private func stage() throws -> (TestSupervisor, TestClient) {
        let directory = NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        let actor = try TestClient(name, socketPath: directory + "/nightbell.sock")
        var registration = Registration(
            identifier: try #require(ClientIdentifier(name)), user: geteuid(), modes: [.voip])
        registration.isLaunchable = true
        let launch = LaunchSpecification(
            arguments: actor.specification.arguments, environment: actor.specification.environment)
        let declaration = Declaration(
            registration, launch: launch, identity: nil, startsWithSupervisor: false)
        let supervisor = try TestSupervisor(directory: directory) {
            $0.settings.launches.retry = .milliseconds(20)
            $0.declarations = [declaration]
        }
        return (supervisor, actor)
    }

    /// The first process of a PID namespace ends when all others of it have ended and were reaped; its
    /// descriptors are closed by then.
    @Test(.enabled(if: geteuid() == 0, "needs root")) func aClientThatTakesLongToEndHasCrashed()
        throws
    {
        let (supervisor, actor) = try stage()
        let namespace = try Child(
            "/usr/bin/unshare", ["--pid", "--fork", "--", actor.program],
            environment: actor.specification.environment)
        let first = try actor.appears()
        try first.command("hello \(name) voip socket=\(supervisor.socketPath)")
        let peer = try first.park("registration")
        defer { close(peer) }
        let info = try #require(try supervisor.show(name))
        let pid = pid_t(info.processID)

        let other = try Child("/usr/bin/nsenter", "--pid=/proc/\(pid)/ns/pid", "/bin/cat")
        #expect(try other.answers())
        // It has no process to reap.
        kill(other.pid, SIGSTOP)
        #expect(eventually { ProcFS.state(other.pid) == "T" })

        kill(pid, SIGKILL)
        #expect(eventually { ProcFS.isExiting(pid) })
        // Much longer than the wait for a client that has only deregistered.
        #expect(try !eventually(within: 2_500) { try supervisor.show(name) == nil })
        #expect(ProcFS.isExiting(pid))
        kill(other.pid, SIGCONT)
        let second = try actor.returns()
        supervisor.launched.note(second.pid)
        #expect(try second.event("restored").hasPrefix("restored launched=true sockets=registration:3 "))
        #expect(try supervisor.show(name)?.counters["crashes"] == 1)
        withExtendedLifetime(namespace) {}
        try supervisor.stop()
    }

    /// The first thread stays a zombie for as long as the others live.
    @Test func aProcessWithoutItsFirstThreadIsNoClientAnyMore() throws {
        let (supervisor, actor) = try stage()
        let process = try Child(actor.program, [], environment: actor.specification.environment)
        let first = try actor.appears()
        try first.command("hello \(name) voip socket=\(supervisor.socketPath)")
        try first.command("end-main-thread")
        #expect(eventually { ProcFS.state(process.pid) == "Z" })
        try first.command("goodbye")
        try supervisor.forgets(name)
        #expect(try first.command("pid") == "\(process.pid)")
        try supervisor.stop()
    }
}
