import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Real processes, really stopped, by both suspension methods.
@Suite(.serialized) struct FreezingTests {
    typealias Suspension = SupervisorConfiguration.Suspension
    static let ways: [Suspension] = [.cgroup, .signal]
    private let name = SupervisedClient.name

    @Test(arguments: ways) func sleeperIsStoppedAndTrafficThawsIt(way: Suspension) throws {
        let scene = try SupervisedClient(way)
        let (scripted, peer) = (scene.scripted, scene.peer)
        try scripted.enterBackground()
        try scene.reaches(.suspended)
        // It does not run: it does not even read its standard input.
        try scripted.child.send("echo asleep\n")
        if way == .signal { #expect(ProcFS.state(scripted.pid) == "T") }
        try peer.say("INVITE")
        #expect(try scripted.event("wake").contains("socket"))
        #expect(try scripted.event("read").hasPrefix("read flow 6"))
        // It now reads the command that was sent while it slept.
        try scripted.event("ok asleep")
        try scene.reaches(.suspended)
        #expect(try scene.observer.show(name).counters["wakes_socket"] == 1)
        try scene.stop()
    }

    /// Data at every point of falling asleep: at any moment, it is read in time.
    @Test(arguments: ways) func trafficAtAnyMomentOfFallingAsleepIsRead(way: Suspension) throws {
        let scene = try SupervisedClient(way) { $0.settings.wakes.linger = .zero }
        let (scripted, peer) = (scene.scripted, scene.peer)
        try scripted.enterBackground()
        for step in 0..<300 {
            // Falling asleep begins with WakeDone, right after `read` was reported; it takes some 200 µs
            // here.
            let until = BootClock.now() + Int64(step) * 1_000
            while BootClock.now() < until {}
            try peer.say("x")
            #expect(try scripted.event("read").hasPrefix("read flow 1"))
        }
        try scene.reaches(.suspended)
        let counters = try scene.observer.show(name).counters
        #expect(counters["overruns_wake"] == 0 && counters["suspensions_forced"] == 0)
        try scene.stop()
    }

    /// The same, step by step: each state is reached first, then the data is sent.
    @Test(arguments: ways) func trafficInEachStateIsRead(way: Suspension) throws {
        let scene = try SupervisedClient(way)
        let (scripted, peer) = (scene.scripted, scene.peer)
        // In the foreground the input is its own business, but it must not have read it by now.
        try scripted.command("foreground")
        try peer.say("a")
        try scripted.command("hang-enter")
        try scripted.enterBackground()
        // Entering the background.
        try peer.say("b")
        try scripted.command("hang-prepare 200")
        try scripted.command("unhang")
        try scripted.event("read")
        // Asked to prepare, not ready yet.
        try scripted.command("hang-prepare 50")
        try scripted.event("prepare")
        try peer.say("c")
        try scripted.event("wake")
        try scripted.event("read")
        try scene.reaches(.suspended)
        try peer.say("d")
        try scripted.event("read")
        try scene.stop()
    }

    @Test(arguments: ways) func hungClientIsSuspendedByForceAndStillWoken(way: Suspension) throws {
        let scene = try SupervisedClient(way)
        let (scripted, peer) = (scene.scripted, scene.peer)
        try scripted.command("hang-prepare 800")
        try scripted.enterBackground()
        try scene.reaches(.suspended)
        #expect(try scene.observer.show(name).counters["suspensions_forced"] == 1)
        try peer.say("INVITE")
        try scripted.event("read")
        try scene.stop()
    }

    @Test(arguments: ways) func aKilledSleeperIsForgottenAndItsPeerSeesTheEnd(way: Suspension) throws {
        let supervisor = try TestSupervisor(suspension: way)
        let observer = try WireClient(supervisor)
        let scripted = try ScriptedClientProcess(supervisor, name)
        let bystander = try ScriptedClientProcess(supervisor, "org.example.bystander")
        let peer = try scripted.park("flow")
        let other = try bystander.park("flow")
        defer {
            close(peer)
            close(other)
        }
        try scripted.enterBackground()
        try bystander.enterBackground()
        try observer.wait(for: name, toBe: .suspended, supervisor)
        try observer.wait(for: "org.example.bystander", toBe: .suspended, supervisor)
        scripted.child.end()
        var byte: UInt8 = 0
        #expect(recv(peer, &byte, 1, 0) == 0)
        #expect(throws: WireError.self) { try observer.show(name) }
        #expect(try observer.show("org.example.bystander").counters["wakes"] == 0)
        try other.say("still there?")
        try bystander.event("read")
        try supervisor.stop()
    }

    /// `^Z`: the process that stopped it resumes it, not we; events wait meanwhile.
    @Test(arguments: ways) func clientStoppedFromOutsideStaysStopped(way: Suspension) throws {
        let scene = try SupervisedClient(way)
        let (scripted, peer) = (scene.scripted, scene.peer)
        try scripted.enterBackground()
        try scene.reaches(.suspended)
        try peer.say("first")
        try scripted.event("read")
        kill(scripted.pid, SIGSTOP)
        #expect(eventually { ProcFS.state(scripted.pid) == "T" })
        // It cannot answer, so it is suspended by force.
        try scene.reaches(.suspended)
        try peer.say("second")
        try scene.reaches(.background)
        #expect(ProcFS.state(scripted.pid) == "T")
        kill(scripted.pid, SIGCONT)
        try scripted.event("read")
        try scene.reaches(.suspended)
        try scene.stop()
    }

    @Test(arguments: ways) func tracedClientLosesNoTraffic(way: Suspension) throws {
        let scene = try SupervisedClient(way) {
            $0.settings.suspension.confirmation = .milliseconds(100)
        }
        let (scripted, peer) = (scene.scripted, scene.peer)
        let pid = scripted.pid
        // ptrace(2) belongs to a thread: this one traces from beginning to end.
        #expect(ctest_trace(pid) == 0)
        defer { _ = ctest_trace_end(pid) }
        try scripted.enterBackground()
        for _ in 0..<5 {
            try peer.say("x")
            #expect(try scripted.event("read").hasPrefix("read flow"))
        }
        try scene.stop()
    }

    @Test func clientMovedToAnotherCgroupIsBroughtBack() throws {
        let scene = try SupervisedClient(.cgroup)
        let (scripted, peer) = (scene.scripted, scene.peer)
        // Awake for long enough to be moved.
        try scripted.command("hang-wake 300")
        try scripted.enterBackground()
        try scene.reaches(.suspended)
        try peer.say("x")
        try scripted.event("read")
        let place = try String(contentsOfFile: "/proc/\(scripted.pid)/cgroup", encoding: .utf8)
        let line = try #require(place.split(separator: "\n").first { $0.hasPrefix("0::") })
        let mounts = try String(contentsOfFile: "/proc/self/mountinfo", encoding: .utf8).split(
            separator: "\n")
        let mount = try #require(mounts.first { $0.contains(" - cgroup2 ") }?.split(separator: " ")[4])
        let inner = String(mount) + String(line.dropFirst(3))
        let outer = URL(fileURLWithPath: inner).deletingLastPathComponent().deletingLastPathComponent().path
        try "\(scripted.pid)".write(toFile: outer + "/cgroup.procs", atomically: false, encoding: .utf8)
        try scene.reaches(.suspended)
        try peer.say("x")
        try scripted.event("read")
        try scene.stop()
    }

    @Test(arguments: ways) func overrunBackgroundTasksEndTheClient(way: Suspension) throws {
        let scene = try SupervisedClient(way)
        let (scripted, peer) = (scene.scripted, scene.peer)
        #expect(try scripted.command("begin call") == "valid=true")
        try scripted.enterBackground()
        try scripted.event("expiring")
        var byte: UInt8 = 0
        #expect(recv(peer, &byte, 1, 0) == 0)
        let status = try scene.observer.status()
        #expect(status.counters["overruns_background_tasks"] == 1)
        #expect(status.clientsByState.isEmpty)
        try scene.stop()
    }

    @Test(arguments: ways) func quitTellsRunningClientsAndEndsSleepers(way: Suspension) throws {
        let supervisor = try TestSupervisor(suspension: way)
        let observer = try WireClient(supervisor)
        var quit = WireQuitClient()

        let runner = try ScriptedClientProcess(supervisor, "org.example.runner")
        quit.identifier = "org.example.runner"
        #expect(try observer.ask(.quitClient(quit)) == .done(WireDone()))
        try runner.event("will-terminate")
        // It does not end by itself, so it is killed.
        let runnerHandle = try runner.child.handle()
        #expect(!Poll.wait(runnerHandle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)

        let sleeper = try ScriptedClientProcess(supervisor, "org.example.sleeper")
        try sleeper.enterBackground()
        try observer.wait(for: "org.example.sleeper", toBe: .suspended, supervisor)
        let sleeperHandle = try sleeper.child.handle()
        quit.identifier = "org.example.sleeper"
        #expect(try observer.ask(.quitClient(quit)) == .done(WireDone()))
        #expect(!Poll.wait(sleeperHandle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        try supervisor.stop()
    }

    @Test(arguments: ways) func tooManyWakesEndAClientThatAskedForIt(way: Suspension) throws {
        let scene = try SupervisedClient(way, "voip terminate") { $0.settings.wakes.limit = 3 }
        let (scripted, peer) = (scene.scripted, scene.peer)
        let handle = try scripted.child.handle()
        try scripted.enterBackground()
        for _ in 0..<3 {
            try scene.reaches(.suspended)
            try peer.say("x")
            try scripted.event("read")
        }
        try scene.reaches(.suspended)
        try peer.say("x")
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        #expect(try scene.observer.status().counters["wake_limit_exceeded"] == 1)
        try scene.stop()
    }

    @Test(arguments: ways) func stoppingThawsAndThePhonesComeBackToTheNext(way: Suspension) throws {
        let first = try TestSupervisor(suspension: way)
        let directory = first.directory
        let scriptedClients = try (0..<3).map { try ScriptedClientProcess(first, "org.example.phone\($0)") }
        let peers = try scriptedClients.map { try $0.park("flow") }
        defer { for peer in peers { close(peer) } }
        let observer = try WireClient(first)
        for scripted in scriptedClients { try scripted.enterBackground() }
        for index in scriptedClients.indices {
            try observer.wait(for: "org.example.phone\(index)", toBe: .suspended, first)
        }
        try first.stop()
        for scripted in scriptedClients { try scripted.event("lost") }
        let second = try TestSupervisor(suspension: way, directory: directory)
        for scripted in scriptedClients { try scripted.event("reconnected") }
        let newObserver = try WireClient(second)
        for index in scriptedClients.indices {
            try newObserver.wait(for: "org.example.phone\(index)", toBe: .suspended, second)
            #expect(try newObserver.show("org.example.phone\(index)").socketCount == 1)
        }
        for (scripted, peer) in zip(scriptedClients, peers) {
            try peer.say("again")
            try scripted.event("read")
        }
        try second.stop()
    }
}
