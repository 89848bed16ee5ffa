import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Clients that cost as much as they can. `nightbell-load hostile` measures the effect on others.
@Suite struct HostileClientTests {
    // MARK: Packets that are costly to decode

    /// As many empty sockets as fit into a packet.
    private static let emptySockets: [UInt8] = {
        let count = 64_000
        let body = (0..<count).flatMap { _ in [1 << 3 | 2, 0] as [UInt8] }
        let length = [body.count & 0x7F | 0x80, body.count >> 7 & 0x7F | 0x80, body.count >> 14]
        return [3 << 3 | 2] + length.map { UInt8($0) } + body
    }()

    @Test func excessIsFoundWithoutDecoding() throws {
        #expect(throws: PacketScan.Refusal.excessive("a HandOver has at most 253 sockets")) {
            try PacketScan(Self.emptySockets)
        }
        // Scanning costs about as much as reading the bytes; decoding them costs hundreds of times as much.
        func time(_ body: () -> Void) -> Double {
            (0..<5).map { _ in
                let start = threadTime()
                body()
                return threadTime() - start
            }.min() ?? 0
        }
        let scanning = time { _ = try? PacketScan(Self.emptySockets) }
        let decoding = time { _ = try? WireClientMessage(serializedBytes: Self.emptySockets) }
        #expect(scanning < decoding / 20, "\(scanning) s, \(decoding) s")
    }

    /// Processor time of the calling thread.
    private func threadTime() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }

    @Test func usualPacketsPass() throws {
        var hello = WireHello()
        hello.identifier = "org.example.phone"
        hello.launch.arguments = (0..<400).map { "argument \($0)" }
        for number in 0..<300 { hello.launch.environment["NAME\(number)"] = "value" }
        var handOver = WireHandOver()
        handOver.sockets = (0..<253).map { number in
            var socket = WireHandOver.Socket()
            socket.tag = .voip
            socket.name = "registrar.example.org:\(number)"
            socket.survives = true
            var sip = WireProfile.SIP()
            sip.users = ["alice", "bob"]
            sip.userAgent = String(repeating: "x", count: 100)
            socket.profile.kind = .sip(sip)
            return socket
        }
        var state = WireSaveState()
        state.state = [UInt8](repeating: 7, count: 65_536).asField
        var ready = WireReadyToSuspend()
        ready.notIdle = Array(1...8_000)
        let bodies: [WireClientMessage.OneOf_Body] = [
            .hello(hello), .handOver(handOver), .saveState(state), .readyToSuspend(ready),
            .list(WireList()),
        ]
        for (number, body) in bodies.enumerated() {
            var message = WireClientMessage()
            message.request = UInt64(number + 1)
            message.body = body
            let scan = try PacketScan(try message.serializedBytes())
            #expect(scan.request == UInt64(number + 1))
            if case .handOver = body { #expect(scan.sockets == 253) } else { #expect(scan.sockets == nil) }
        }
    }

    @Test func noKindOfMessageEscapesTheLimits() throws {
        func packet(_ kind: UInt64, _ body: [UInt8]) -> [UInt8] {
            func varint(_ number: UInt64) -> [UInt8] {
                number < 0x80 ? [UInt8(number)] : [UInt8(number & 0x7F) | 0x80] + varint(number >> 7)
            }
            return varint(kind << 3 | 2) + varint(UInt64(body.count)) + body
        }
        // Fields that no kind has.
        let long = [UInt8](repeating: 0, count: 300_000)
        let bodies = [packet(99, long), (0..<9_000).flatMap { _ in [15 << 3, 0] as [UInt8] }]
        var kinds: [UInt64] = []
        for kind in UInt64(2)..<128 {
            let message = try? WireClientMessage(serializedBytes: packet(kind, []))
            guard message?.body != nil else { continue }
            kinds.append(kind)
            let isForClients = try PacketScan(packet(kind, [])).isForClients
            #expect(isForClients == (3..<30).contains(kind), "\(kind)")
            // A state has a limit of its own, and sockets as well as what is delegated are limited by their number.
            for (index, body) in bodies.enumerated()
            where kind != 16 && (![3, 14].contains(kind) || index > 0) {
                #expect(throws: PacketScan.Refusal.self, "\(kind)") { try PacketScan(packet(kind, body)) }
            }
        }
        #expect(kinds.count > 40 && kinds.contains(24))
    }

    @Test func programsWithManyDescendantsAreRefused() throws {
        let supervisor = try TestSupervisor()
        // They end with this shell, or with the tests.
        let code = "i=0; while [ $i -lt 270 ]; do cat <&3 >/dev/null & i=$((i + 1)); done; echo all; wait"
        let program = try Child("/bin/sh", "-c", "exec 3<&0; " + code)
        #expect(try program.hear(within: 60_000) == "all\n")
        let hello = try WireHello.with {
            $0.version = 1
            $0.identifier = "org.example.program"
            $0.program.processID = UInt32(program.pid)
            $0.program.startTime = try #require(ProcFS.startTime(program.pid))
        }
        let speaker = try WireClient(supervisor)
        guard case .error(let error) = try speaker.ask(.hello(hello)) else { throw TestFailure("welcome") }
        #expect(error.code == .invalidArgument && error.message.contains("more than 256 descendants"))
        try supervisor.stop()
    }

    @Test func reportsAboutProgramsAreShort() throws {
        let supervisor = try TestSupervisor()
        let program = try Child.echo()
        var hello = WireHello()
        hello.version = 1
        hello.identifier = "org.example.program"
        hello.program.processID = UInt32(program.pid)
        hello.program.startTime = try #require(ProcFS.startTime(program.pid))
        let speaker = try WireClient(supervisor)
        guard case .welcome = try speaker.ask(.hello(hello)) else { throw TestFailure("no welcome") }
        let stranger = try WireClient(supervisor, "org.example.stranger")
        let administrator = try WireClient(supervisor)
        // One character.
        let text = "a" + String(repeating: "\u{301}", count: 400)
        var report = WirePagedOut()
        report.bytes = 7
        // Of a later version.
        try report.merge(serializedBytes: [15 << 3 | 2, 100] + [UInt8](repeating: 0, count: 100))
        report.limit = text
        var reason = WireAwakeReason()
        reason.reason = text
        for client in [speaker, stranger] {
            guard case .done = try client.ask(.pagedOut(report)),
                case .done = try client.ask(.awakeReason(reason))
            else { throw TestFailure("refused") }
        }
        let shown = try administrator.show("org.example.program")
        #expect(shown.pagedOut.bytes == 7)
        #expect(try shown.pagedOut.serializedData().count < 270)
        #expect(shown.pagedOut.limit == "a" + String(repeating: "\u{301}", count: 127))
        #expect(shown.stateDetail.utf8.count <= 256)
        #expect(try !administrator.show("org.example.stranger").hasPagedOut)
        report.limit = String(repeating: "x", count: 100_000)
        try speaker.send(.pagedOut(report), request: 9)
        #expect(try speaker.end()?.code == .malformedPacket)
        #expect(try administrator.status().connections > 0)
        try supervisor.stop()
    }

    @Test func longMessagesAreRefused() throws {
        let supervisor = try TestSupervisor()
        let long = String(repeating: "x", count: 2_000)
        var show = WireShow()
        show.identifier = long
        var watch = WireWatch()
        watch.identifier = long
        var hello = WireHello()
        hello.version = 1
        hello.identifier = "org.example.phone"
        hello.launch.arguments = (0..<9_000).map { _ in "" }
        for body in [WireClientMessage.OneOf_Body.show(show), .watch(watch), .hello(hello)] {
            let stranger = try WireClient(supervisor)
            try stranger.send(body, request: 1)
            #expect(try stranger.end()?.code == .malformedPacket)
        }
        let client = try WireClient(supervisor, "org.example.phone")
        let pair = try Pair.unix()
        var socket = WireHandOver.Socket()
        socket.tag = .voip
        var pattern = WireProfile.Pattern()
        pattern.ping = [UInt8](repeating: 1, count: 70_000).asField
        socket.profile.kind = .pattern(pattern)
        var handOver = WireHandOver()
        handOver.sockets = [socket]
        try client.send(.handOver(handOver), request: 9, descriptors: [pair.near])
        #expect(try client.end()?.code == .malformedPacket)
        try supervisor.stop()
    }

    // MARK: Shares

    @Test func usersTakeTurns() {
        var backlog = Backlog<String>()
        for number in 0..<1_000 { backlog.append("many \(number)", of: 1) }
        backlog.append("one", of: 2)
        var order: [String] = []
        for _ in 0..<30 {
            guard let next = backlog.takeNext()?.element else { break }
            order.append(next)
            backlog.charge(next == "one" ? 2 : 1, nanoseconds: Backlog<String>.share / 4)
        }
        #expect(order.firstIndex(of: "one").map { $0 <= 5 } == true, "\(order)")
        #expect(order.filter { $0 != "one" } == (0..<29).map { "many \($0)" }, "in their order")
        let left = backlog.count
        #expect(left == 1_001 - 30)
    }

    @Test func costlyPacketsAreChargedToTheirUser() {
        var backlog = Backlog<UInt32>()
        for _ in 0..<2_000 {
            backlog.append(1, of: 1)
            backlog.append(2, of: 2)
        }
        // Each element of one user takes a hundred times as long as each of the other.
        var time: [UInt32: Int64] = [1: 0, 2: 0]
        for _ in 0..<1_000 {
            guard let next = backlog.takeNext()?.element else { break }
            let cost: Int64 = next == 1 ? 1_000_000 : 10_000
            time[next, default: 0] += cost
            backlog.charge(next, nanoseconds: cost)
        }
        let (first, second) = (time[1] ?? 0, time[2] ?? 0)
        #expect(abs(first - second) <= 2_000_000, "\(time)")
        // Alone, it is not held back.
        while backlog.takeNext() != nil {}
        backlog.endTurn()
        backlog.append(1, of: 1)
        let next = backlog.takeNext()?.element
        #expect(next == 1)
        let isEmpty = backlog.isEmpty
        #expect(isEmpty)
    }

    @Test func socketsBeyondAQuotaWait() {
        let perUser = SocketQuota.perUser
        var quota = SocketQuota()
        let recovered = (0..<10 * perUser).count { _ in quota.take(1) }
        #expect(recovered == 10 * perUser)
        quota.beginTurn()
        let taken = (0..<10 * perUser).count { _ in quota.take(1) }
        #expect(taken >= perUser && taken <= 2 * perUser)
        let another = (0..<2 * perUser).count { _ in quota.take(2) }
        #expect(another == perUser)
        quota.beginTurn()
        let again = quota.take(1)
        #expect(again)
    }

    /// It reads nothing that it was not told of.
    @Test func manySocketsThatFireTogetherAreAllReported() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, "org.example.chat")
        let pairs = try (0..<800).map { _ in try Pair.unix() }
        var waiting: [UInt64: Pair] = [:]
        for start in stride(from: 0, to: pairs.count, by: 200) {
            let some = pairs[start..<start + 200]
            let outcomes = try client.handOverAny(some.map(\.near))
            for (pair, outcome) in zip(some, outcomes) { waiting[outcome.token] = pair }
        }
        #expect(waiting.count == pairs.count)
        try client.goToSleep()
        try client.wait(for: "org.example.chat", toBe: .suspended, supervisor)
        for pair in pairs { try pair.send("x") }
        while !waiting.isEmpty {
            let wake = try client.wake()
            for socket in wake.sockets {
                let known = waiting.removeValue(forKey: socket.token)
                let pair = try #require(known, "told twice")
                #expect(pair.received() == "x")
            }
            try client.finish(wake)
            if !waiting.isEmpty { try client.ready(try client.prepare()) }
        }
        try supervisor.stop()
    }

    // MARK: Connections

    /// More connections than it may have: each is refused at once, and nothing of it stays.
    @Test func refusedConnectionsCostNoThread() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set connectionsPerUser=6")
        let administrator = try WireClient(path: daemon.socketPath)
        let worker = pid_t(try administrator.status().processID)
        var kept: [WireClient] = []
        for _ in 0..<5 {
            let stranger = try WireClient(path: daemon.socketPath)
            _ = try stranger.status()
            kept.append(stranger)
        }
        func threads() -> Int { ProcFS.threadIdentifiers(worker).count }
        func descriptors() throws -> UInt64 { try administrator.status().descriptorsOpen }
        let (threadsBefore, descriptorsBefore) = (threads(), try descriptors())
        var most = 0
        for number in 0..<2_000 {
            let stranger = try WireClient(path: daemon.socketPath)
            // Some have sent something by then, others have not.
            if number % 3 == 0 { _ = try? stranger.socket.send([0, 0]) }
            if number % 3 == 1 { _ = try? stranger.socket.send([]) }
            most = max(most, threads())
            if number % 100 == 0 { #expect(try stranger.end()?.code == .tooManyConnections) }
        }
        #expect(most <= threadsBefore, "\(most) threads")
        #expect(try eventually { try descriptors() <= descriptorsBefore })
        withExtendedLifetime(kept) {}
    }

    /// The descriptors of a refused connection are closed all the same, elsewhere.
    @Test func refusedConnectionsLeaveNothingOpen() throws {
        let daemon = try DaemonProcess(suspension: "none", "--set connectionsPerUser=2")
        let administrator = try WireClient(path: daemon.socketPath)
        _ = try administrator.status()
        let other = try WireClient(path: daemon.socketPath)
        _ = try other.status()
        let pair = try Pair.unix()
        for _ in 0..<20 {
            let stranger = try WireClient(path: daemon.socketPath)
            for _ in 0..<10 { _ = try? stranger.socket.send([1], descriptors: [pair.near]) }
            #expect(try stranger.end()?.code == .tooManyConnections)
        }
        pair.closeNear()
        #expect(Poll.wait(pair.far, for: .readable, timeoutMilliseconds: 10_000).contains(.hangUp))
    }

    /// Sockets that wait for their peers when they are closed, by the hundred, and all of one user: on
    /// connections that are served, and on those that are refused once their other end is gone.
    @Test(.enabled(if: geteuid() == 0, "needs users"), arguments: [false, true])
    func lingeringSocketsDelayNoOtherUser(areGone: Bool) throws {
        let daemon = try DaemonProcess(
            suspension: "none", before: "umask 0", areGone ? "--set connectionsPerUser=8" : "")
        let path = daemon.socketPath
        let administrator = try WireClient(path: path)
        let before = try administrator.status().descriptorsOpen
        let worker = try daemon.worker()
        var handOver = WireHandOver()
        handOver.sockets = [WireHandOver.Socket()]
        handOver.sockets[0].tag = .voip
        var strangers = areGone ? [] : try connect(330, to: path, as: 65_534)
        // It must not close them before we do: the last close is the one that waits.
        #expect(stop(worker))
        if areGone { strangers = try connect(60, to: path, as: 65_534) }
        var pairs: [Pair] = []
        for stranger in strangers {
            let pair = try Pair.tcp()
            try pair.fillAndLinger(seconds: pairs.count % 2 == 0 ? 60 : -1)
            try stranger.send(.handOver(handOver), request: 1, descriptors: [pair.near])
            pair.closeNear()
            pairs.append(pair)
        }
        if areGone { strangers = [] }
        kill(worker, SIGCONT)
        for _ in 0..<20 {
            for user in [0, 65_533] as [uid_t] {
                let began = BootClock.now()
                for other in try connect(1, to: path, as: user) { _ = try other.status() }
                #expect(BootClock.now() - began < 3_000_000_000, "uid \(user)")
            }
        }
        // Of a user with too many that wait to be closed no descriptor is taken.
        for stranger in strangers {
            let code = try stranger.end()?.code
            #expect(code == .helloRequired || code == .outOfDescriptors)
        }
        #expect(try eventually { try administrator.status().descriptorsOpen <= before })
        withExtendedLifetime(pairs) {}
    }

    /// Each of them has sent sockets that take a while to close. They are refused faster than those are closed.
    @Test(.enabled(if: geteuid() == 0, "needs users"))
    func refusedConnectionsWithDescriptorsDoNotPileUp() throws {
        let daemon = try DaemonProcess(
            suspension: "none", before: "umask 0; ulimit -n 512", "--set connectionsPerUser=8")
        let administrator = try WireClient(path: daemon.socketPath)
        let served = try connect(8, to: daemon.socketPath, as: 65_534)
        for stranger in served { _ = try stranger.status() }
        let before = try administrator.status().descriptorsOpen
        let worker = try daemon.worker()
        #expect(stop(worker))
        let strangers = try connect(100, to: daemon.socketPath, as: 65_534)
        var pairs: [Pair] = []
        for stranger in strangers {
            for _ in 0..<8 {
                let pair = try Pair.tcp()
                try pair.fillAndLinger()
                try stranger.send(.enterBackground(WireEnterBackground()), descriptors: [pair.near])
                pair.closeNear()
                pairs.append(pair)
            }
        }
        kill(worker, SIGCONT)
        var most: UInt64 = 0
        #expect(
            try eventually {
                most = max(most, try administrator.status().descriptorsOpen)
                return Poll.now(strangers[99].socket.rawValue).contains(.hangUp)
            })
        // An eighth of all may wait to be closed.
        #expect(most <= before + 64 + 8, "\(before), \(most)")
        for stranger in strangers { #expect(try stranger.end()?.code == .tooManyConnections) }
        #expect(try eventually { try administrator.status().descriptorsOpen <= before })
        withExtendedLifetime((pairs, served)) {}
    }

    private func connect(_ count: Int, to path: String, as user: uid_t) throws -> [WireClient] {
        let descriptors = try OwnThread {
            guard user == 0 || ctest_become(user) == 0 else {
                throw TestFailure("cannot become another user")
            }
            return try (0..<count).map { _ in
                try WireClient(path: path).socket.descriptor.duplicate().take()
            }
        }.join()
        return descriptors.map { WireClient(adopting: OwnedDescriptor(adopting: $0)) }
    }

    /// Sockets that are handed over and given up within a turn: the keeper gets their records before they are
    /// closed. A debug build may be too slow to serve both requests in one turn.
    @Test func socketsGivenUpAtOnceHarmNothing() throws {
        let daemon = try DaemonProcess(suspension: "none")
        let bystander = try WireClient(path: daemon.socketPath)
        try bystander.hello("org.example.bystander")
        let first = try Pair.unix()
        _ = try bystander.handOver(first.near)
        var handOver = WireHandOver()
        handOver.sockets = [WireHandOver.Socket()]
        handOver.sockets[0].tag = .voip
        let hasty = try WireClient(path: daemon.socketPath)
        try hasty.hello("org.example.hasty")
        let worker = try daemon.worker()
        for request in 100..<UInt64(130) {
            let pair = try Pair.unix()
            var release = WireRelease()
            release.token = try hasty.handOver(pair.near)
            guard case .done = try hasty.ask(.release(release)) else { throw TestFailure("not released") }
            // The next socket gets the same slot and the next generation.
            release.token += 1 << 32
            // It finds both in the same turn.
            #expect(stop(worker))
            try hasty.send(.handOver(handOver), request: request, descriptors: [pair.near])
            try hasty.send(.release(release), request: request + 1_000)
            kill(worker, SIGCONT)
            guard case .handedOver(let answer) = try hasty.answer(to: request),
                answer.adoptions.first?.token == release.token,
                case .done = try hasty.answer(to: request + 1_000)
            else { throw TestFailure("another token") }
            pair.closeNear()
            #expect(Poll.wait(pair.far, for: .readable, timeoutMilliseconds: 10_000).contains(.hangUp))
        }
        let second = try Pair.unix()
        _ = try bystander.handOver(second.near)
        #expect(try bystander.status().restarts == 0)
        _ = try daemon.killWorker()
        let administrator = try WireClient(path: daemon.socketPath)
        #expect(try administrator.show("org.example.bystander").socketCount == 2)
        #expect(try administrator.status().restarts == 1)
    }
}
