import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Clients without a process, and the processes that replace them. All are real.
@Suite(.serialized) struct ComingBackTests {
    private let name = "org.example.phone"

    private func supervisor(
        _ suspension: SupervisorConfiguration.Suspension = .none,
        _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws -> TestSupervisor {
        try TestSupervisor(suspension: suspension) {
            // On a busy machine, too, no client may be suspended by force: that is not how these clients end.
            $0.settings.budgets.prepareToSuspend = .seconds(20)
            $0.settings.launches.retry = .milliseconds(20)
            $0.settings.launches.retryMaximum = .milliseconds(80)
            configure(&$0)
        }
    }

    /// The peer receives exactly this text.
    private func expect(_ peer: Int32, _ text: String) throws {
        var bytes = [UInt8](repeating: 0, count: 256)
        #expect(!Poll.wait(peer, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        let count = recv(peer, &bytes, bytes.count, Int32(MSG_DONTWAIT))
        #expect(String(decoding: bytes.prefix(max(0, count)), as: UTF8.self) == text)
    }

    private func isClosed(_ peer: Int32) -> Bool {
        var bytes: [UInt8] = [0]
        return !Poll.wait(peer, for: [.readable, .peerClosed], timeoutMilliseconds: 10_000).isEmpty
            && recv(peer, &bytes, 1, Int32(MSG_DONTWAIT | MSG_PEEK)) <= 0
            && Poll.now(peer).contains(.peerClosed)
    }

    // MARK: Crashes

    @Test func trafficOfAClientThatCrashedReachesItsNextProcess() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start("external-accessory")
        // Without the mode voip only traffic launches it.
        let device = try first.pipe("wire")
        kill(first.pid, SIGKILL)
        try supervisor.reaches(.dormant, name)
        #expect(actor.staysAway())
        try device.say("ring")
        let second = try actor.returns("external-accessory")
        #expect(second.pid != first.pid)
        #expect(try second.event("restored").hasPrefix("restored launched=true sockets=wire:3 state="))
        #expect(try second.event("wake").contains("reasons=socket sockets=wire:readable"))
        try second.command("read wire")
        #expect(try second.event("read").hasPrefix("read wire 4 "))
        let info = try #require(try supervisor.show(name))
        #expect(
            info.processID == UInt32(second.pid) && info.counters["crashes"] == 1
                && info.counters["launches"] == 1)
        try supervisor.stop()
    }

    @Test func aPhoneThatCrashesIsLaunchedAgainAndItsConnectionLivesOn() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("registration")
        let other = try first.park("other", "")
        // A sanitizer would report the other signal as a fault of the program.
        kill(first.pid, isSanitized ? SIGKILL : SIGSEGV)
        let second = try actor.returns()
        #expect(isClosed(other), "it was not handed over to survive")
        #expect(try second.event("restored").contains("sockets=registration:3 "))
        #expect(try second.event("wake").contains("reasons=relaunched sockets=-"))
        try peer.say("hello")
        #expect(try second.command("read registration") == "")
        try second.command("write registration there")
        try expect(peer, "there")
        // It can hand over more, and crash again.
        let third = try second.park("third")
        kill(second.pid, SIGKILL)
        let last = try actor.returns()
        #expect(try last.event("restored").contains("sockets=registration:3,third:4 "))
        try third.say("x")
        try last.command("read third")
        #expect(try last.event("read").hasPrefix("read third 1 "))
        try supervisor.stop()
    }

    @Test func aClientThatEndsWellOrIsAskedToIsForgotten() throws {
        let supervisor = try supervisor()
        for way in ["exit 0", "SIGTERM", "SIGINT", "SIGHUP"] {
            let actor = try TestClient(name, of: supervisor)
            let first = try actor.start()
            let peer = try first.park("s")
            switch way {
            case "SIGTERM": kill(first.pid, SIGTERM)
            case "SIGINT": kill(first.pid, SIGINT)
            case "SIGHUP": kill(first.pid, SIGHUP)
            default: try first.say(way)
            }
            try supervisor.forgets(name)
            #expect(isClosed(peer), "\(way)")
            #expect(actor.staysAway(milliseconds: 200), "\(way)")
        }
        try supervisor.stop()
    }

    @Test func exitWithAnotherStatusIsACrash() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        try actor.start().say("exit 3")
        // It ends when its test connection is closed.
        let second = try actor.returns()
        #expect(try supervisor.show(name)?.counters["crashes"] == 1)
        withExtendedLifetime(second) {}
        try supervisor.stop()
    }

    @Test func aClientThatKeepsCrashingIsGivenUpWithItsState() throws {
        let supervisor = try supervisor { $0.settings.launches.relaunches = 3 }
        let actor = try TestClient(name, of: supervisor)
        var process = try actor.start()
        let peer = try process.park("s")
        try process.command("save-state poison")
        try process.command("begin work")
        for crash in 1...3 {
            kill(process.pid, SIGKILL)
            process = try actor.returns()
            // If it were suspended, its start would count as successful.
            try process.command("begin work")
            // After two crashes in a row at its start its saved state is dropped.
            #expect(try process.event("restored").hasSuffix(crash == 1 ? "state=poison" : "state="))
            #expect(try supervisor.show(name)?.launchesInRow == UInt64(crash))
        }
        let watcher = try WireClient(supervisor)
        var watch = WireWatch()
        watch.identifier = name
        #expect(try watcher.ask(.watch(watch)) == .done(WireDone()))
        kill(process.pid, SIGKILL)
        try supervisor.forgets(name)
        // The core has forgotten its name by then; a watcher of that name is told the end all the same.
        for kind in ["crashed", "gave up", "gone"] {
            let event = try watcher.event { $0.kind == kind }
            #expect(event.identifier == name)
        }
        #expect(isClosed(peer))
        #expect(actor.staysAway())
        try supervisor.stop()
    }

    @Test func successMakesEarlierCrashesForgotten() throws {
        let supervisor = try supervisor { $0.settings.launches.relaunches = 2 }
        let actor = try TestClient(name, of: supervisor)
        var process = try actor.start()
        // Without any way to wake it, it would be kept awake for a while after each launch.
        let peer = try process.park("s")
        for _ in 0..<6 {
            // A client that has been suspended counts as launched with success.
            try process.say("background")
            try supervisor.reaches(.suspended, name)
            kill(process.pid, SIGKILL)
            process = try actor.returns()
            try supervisor.reaches(.suspended, name)
        }
        #expect(try supervisor.show(name)?.counters["crashes"] == 6)
        try peer.say("still there")
        try supervisor.stop()
    }

    /// It may be about to be replaced. The user can quit it.
    @Test func aClientWithoutItsProgramIsNotGivenUp() throws {
        let supervisor = try supervisor { $0.settings.launches.relaunches = 1 }
        let actor = try TestClient(name, of: supervisor)
        actor.program = "/nonexistent/phone"
        let first = try actor.start()
        let peer = try first.park("s")
        kill(first.pid, SIGKILL)
        #expect(try eventually { try supervisor.show(name)?.warnings.isEmpty == false })
        #expect(try supervisor.show(name)?.counters["crashes"] == 1)
        #expect(Poll.wait(peer, for: .peerClosed, timeoutMilliseconds: 0).isEmpty)
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        try supervisor.forgets(name)
        #expect(isClosed(peer))
        try supervisor.stop()
    }

    // MARK: Ended by the supervisor

    @Test(arguments: [SupervisorConfiguration.Suspension.none, .signal, .cgroup])
    func aHibernatedClientIsRelaunchedByTraffic(
        _ suspension: SupervisorConfiguration.Suspension
    ) throws {
        guard suspension != .cgroup || geteuid() == 0 else { return }
        // If it were stopped, it could not be given commands.
        let supervisor = try supervisor(suspension) {
            $0.settings.wakes.linger = .seconds(1)
            $0.settings.budgets.backgroundTasks = .seconds(60)
        }
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("registration")
        try first.command("save-state cseq=17")
        try first.say("hibernate")
        try first.say("background")
        try supervisor.reaches(.dormant, name)
        #expect(kill(first.pid, 0) == -1 || ProcFS.state(first.pid) == "Z")
        let info = try #require(try supervisor.show(name))
        #expect(info.processID == 0 && info.stateBytes == 7 && info.canLaunch)
        #expect(info.sockets.map(\.survives) == [true] && info.sockets.map(\.condition) == ["armed"])
        #expect(info.counters["hibernations"] == 1 && info.counters["crashes"] == 0)
        for round in 0..<3 {
            try peer.say("INVITE\(round)")
            let next = try actor.returns()
            // However long this test takes, it must not be stopped before it is told to hibernate.
            try next.command("begin work")
            #expect(
                try next.event("restored") == "restored launched=true sockets=registration:3 state=cseq=17")
            #expect(try next.event("wake").contains("reasons=socket sockets=registration:readable"))
            try next.command("read registration")
            #expect(try next.event("read").hasPrefix("read registration 7 "))
            try next.command("write registration OK")
            try expect(peer, "OK")
            try next.say("hibernate")
            try next.say("end work")
            try supervisor.reaches(.dormant, name)
        }
        try supervisor.stop()
    }

    @Test func unreadInputBringsAHibernatingClientBackAtOnce() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("s")
        try first.say("hibernate")
        try peer.say("early")
        try first.say("background")
        let second = try actor.returns()
        #expect(try second.event("wake").contains("sockets=s:readable"))
        try supervisor.stop()
    }

    @Test func memoryPressureEndsTheLargestSleeperFirst() throws {
        let supervisor = try supervisor(.signal) { $0.settings.memoryPressure.endsAtOnce = 1 }
        let small = try TestClient("org.example.small", of: supervisor)
        let large = try TestClient("org.example.large", of: supervisor)
        let unknown = try ScriptedClientProcess(supervisor, "org.example.unknown")
        var processes: [TestClientProcess] = []
        for actor in [small, large] {
            let process = try actor.start()
            _ = try process.park("s")
            if actor === large { try process.command("grow 64") }
            try process.say("background")
            processes.append(process)
        }
        try unknown.enterBackground()
        for identifier in ["org.example.small", "org.example.large", "org.example.unknown"] {
            try supervisor.reaches(.suspended, identifier)
        }
        supervisor.pretendMemoryIsShort()
        try supervisor.reaches(.dormant, "org.example.large")
        #expect(try supervisor.show("org.example.small")?.state == .suspended)
        supervisor.pretendMemoryIsShort()
        try supervisor.reaches(.dormant, "org.example.small")
        supervisor.pretendMemoryIsShort()
        #expect(
            try supervisor.show("org.example.unknown")?.state == .suspended, "it cannot be launched again")
        #expect(try supervisor.show("org.example.large")?.counters["ended_under_pressure"] == 1)
        try supervisor.stop()
    }

    /// A survey takes several turns when there are many sleepers.
    @Test func theLargestOfManySleepersIsFound() throws {
        let supervisor = try supervisor(.signal) { $0.settings.memoryPressure.endsAtOnce = 1 }
        let count = 20  // It looks at sixteen in a turn.
        var clients: [(client: TestClient, process: TestClientProcess)] = []
        for number in 0..<count {
            let client = try TestClient("org.example.phone.\(number)", of: supervisor)
            let process = try client.start()
            _ = try process.park("s")
            if number == count - 1 { try process.command("grow 64") }
            try process.say("background")
            clients.append((client, process))
        }
        for (client, _) in clients { try supervisor.reaches(.suspended, client.identifier) }
        supervisor.pretendMemoryIsShort()
        try supervisor.reaches(.dormant, clients[count - 1].client.identifier)
        for (client, _) in clients.dropLast() {
            #expect(try supervisor.show(client.identifier)?.state == .suspended)
        }
        try supervisor.stop()
    }

    @Test func aClientThatExitsOnSuspendIsToldToEnd() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start("voip exits-on-suspend")
        let peer = try first.park("s")
        try first.say("background")
        try first.event("will-terminate")
        try first.say("exit 0")
        try supervisor.reaches(.dormant, name)
        try peer.say("ring")
        // Launched in the background, it handles its wake and ends again.
        let second = try actor.returns("voip exits-on-suspend")
        try second.event("wake")
        try second.event("will-terminate")
        try second.say("exit 0")
        // Unread input brings it back.
        try actor.returns("voip exits-on-suspend").event("wake")
        try supervisor.stop()
    }

    @Test func aQuitClientStaysAway() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("s")
        try first.command("save-state x")
        try first.say("hibernate")
        try first.say("background")
        try supervisor.reaches(.dormant, name)
        try supervisor.administrate(.quitClient(.with { $0.identifier = name }))
        try supervisor.forgets(name)
        #expect(isClosed(peer))
        #expect(actor.staysAway())
        try supervisor.stop()
    }

    // MARK: On request

    @Test func aDormantClientIsLaunchedOnRequestAndForgottenOnRequest() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peer = try first.park("s")
        try first.say("hibernate")
        try first.say("background")
        try supervisor.reaches(.dormant, name)
        let running = try supervisor.administrate(.forgetClient(.with { $0.identifier = "nobody" }))
        guard case .error(let error) = running, error.code == .noSuchClient else {
            throw TestFailure("\(running)")
        }
        try supervisor.administrate(.launchClient(.with { $0.identifier = name }))
        let second = try actor.returns()
        #expect(try second.event("wake").contains("reasons=request"))
        guard
            case .error(let refusal) = try supervisor.administrate(
                .forgetClient(.with { $0.identifier = name })),
            refusal.code == .illegalState
        else { throw TestFailure("a running client was forgotten") }
        try second.say("hibernate")
        try supervisor.reaches(.dormant, name)
        try supervisor.administrate(.forgetClient(.with { $0.identifier = name }))
        try supervisor.forgets(name)
        #expect(isClosed(peer))
        try supervisor.stop()
    }

    @Test func aProcessThatItsUserStartsTakesOverFromADormantClient() throws {
        let supervisor = try supervisor()
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        let peers = try (0..<5).map { try first.park("s\($0)") }
        try first.command("save-state kept")
        try first.say("hibernate")
        try first.say("background")
        try supervisor.reaches(.dormant, name)
        let second = try actor.start()
        let restored = try second.event("restored")
        #expect(restored.hasPrefix("restored launched=false sockets=s0:") && restored.hasSuffix("state=kept"))
        for (index, peer) in peers.enumerated() {
            try peer.say("\(index)")
            try second.command("read s\(index)")
            try second.command("write s\(index) back\(index)")
            try expect(peer, "back\(index)")
        }
        #expect(try supervisor.show(name)?.state == .inactive)
        try supervisor.stop()
    }

    @Test func aProcessWithoutHelloIsEnded() throws {
        let supervisor = try supervisor {
            $0.settings.launches.budget = .milliseconds(300)
            $0.settings.launches.relaunches = 1
        }
        let actor = try TestClient(name, of: supervisor)
        let first = try actor.start()
        kill(first.pid, SIGKILL)
        let silent = try actor.appears()
        let handle = try ProcessHandle(opening: silent.pid)
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        try supervisor.forgets(name)
        try supervisor.stop()
    }
}

extension TestClientProcess {
    /// Hands over a pipe that survives; returns the test's end.
    fileprivate func pipe(_ name: String) throws -> Int32 {
        let path = NSTemporaryDirectory() + "nightbell-\(UUID().uuidString)"
        let listener = socket(AF_UNIX, Int32(SOCK_STREAM.rawValue), 0)
        defer {
            close(listener)
            unlink(path)
        }
        var address = sockaddr_un()
        address.sun_family = sa_family_t(AF_UNIX)
        withUnsafeMutableBytes(of: &address.sun_path) { $0.copyBytes(from: Array(path.utf8)) }
        let length = socklen_t(MemoryLayout<sockaddr_un>.size)
        let bound = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) { bind(listener, $0, length) }
        }
        guard bound == 0, listen(listener, 1) == 0 else { throw Pair.failure("bind") }
        try command("connect-unix \(path) \(name)")
        try command("handover \(name) device survives")
        return accept(listener, nil, nil)
    }
}
