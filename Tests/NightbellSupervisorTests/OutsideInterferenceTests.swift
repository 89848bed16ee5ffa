import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// Another process resumes a sleeper. The kernel does not report that, but a status request shows the truth,
/// and the sleeper is put to sleep again.
@Suite(.serialized) struct OutsideInterferenceTests {
    typealias Suspension = SupervisorConfiguration.Suspension

    /// Ways to resume a sleeper behind the supervisor's back.
    enum Interference: String, CaseIterable {
        /// Stopped by us, continued by others.
        case continued
        /// Stopped by others before we did, continued by them.
        case stoppedAndContinued
        /// Thawed from outside.
        case thawed
        /// Moved out of its cgroup, and thereby thawed.
        case moved

        var way: Suspension {
            switch self {
            case .continued, .stoppedAndContinued: .signal
            case .thawed, .moved: .cgroup
            }
        }
    }

    enum Question: String, CaseIterable { case list, show, status, suspend }

    private let name = "org.example.phone"

    /// Puts the test client to sleep, and then resumes it.
    private func interfere(
        _ interference: Interference, _ scripted: ScriptedClientProcess, _ peer: Int32,
        _ observer: WireClient,
        _ supervisor: TestSupervisor
    ) throws {
        try scripted.enterBackground()
        try observer.wait(for: name, toBe: .suspended, supervisor)
        switch interference {
        case .continued:
            kill(scripted.pid, SIGCONT)
        case .stoppedAndContinued:
            try peer.say("x")
            try scripted.event("read")
            let lingers = try eventually { try observer.show(name).stateDetail == "lingering" }
            #expect(lingers)
            kill(scripted.pid, SIGSTOP)
            // It cannot answer, so it is suspended by force, as far as that works.
            try observer.wait(for: name, toBe: .suspended, supervisor)
            kill(scripted.pid, SIGCONT)
        case .thawed:
            try "0".write(
                toFile: try cgroup(of: scripted) + "/cgroup.freeze", atomically: false, encoding: .utf8)
        case .moved:
            let inner = URL(fileURLWithPath: try cgroup(of: scripted))
            let outer = inner.deletingLastPathComponent().deletingLastPathComponent().path
            try "\(scripted.pid)".write(
                toFile: outer + "/cgroup.procs", atomically: false, encoding: .utf8)
        }
        // It runs, for it answers; and the supervisor has not noticed.
        try scripted.command("echo running")
    }

