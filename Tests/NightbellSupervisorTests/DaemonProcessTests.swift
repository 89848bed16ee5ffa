import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Tests that need a supervisor in a process of its own: it is killed, runs out of descriptors, or idles.
@Suite(.serialized) struct DaemonProcessTests {
    static let ways = ["cgroup", "signal"]

    @Test(.disabled(if: isSanitized, "each fork has a thread of the thread sanitizer's"), arguments: ways)
    func idleMeansIdle(way: String) throws {
        let daemon = try DaemonProcess(suspension: way)
        let observer = try WireClient(path: daemon.socketPath)
        let scriptedClients = try (0..<20).map {
            try ScriptedClientProcess(path: daemon.socketPath, "org.example.phone\($0)")
        }
        let peers = try scriptedClients.map { try $0.park("flow") }
        defer { for peer in peers { close(peer) } }
        for scripted in scriptedClients {
            try scripted.command("keepalive 3600000")
            try scripted.enterBackground()
        }
        for index in scriptedClients.indices {
            try observer.wait(for: "org.example.phone\(index)", toBe: .suspended, path: daemon.socketPath)
        }
        // The closing of the observers' connections is its last event. A process that another test is
        // starting may hold copies of them for a while.
        try #require(try eventually(within: 60_000) { try observer.status().connections == 21 })
        // The machine is observed, because its sleep would delay the keep-alives.
        #expect(try observer.status().monitorProcessID != 0)
        let handle = try daemon.child.handle()
        var before = -1
        // On a busy machine it may have to wait before it can sleep again, so wait until it has slept for a
        // while.
        let isCalm = try eventually(within: 60_000) {
            before = try daemon.contextSwitches()
            let goesOn = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 100).isEmpty
            return try goesOn && daemon.isAsleep() && daemon.contextSwitches() == before
        }
        #expect(isCalm)
        // Ten seconds in which nothing may happen, least of all its end.
        #expect(Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty)
        #expect(try daemon.contextSwitches() == before)
        try peers[7].say("call")
        try scriptedClients[7].event("read")
    }

    @Test func theTableOfDescriptorsIsLargeFromTheStart() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let status = try String(contentsOfFile: "/proc/\(daemon.worker())/status", encoding: .utf8)
        let line = try #require(status.split(separator: "\n").first { $0.hasPrefix("FDSize:") })
        let size = try #require(line.split(separator: "\t").last.flatMap { UInt64($0) })
        let limit = try WireClient(path: daemon.socketPath).status().descriptorsLimit
        #expect(size >= min(limit, 65_536))
    }

    @Test(.enabled(if: geteuid() == 0, "needs root"))
    func anotherWorkerServesThoughTheStateDirectoryHasAnotherOwner() throws {
        let place = try TemporaryDirectory()
        let state = place.path + "/state"
        let daemon = try DaemonProcess(suspension: "none", "--set stateDirectory=\(state)")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, "org.example.phone")
        #expect(chown(state, 4_711, 4_711) == 0)
        try daemon.killWorker()
        let warnings = try WireClient(path: daemon.socketPath).status().warnings
        #expect(warnings.contains { $0.contains("cannot believe what is in \(state)") })
        // The client is served, and others can come.
        try scripted.enterBackground()
        _ = try ScriptedClientProcess(path: daemon.socketPath, "org.example.other")
    }

    @Test(arguments: ways) func killedSupervisorLeavesNoClientFrozenForLong(way: String) throws {
        let first = try DaemonProcess(suspension: way, "--no-keeper")
        let scripted = try ScriptedClientProcess(path: first.socketPath, "org.example.phone")
        let peer = try scripted.park("flow")
        defer { close(peer) }
        let observer = try WireClient(path: first.socketPath)
        try scripted.enterBackground()
        try observer.wait(for: "org.example.phone", toBe: .suspended, path: first.socketPath)
        first.child.end()
        // It stays frozen, so it does not read this.
        try scripted.child.send("echo awake\n")
        while let heard = try scripted.child.hear(within: 100) { #expect(!heard.contains("awake")) }
        let second = try DaemonProcess(suspension: way, directory: first.directory)
        try scripted.event("ok awake")
        try scripted.event("reconnected")
        try peer.say("call")
        try scripted.event("read")
        _ = second
    }

    @Test(arguments: ways) func thawHookThawsAllClients(way: String) throws {
        let daemon = try DaemonProcess(suspension: way, "--no-keeper")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, "org.example.phone")
        let observer = try WireClient(path: daemon.socketPath)
        try scripted.enterBackground()
        try observer.wait(for: "org.example.phone", toBe: .suspended, path: daemon.socketPath)
        daemon.child.end()
        try scripted.child.send("echo awake\n")
        let hook = try Child(
            ScriptedClientProcess.program("nightbelld"), "--runtime-directory", daemon.directory, "--suspend",
            way,
            "--log-level", "critical", "--thaw-leftovers")
        try scripted.event("ok awake")
        hook.reap()
    }

    @Test func exhaustedDescriptorsAreReportedAndRecoveredFrom() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "ulimit -n 48")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello("org.example.phone")
        // Others use up all descriptors.
        var crowd: [WireClient] = []
        var refused: WireError?
        while refused == nil, crowd.count < 100 {
            let next = try WireClient(path: daemon.socketPath)
            do {
                _ = try next.status()
                crowd.append(next)
            } catch {
                refused = try? next.end()
            }
        }
        #expect(refused?.code == .outOfDescriptors)
        // The connected client notices nothing, and is refused a socket with the reason.
        let pair = try Pair.unix()
        do {
            _ = try client.handOver(pair.near)
            Issue.record("there was a descriptor after all")
        } catch let error as WireError {
            #expect(error.code == .outOfDescriptors)
        }
        crowd.removeAll()
        // When the others have gone there is room again, for its socket and for new connections.
        #expect(try eventually { try client.status().connections == 1 })
        _ = try client.handOver(pair.near)
        _ = try WireClient(path: daemon.socketPath).status()
        withExtendedLifetime(pair) {}
    }

    /// Even if root fills the table: a worker that dies then must be replaced.
    @Test(arguments: [31, 64, 400, 1_040]) func workerIsReplacedThoughDescriptorsRanOut(limit: Int) throws {
        let daemon = try DaemonProcess(suspension: "signal", before: "ulimit -n \(limit)")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello("org.example.phone", modes: [.externalAccessory])
        let device = try EventDescriptor()
        var count: UInt64 = 0
        while true {
            do {
                _ = try client.handOver(device.rawValue, .device)
                count += 1
            } catch let error as WireError {
                #expect(error.code == .outOfDescriptors)
                break
            }
        }
        #expect(count > 0)
        // There is room for an administrator.
        let worker = try daemon.worker()
        #expect(try WireClient(path: daemon.socketPath).status().sockets == count)
        kill(worker, SIGKILL)
        let isBack = eventually {
            guard let status = try? WireClient(path: daemon.socketPath).status() else { return false }
            return status.sockets == count
        }
        #expect(isBack)
    }

    /// The number in the documentation.
    @Test func thirtyOneDescriptorsAreEnoughForOne() throws {
        let daemon = try DaemonProcess(suspension: "signal", before: "ulimit -n 31")
        let scripted = try ScriptedClientProcess(path: daemon.socketPath, "org.example.phone")
        let peer = try scripted.park("flow")
        defer { close(peer) }
        try scripted.enterBackground()
        #expect(eventually { ProcFS.state(scripted.pid) == "T" })
        try peer.say("call")
        try scripted.event("read")
    }

    /// Whether it has sent something before or not: the kernel would report a reset first.
    @Test func aRefusedConnectionCanReadTheReason() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "ulimit -n 28")
        let worker = try daemon.worker()
        var crowd: [WireClient] = []
        while true {
            let next = try WireClient(path: daemon.socketPath)
            guard (try? next.status()) != nil else { break }
            crowd.append(next)
        }
        #expect(crowd.count > 2)
        try #require(stop(worker))
        let late = try (0..<4).map { _ in try WireClient(path: daemon.socketPath) }
        for (index, client) in late.enumerated() {
            for _ in 0..<index { try client.send(.status(WireStatus()), request: 1) }
        }
        kill(worker, SIGCONT)
        for client in late { #expect(try client.plainWords().map(\.error.code) == [.outOfDescriptors]) }
        withExtendedLifetime(crowd) {}
    }

    /// Beside the breach of the protocol it has sent more, which stays unread.
    @Test func aDisconnectedClientCanReadTheReason() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set messagesPerTurn=1")
        let worker = try daemon.worker()
        let client = try WireClient(path: daemon.socketPath)
        try #require(stop(worker))
        try client.send(.enterBackground(WireEnterBackground()), request: 1)
        for _ in 0..<5 { try client.send(.status(WireStatus()), request: 2) }
        kill(worker, SIGCONT)
        #expect(try client.plainWords().map(\.error.code) == [.helloRequired])
    }

    /// Some of the descriptors of a packet arrive, and then there is no room for more: that is not the
    /// packet's fault, though there is room again as soon as those are closed.
    @Test(arguments: 1...6) func aHandOverWithoutRoomForAllIsRefused(room: Int) throws {
        let daemon = try DaemonProcess(suspension: "none", before: "ulimit -n 48")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello("org.example.phone", modes: [.externalAccessory])
        let device = try EventDescriptor()
        // Until one more is refused.
        while true {
            do {
                _ = try client.handOver(device.rawValue, .device)
            } catch let error as WireError {
                #expect(error.code == .outOfDescriptors)
                break
            }
        }
        for socket in try client.show("org.example.phone").sockets.prefix(room + 1) {
            var release = WireRelease()
            release.token = socket.token
            #expect(try client.ask(.release(release)) == .done(WireDone()))
        }
        for _ in 0..<3 {
            do {
                _ = try client.handOverAny(Array(repeating: device.rawValue, count: 8), .device)
                Issue.record("there was room after all")
            } catch let error as WireError {
                #expect(error.code == .outOfDescriptors, "\(error)")
            }
        }
        // None of the descriptors that arrived was kept. (Inspecting one takes another.)
        #expect(try client.handOverAny(Array(repeating: device.rawValue, count: room), .device).count == room)
    }

    /// One user takes all it can get, which must leave enough for the others.
    @Test func greedyUserLeavesRoomForOthers() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "ulimit -n 96; umask 0")
        let path = daemon.socketPath
        let crowd = try OwnThread {
            guard ctest_become(65_534) == 0 else { throw TestFailure("cannot become another user") }
            var sockets: [Int32] = []
            // The supervisor admits none of these beyond the user's share; all of them stay connected.
            for _ in 0..<96 {
                let stranger = try WireClient(path: path)
                guard (try? stranger.status()) != nil else {
                    #expect(try stranger.end()?.code == .outOfDescriptors)
                    return sockets
                }
                sockets.append(dup(stranger.socket.rawValue))
            }
            throw TestFailure("never refused")
        }.join()
        defer { for socket in crowd { close(socket) } }
        let ours = try WireClient(path: path)
        try ours.hello("org.example.ours")
        let pair = try Pair.unix()
        _ = try ours.handOver(pair.near)
        #expect(try ours.status().descriptorsOpen > 0)
        withExtendedLifetime(pair) {}
    }

    @Test func usersDoNotTouchEachOthersClients() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "umask 0")
        let ours = try WireClient(path: daemon.socketPath)
        try ours.hello("org.example.ours")
        let pair = try Pair.unix()
        let token = try ours.handOver(pair.near)
        let path = daemon.socketPath
        try OwnThread {
            guard ctest_become(65_534) == 0 else { throw TestFailure("cannot become another user") }
            try Self.tryAsStranger(path, token)
        }.join()
        #expect(try ours.show("org.example.ours").sockets.count == 1)
        withExtendedLifetime(pair) {}
    }

    private static func tryAsStranger(_ path: String, _ token: UInt64) throws {
        let stranger = try WireClient(path: path)
        func expectDenied(_ body: WireClientMessage.OneOf_Body, _ code: WireErrorCode) throws {
            guard case .error(let error) = try stranger.ask(body) else {
                throw TestFailure("allowed: \(body)")
            }
            #expect(error.code == code)
        }
        var show = WireShow()
        show.identifier = "org.example.ours"
        try expectDenied(.show(show), .noSuchClient)
        var wake = WireWakeClient()
        wake.identifier = "org.example.ours"
        try expectDenied(.wakeClient(wake), .noSuchClient)
        var suspend = WireSuspendClient()
        suspend.identifier = "org.example.ours"
        try expectDenied(.suspendClient(suspend), .noSuchClient)
        var quit = WireQuitClient()
        quit.identifier = "org.example.ours"
        try expectDenied(.quitClient(quit), .noSuchClient)
        guard case .done = try stranger.ask(.list(WireList())) else { throw TestFailure("sees others") }
        #expect(try stranger.status().users.isEmpty)
        try stranger.hello("org.example.theirs")
        var release = WireRelease()
        release.token = token
        try expectDenied(.release(release), .invalidToken)
        let thief = try WireClient(path: path)
        var hello = WireHello()
        hello.version = 1
        hello.identifier = "org.example.ours"
        try thief.send(.hello(hello), request: 1)
        #expect(try thief.end()?.code == .identifierOfOtherUser)
    }

    @Test func identifierStaysWithItsUser() throws {
        let daemon = try DaemonProcess(suspension: "none", before: "umask 0")
        var ours: WireClient? = try WireClient(path: daemon.socketPath)
        try ours?.hello("org.example.ours")
        ours = nil
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
}
