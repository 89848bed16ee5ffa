import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Synchronization
import Testing

/// The worker is killed, and neither clients nor their peers notice.
@Suite(.serialized, .timeLimit(.minutes(40))) struct RestartTests {
    static let ways = ["cgroup", "signal"]
    private let name = "org.example.phone"

    private func suspended(_ daemon: DaemonProcess, _ name: String) throws {
        // Each worker serves its own observers.
        try WireClient(path: daemon.socketPath).wait(for: name, toBe: .suspended, path: daemon.socketPath)
    }

    @Test(arguments: ways) func sleeperSleepsOnAndCanBeWoken(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon, name)
        for round in 1...5 {
            try daemon.killWorker()
            let info = try WireClient(path: daemon.socketPath).show(name)
            #expect(info.state == .suspended && info.processID == UInt32(scripted.pid))
            #expect(info.sockets.map(\.name) == ["flow"] && info.counters["wakes"] == UInt64(round - 1))
            #expect(try WireClient(path: daemon.socketPath).status().restarts == UInt64(round))
            try peer.say("call")
            #expect(try scripted.event("wake").contains("id=\(round) reasons=socket"))
            #expect(try scripted.event("read").hasPrefix("read flow 4"))
            try suspended(daemon, name)
        }
        try scripted.child.send("echo awake\n")
        while let heard = try scripted.child.hear(within: 100) { #expect(!heard.contains("awake")) }
    }

    @Test(arguments: ways) func inputThatArrivesWhileNoWorkerServesWakes(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon, name)
        for _ in 0..<10 {
            kill(try daemon.worker(), SIGKILL)
            try peer.say("call")
            #expect(try scripted.event("read").hasPrefix("read flow 4"))
            try suspended(daemon, name)
        }
    }

    /// Deaths at any moment of waking and falling asleep: each byte is read, and no wake is passed on twice.
    @Test(arguments: ways) func deathsAtAnyMomentLoseNothing(way: String) throws {
        let daemon = try DaemonProcess(suspension: way, "--set wakes.limit=1000000")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon, name)
        var random = SystemRandomNumberGenerator()
        for _ in 0..<60 {
            let worker = try daemon.worker()
            try peer.say("x")
            let until = BootClock.now() + Int64.random(in: 0..<3_000_000, using: &random)
            while BootClock.now() < until {}
            kill(worker, SIGKILL)
            #expect(try scripted.event("read").hasPrefix("read flow 1"))
        }
        try suspended(daemon, name)
        try peer.say("last")
        #expect(try scripted.event("read").hasPrefix("read flow 4"))
        let numbers = try scripted.heard("wake").map {
            try #require(Int($0.split(separator: "=")[1].split(separator: " ")[0]))
        }
        // A wake noticed early has the number of the next one that is sent.
        #expect(numbers == numbers.sorted() && numbers.count <= 61, "\(numbers)")
        #expect(scripted.heard("lost").isEmpty && scripted.heard("reconnected").isEmpty)
    }

    @Test func aClientThatEndedWhileNoWorkerServedIsCounted() throws {
        let daemon = try DaemonProcess(suspension: "signal")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon, name)
        try peer.say("call")
        try scripted.event("read")
        try suspended(daemon, name)
        let worker = try daemon.worker()
        try #require(stop(worker))
        let handle = try scripted.child.handle()
        kill(scripted.pid, SIGKILL)
        try #require(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        kill(worker, SIGKILL)
        let observer = try WireClient(path: daemon.socketPath)
        #expect(try eventually { try observer.status().sockets == 0 && observer.status().connections == 1 })
        let status = try observer.status()
        #expect(status.restarts == 1 && status.counters["wakes"] == 1)
        #expect(throws: (any Error).self) { try observer.show(name) }
        // The identifier is free again for the same user.
        try ScriptedClientProcess(path: daemon.socketPath, name).command("goodbye")
    }

    /// While workers find too few descriptors, clients sleep on; when there are more, they can be woken.
    @Test(arguments: ways) func clientsOutliveALackOfDescriptors(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        // More of them than a worker needs descriptors to begin with.
        var sleepers: [(scripted: ScriptedClientProcess, peer: Int32)] = []
        defer { for sleeper in sleepers { close(sleeper.peer) } }
        for number in 0..<8 {
            let scripted = try ScriptedClientProcess(path: daemon.socketPath, "\(name).\(number)")
            sleepers.append((scripted, try scripted.park("flow")))
            try scripted.enterBackground()
            try suspended(daemon, "\(name).\(number)")
        }
        let keeper = daemon.child.pid
        func limit(_ count: rlim_t) throws {
            _ = try systemCall("prlimit") { ctest_limit_descriptors(keeper, count) }
        }
        let used = rlim_t(try #require(ProcFS.openDescriptors(keeper)))
        var starved = 0
        for spare in stride(from: 6, to: 30, by: 2) as StrideTo<rlim_t> {
            let worker = try daemon.worker()
            try limit(used + spare)
            kill(worker, SIGKILL)
            let observer = try WireClient(path: daemon.socketPath)
            try observer.send(.status(WireStatus()), request: 1)
            let answer = try? observer.receiveIfAny(within: 200)
            if answer == nil { starved += 1 }
            try limit(1_024)
            // One that has taken over nonetheless may have no descriptor left for connections.
            for worker in children(of: keeper) { kill(worker, SIGKILL) }
            let sleepOn = eventually {
                (try? WireClient(path: daemon.socketPath).status().clientsByState) == ["suspended": 8]
            }
            try #require(sleepOn, "with \(spare) descriptors")
        }
        #expect(starved > 2 && starved < 12)
        for (scripted, peer) in sleepers {
            try peer.say("call")
            #expect(try scripted.event("read").hasPrefix("read flow 4"))
            #expect(scripted.heard("lost").isEmpty && scripted.heard("reconnected").isEmpty)
        }
    }

    private func children(of pid: pid_t) -> [pid_t] {
        let text = (try? SmallFile.readText("/proc/\(pid)/task/\(pid)/children")) ?? ""
        return text.split(separator: " ").compactMap { pid_t($0) }
    }

    /// The worker dies before the table of identifiers is written again.
    @Test func anIdentifierThatWasGivenUpIsNotRecalledFromTheTable() throws {
        let directory = try TemporaryDirectory()
        let daemon = try DaemonProcess(suspension: "none", "--set stateDirectory='\(directory.path)'")
        let table = directory.file("identifiers")
        func contains() -> Bool {
            guard let bytes = try? Data(contentsOf: URL(fileURLWithPath: table)) else { return false }
            return bytes.range(of: Data(name.utf8)) != nil
        }
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        try scripted.command("goodbye")
        #expect(eventually { contains() })
        let before = try Data(contentsOf: URL(fileURLWithPath: table))
        func forget() throws -> WireSupervisorMessage.OneOf_Body {
            try WireClient(path: daemon.socketPath).ask(.forgetClient(.with { $0.identifier = name }))
        }
        guard case .done = try forget() else { throw TestFailure("not forgotten") }
        let worker = try daemon.worker()
        #expect(eventually { !contains() })
        try #require(stop(worker))
        try before.write(to: URL(fileURLWithPath: table))
        kill(worker, SIGKILL)
        guard case .error(let error) = try forget() else { throw TestFailure("it was recalled") }
        #expect(error.code == .noSuchClient)
        #expect(eventually { !contains() })
    }

    @Test func runningClientNoticesNothing() throws {
        let daemon = try DaemonProcess(suspension: "cgroup")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        // One command after the other, each answered, even if workers die meanwhile.
        let killing = Killing(daemon)
        func command(_ text: String) throws -> String {
            defer { killing.noteProgress() }
            return try scripted.command(text)
        }
        for round in 0..<200 {
            _ = try command("unix-pair a")
            _ = try command("handover a voip")
            _ = try command("keepalive \(1_000 + round)")
            let task = try command("begin work")
            #expect(task == "valid=true")
            _ = try command("remaining")
            _ = try command("foreground")
            _ = try command("end work")
            _ = try command("close-released a")
            _ = try command("close a.peer")
        }
        #expect(try killing.finish() > 2)
        #expect(scripted.heard("lost").isEmpty && scripted.heard("reconnected").isEmpty)
        let info = try WireClient(path: daemon.socketPath).show(name)
        #expect(info.sockets.isEmpty && info.backgroundTasks.isEmpty && info.keepAliveTimeoutMs == 1_199)
        #expect(info.connectedMs > 0 && info.state == .active)
    }

    @Test func clientsComeAndGoWhileWorkersDie() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let atFirst = try #require(ProcFS.openDescriptors(daemon.child.pid))
        let killing = Killing(daemon)
        for round in 0..<40 {
            let scripted = try ScriptedClientProcess(path: daemon.socketPath, "\(name).\(round % 4)")
            try scripted.command("unix-pair a")
            killing.noteProgress()
            try scripted.command("handover a voip")
            killing.noteProgress()
            if round % 2 == 0 { try scripted.command("goodbye") }
            let handle = try scripted.child.handle()
            try scripted.child.send("exit 0\n")
            _ = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000)
        }
        #expect(try killing.finish() > 2)
        let observer = try WireClient(path: daemon.socketPath)
        // Nothing of them is left, neither in the worker nor in the keeper.
        #expect(try eventually { try observer.status().sockets == 0 && observer.status().connections == 1 })
        #expect(eventually { ProcFS.openDescriptors(daemon.child.pid) ?? .max < atFirst + 5 })
    }

    @Test(arguments: ways) func keepAliveDeadlinesHold(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        try scripted.command("keepalive 400")
        var last = BootClock.now()
        try scripted.enterBackground()
        for _ in 0..<8 {
            try daemon.killWorker()
            let line = try scripted.event("keepalive")
            let at = try #require(Int64(line.dropFirst("keepalive at=".count)))
            let pause = (at - last) / 1_000_000
            // The machine may be busy; the test is that the clock does not start anew with each worker.
            #expect(pause < 400 + 250, "\(pause) ms after the one before")
            last = at
        }
    }

    @Test func identifiersStayWithTheirUsers() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "umask 0")
        var ours: WireClient? = try WireClient(path: daemon.socketPath)
        try ours?.hello("org.example.ours")
        ours = nil
        try daemon.killWorker()
        let path = daemon.socketPath
        try OwnThread {
            guard ctest_become(65_534) == 0 else { throw TestFailure("cannot become another user") }
            let thief = try WireClient(path: path)
            var hello = WireHello()
            hello.version = 1
            hello.identifier = "org.example.ours"
            try thief.send(.hello(hello), request: 1)
            #expect(try thief.end()?.code == .identifierOfOtherUser)
        }.join()
    }

    @Test func theEndOfAClientWhileNoWorkerServesIsNoticed() throws {
        let daemon = try DaemonProcess(suspension: "cgroup")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(daemon, name)
        #expect(stop(try daemon.worker()))
        let worker = try #require(Self.children(of: daemon.child.pid).first)
        scripted.child.end()
        kill(worker, SIGKILL)
        // Its peer sees the end, though the keeper had the socket open as well.
        #expect(Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 10_000).contains(.peerClosed))
        let observer = try WireClient(path: daemon.socketPath)
        #expect(try observer.status().sockets == 0)
    }

    private static func children(of pid: pid_t) throws -> [pid_t] {
        let text = try String(contentsOfFile: "/proc/\(pid)/task/\(pid)/children", encoding: .utf8)
        return text.split(separator: " ").compactMap { pid_t($0) }
    }

    @Test func afterTheKeepersDeathClientsAreThawedAndReconnect() throws {
        let first = try DaemonProcess(suspension: "cgroup")
        let scripted = try ScriptedClientProcess(path: first.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        try suspended(first, name)
        first.child.end()
        try scripted.child.send("echo awake\n")
        try scripted.event("ok awake")
        let second = try eventuallyStarted(first.directory)
        try scripted.event("reconnected")
        try suspended(second, name)
        try peer.say("call")
        try scripted.event("read")
    }

    /// The worker of a killed keeper has its directory until it has informed all clients.
    private func eventuallyStarted(_ directory: String) throws -> DaemonProcess {
        var daemon: DaemonProcess?
        let isStarted = eventually {
            daemon = try? DaemonProcess(suspension: "cgroup", directory: directory)
            return daemon != nil
        }
        guard isStarted, let daemon else { throw TestFailure("no other daemon starts") }
        return daemon
    }
}