    private func cgroup(of scripted: ScriptedClientProcess) throws -> String {
        let place = try String(contentsOfFile: "/proc/\(scripted.pid)/cgroup", encoding: .utf8)
        let line = try #require(place.split(separator: "\n").first { $0.hasPrefix("0::") })
        let mounts = try String(contentsOfFile: "/proc/self/mountinfo", encoding: .utf8)
        let mount = try #require(
            mounts.split(separator: "\n").first { $0.contains(" - cgroup2 ") }?.split(separator: " ")[4])
        return String(mount) + line.dropFirst(3)
    }

    private func isStopped(_ scripted: ScriptedClientProcess, _ interference: Interference) throws -> Bool {
        switch interference.way {
        case .signal: ProcFS.state(scripted.pid) == "T"
        case .cgroup, .auto, .none:
            try String(contentsOfFile: try cgroup(of: scripted) + "/cgroup.events", encoding: .utf8)
                .contains("frozen 1")
        }
    }

    private func watcher(_ supervisor: TestSupervisor) throws -> WireClient {
        let watcher = try WireClient(supervisor)
        guard case .done = try watcher.ask(.watch(WireWatch())) else { throw TestFailure("cannot watch") }
        return watcher
    }

    /// The supervisor has noticed.
    private func notices(_ watcher: WireClient) throws {
        #expect(try watcher.event { $0.kind == "running" }.identifier == name)
    }

    @Test(arguments: Interference.allCases, Question.allCases)
    func aStatusRequestShowsTheTruth(_ interference: Interference, _ question: Question) throws {
        let supervisor = try TestSupervisor(suspension: interference.way) {
            // The forced suspension comes soon; the one after it is discovered leaves time to check.
            $0.settings.budgets.prepareToSuspend = .milliseconds(100)
            $0.settings.wakes.linger = .milliseconds(600)
        }
        let observer = try WireClient(supervisor)
        let scripted = try ScriptedClientProcess(supervisor, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        let watcher = try watcher(supervisor)
        try interfere(interference, scripted, peer, observer, supervisor)
        switch question {
        case .list:
            try observer.send(.list(WireList()), request: 900)
            guard case .clientInfos(let part) = try observer.answer(to: 900) else {
                throw TestFailure("no list")
            }
            #expect(part.clients.map(\.state) == [.background])
        case .show:
            #expect(try observer.show(name).state == .background)
        case .status:
            #expect(try observer.status().clientsByState == ["background": 1])
        case .suspend:
            var suspend = WireSuspendClient()
            suspend.identifier = name
            #expect(try observer.ask(.suspendClient(suspend)) == .done(WireDone()))
        }
        try notices(watcher)
        // It may read again, and is then really put to sleep.
        try observer.wait(for: name, toBe: .suspended, supervisor)
        #expect(try isStopped(scripted, interference))
        #expect(try observer.show(name).state == .suspended)
        try peer.say("INVITE")
        try scripted.event("read")
        try supervisor.stop()
    }

    /// Not every message of a client is a request that calls it back.
    @Test(arguments: [Interference.continued, .thawed])
    func aMessageRevealsARunningSleeper(_ interference: Interference) throws {
        let supervisor = try TestSupervisor(suspension: interference.way) {
            $0.settings.budgets.wake = .milliseconds(100)
            $0.settings.budgets.prepareToSuspend = .milliseconds(100)
        }
        let observer = try WireClient(supervisor)
        let watcher = try watcher(supervisor)
        let scripted = try ScriptedClientProcess(supervisor, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.command("hang-wake")
        try scripted.enterBackground()
        try observer.wait(for: name, toBe: .suspended, supervisor)
        // Woken, it hangs until it is suspended by force in the middle of it.
        try peer.say("x")
        try scripted.event("read")
        try observer.wait(for: name, toBe: .suspended, supervisor)
        #expect(try observer.show(name).counters["suspensions_forced"] == 1)
        switch interference {
        case .continued, .stoppedAndContinued, .moved:
            kill(scripted.pid, SIGCONT)
        case .thawed:
            try "0".write(
                toFile: try cgroup(of: scripted) + "/cgroup.freeze", atomically: false, encoding: .utf8)
        }
        // WakeDone: far too late, but it shows that the client runs. No status request is made meanwhile.
        try scripted.child.send("unhang\n")
        try scripted.event("unhung")
        try notices(watcher)
        try observer.wait(for: name, toBe: .suspended, supervisor)
        #expect(try isStopped(scripted, interference))
        try supervisor.stop()
    }

    /// A status request and a call at one moment: the sleeper runs because the call has thawed it, and is
    /// told of the call.
    @Test(arguments: ["cgroup", "signal"]) func askingAtTheMomentOfACall(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let worker = try daemon.worker()
        let observer = try WireClient(path: daemon.socketPath)
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, name)
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        for round in 1...20 {
            try observer.wait(for: name, toBe: .suspended, path: daemon.socketPath)
            #expect(try observer.show(name).counters["wakes_socket"] == UInt64(round - 1))
            // Stopped, the worker finds both when it runs again, the request first.
            #expect(stop(worker))
            var show = WireShow()
            show.identifier = name
            try observer.send(.show(show), request: 1_000_000 + UInt64(round))
            try peer.say("INVITE")
            kill(worker, SIGCONT)
            #expect(try scripted.event("wake").contains("socket"))
            try scripted.event("read")
            _ = try observer.answer(to: 1_000_000 + UInt64(round))
        }
        #expect(try observer.show(name).counters["suspensions_cancelled"] == 0)
    }

    /// A client that really sleeps is left alone, however many requests are made.
    @Test(arguments: [Suspension.cgroup, .signal, .none])
    func statusRequestsDoNotWake(way: Suspension) throws {
        let supervisor = try TestSupervisor(suspension: way)
        let observer = try WireClient(supervisor)
        let scriptedClients = try (0..<3).map {
            try ScriptedClientProcess(supervisor, "org.example.phone\($0)")
        }
        for (number, scripted) in scriptedClients.enumerated() {
            try scripted.enterBackground()
            try observer.wait(for: "org.example.phone\(number)", toBe: .suspended, supervisor)
        }
        for _ in 0..<50 {
            #expect(try observer.status().clientsByState == ["suspended": 3])
            #expect(try observer.show("org.example.phone1").state == .suspended)
        }
        #expect(try observer.status().counters["suspensions"] == 3)
        try supervisor.stop()
    }

    /// More clients than are inspected in one turn.
    @Test func statusOfManyClients() throws {
        let supervisor = try TestSupervisor()
        let clients = try (0..<200).map { try WireClient(supervisor, "org.example.phone\($0)") }
        for client in clients { try client.goToSleep() }
        let observer = try WireClient(supervisor)
        for client in 0..<200 {
            try observer.wait(for: "org.example.phone\(client)", toBe: .suspended, supervisor)
        }
        try observer.send(.status(WireStatus()), request: 901)
        var show = WireShow()
        show.identifier = "org.example.phone7"
        try observer.send(.show(show), request: 902)
        // In the order of the requests.
        guard case .supervisorStatus(let status)? = try observer.receive().body else {
            throw TestFailure("no status")
        }
        #expect(status.clientsByState == ["suspended": 200])
        guard case .clientInfo = try observer.receive().body else { throw TestFailure("no answer") }
        try supervisor.stop()
    }
}
