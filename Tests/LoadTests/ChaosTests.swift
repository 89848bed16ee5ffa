import Foundation
import Testing

@testable import LoadTester

/// What a chaos run counts as lost: a test's clients must lose it for certain.
@Suite("Lost wakes of a chaos run", .serialized, .timeLimit(.minutes(10)))
struct ChaosTests {
    private static var method: SuspensionMethod { geteuid() == 0 ? .cgroup : .signal }

    @Test("A socket that nobody watches is a lost wake, though its client reads it as soon as it is awake")
    func unwatched() throws {
        let results = try run(keptBack: 1)
        #expect(results.wakesLost > 0)
        #expect(results.loneCalls > 0)
        #expect(results.connectionsLost == 0 && results.wrongBytes == 0)
        #expect(results.verdicts.contains { $0.name == "wakes lost" && !$0.isMet })
    }

    @Test("Sockets are counted that were not heard, not clients")
    func noneWatched() throws {
        // One of the two that nothing else wakes has kept all back.
        #expect(try run(keptBack: 5).wakesLost >= 5)
    }

    private func run(keptBack: Int) throws -> ChaosResults {
        let bench = try Workbench.forTests()
        var settings = ChaosRun.Settings(
            suspension: Self.method, transport: .unix, clients: 4, sockets: 20, kills: 2, seed: 1)
        // A wake that is late here would be one more that is lost: there are some anyway.
        settings.patience = .seconds(2)
        settings.keptBack = keptBack
        return try ChaosRun(settings: settings, bench: bench).run()
    }

    // MARK: Lone calls

    /// Two clients of two sockets each, which read when the test does.
    private final class Stage {
        let area: ChaosArea
        let callers: ChaosCallers
        var calls: LoneCalls
        private let bench: Workbench
        private var sockets: [CInt] = []

        init() throws {
            bench = try Workbench.forTests()
            area = try ChaosArea(clients: 2, socketsPerClient: 2)
            calls = LoneCalls(area)
            callers = try ChaosCallers(.unix, sockets: 4, directory: bench.directory)
            for number in 0..<4 { sockets.append(try Transport.unix.connect(to: callers.place, as: number)) }
            try wait(for: "all to be connected", atMost: .seconds(20)) {
                try callers.takeIn(area)
                return callers.connected == 4
            }
        }

        deinit { for socket in sockets { close(socket) } }

        func isFree(_ client: Int, at now: Int64, rest: Int64 = 0) -> Bool {
            calls.isFree(client, callers, area, at: now, rest: rest)
        }

        func call(_ socket: Int, at now: Int64) { calls.call(socket, 100, callers, at: now) }

        func isAnyUnread(from moment: Int64) -> Bool { calls.isAnyUnread(from: moment, callers, area) }

        func giveUp(from moment: Int64) { calls.giveUp(from: moment, callers, area) }

        func read(_ socket: Int) { area[socket: socket, .received] = callers.sent[socket] }
    }

    @Test("What was not read when patience ends is lost once, and its client is left alone")
    func unread() throws {
        let stage = try Stage()
        #expect(stage.isFree(0, at: 10))
        stage.call(1, at: 10)
        stage.call(2, at: 20)
        #expect(!stage.isFree(0, at: 30))
        // What began later is not waited for.
        #expect(!stage.isAnyUnread(from: 10))
        stage.giveUp(from: 10)
        #expect(stage.calls.lost == 0 && stage.isAnyUnread(from: 30))
        stage.read(2)
        for _ in 0..<2 { stage.giveUp(from: 30) }
        #expect(stage.calls.lost == 1 && stage.calls.count == 2)
        #expect(stage.calls.hasLost(1) && !stage.calls.hasLost(0) && !stage.calls.hasLost(2))
        #expect(stage.calls.hasLostAny(0) && !stage.calls.hasLostAny(1))
        // That something else woke it in the end changes nothing.
        stage.read(1)
        #expect(!stage.isFree(0, at: 40))
        stage.calls.forget(0)
        #expect(stage.isFree(0, at: 50))
        #expect(stage.calls.lost == 1)
    }

    @Test("Who has read has a rest before it is called again")
    func rest() throws {
        let stage = try Stage()
        stage.call(0, at: 10)
        stage.read(0)
        #expect(!stage.isAnyUnread(from: 20))
        #expect(!stage.isFree(0, at: 20, rest: 30))
        #expect(!stage.isFree(0, at: 49, rest: 30))
        #expect(stage.isFree(0, at: 50, rest: 30))
    }

    @Test("What was said on a connection that has ended is no lost wake")
    func ended() throws {
        let stage = try Stage()
        stage.call(0, at: 10)
        stage.callers.letGo(0, stage.area)
        stage.giveUp(from: 20)
        #expect(stage.calls.lost == 0)
        // Nothing can be said to it now.
        stage.call(0, at: 30)
        #expect(stage.calls.count == 1)
    }
}

extension Workbench {
    static func forTests() throws -> Workbench {
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let programs = URL(fileURLWithPath: program).deletingLastPathComponent().path
        return try Workbench(programs: programs, progress: Progress(quiet: true))
    }
}