/// Kills one worker after the other, for as long as it lives.
final class Killing {
    private let end = EndMark()
    private let progress = Progress()
    private let thread: OwnThread<Int>

    init(_ daemon: DaemonProcess) {
        nonisolated(unsafe) let daemon = daemon
        let (end, progress) = (end, progress)
        thread = OwnThread {
            var count = 0
            while !end.isReached {
                let before = progress.count
                try daemon.killWorker()
                count += 1
                // On a slow machine nothing would ever be completed between two deaths.
                _ = eventually { end.isReached || progress.count != before }
            }
            return count
        }
    }

    deinit { end.reach() }

    /// A step was completed in spite of the deaths.
    func noteProgress() { progress.note() }

    /// Returns the number of workers killed.
    func finish() throws -> Int {
        end.reach()
        return try thread.join()
    }
}

/// Counted by one thread for another.
private final class Progress: Sendable {
    private let number = Atomic(0)

    var count: Int { number.load(ordering: .relaxed) }

    func note() { number.add(1, ordering: .relaxed) }
}

/// Set once, by another thread.
private final class EndMark: Sendable {
    private let mark = Atomic(false)

    var isReached: Bool { mark.load(ordering: .relaxed) }

    func reach() { mark.store(true, ordering: .relaxed) }
}
