import Foundation
import Testing

@testable import LoadTester

/// Lost wakes that a chaos run counts: a test's clients must lose them for certain.
@Suite("Lost wakes of a chaos run", .serialized, .timeLimit(.minutes(40)))
struct ChaosTests {
    private static var method: SuspensionMethod { geteuid() == 0 ? .cgroup : .signal }

    @Test("An unwatched socket is a lost wake, even if its client reads it as soon as it is awake")
    func unwatched() throws {
        let results = try run(withheldSockets: 1)
        #expect(results.wakesLost > 0)
        #expect(results.isolatedCalls > 0)
        #expect(results.connectionsLost == 0 && results.wrongBytes == 0)
        #expect(results.verdicts.contains { $0.name == "wakes lost" && !$0.isMet })
    }

    @Test("Lost wakes count unread sockets, not clients")
    func noneWatched() throws {
        // One of the two isolated clients withholds all of its sockets.
        #expect(try run(withheldSockets: 5).wakesLost >= 5)
    }

    private func run(withheldSockets: Int) throws -> ChaosResults {
        let runDirectory = try RunDirectory.forTests()
        var settings = ChaosRun.Settings(
            suspension: Self.method, transport: .unix, clients: 4, sockets: 20, kills: 2, seed: 1)
        // A late wake would count as one more lost wake, and there are some anyway.
        settings.patience = .seconds(2)
        settings.withheldSockets = withheldSockets
        return try ChaosRun(settings: settings, runDirectory: runDirectory).run()
    }

    // MARK: Isolated calls

    /// Two clients with two sockets each, which read when the test does.
    private final class Fixture {
        let sharedMemory: ChaosSharedMemory
        let callers: ChaosCallers
        var calls: IsolatedCalls
        private let runDirectory: RunDirectory
        private var sockets: [CInt] = []

        init() throws {
            runDirectory = try RunDirectory.forTests()
            sharedMemory = try ChaosSharedMemory(clients: 2, socketsPerClient: 2)
            calls = IsolatedCalls(sharedMemory)
            callers = try ChaosCallers(.unix, sockets: 4, directory: runDirectory.path)
            for number in 0..<4 {
                sockets.append(try Transport.unix.connect(to: callers.endpoint, as: number))
            }
            try wait(for: "all to be connected", atMost: .seconds(20)) {
                try callers.acceptConnections(sharedMemory)
                return callers.connected == 4
            }
        }

        deinit { for socket in sockets { close(socket) } }

        func isFree(_ client: Int, at now: Int64, rest: Int64 = 0) -> Bool {
            calls.isFree(client, callers, sharedMemory, at: now, rest: rest)
        }

        func call(_ socket: Int, at now: Int64) { calls.call(socket, 100, callers, at: now) }

        func isAnyUnread(from moment: Int64) -> Bool {
            calls.isAnyUnread(from: moment, callers, sharedMemory)
        }

        func giveUp(from moment: Int64) { calls.giveUp(from: moment, callers, sharedMemory) }

        func read(_ socket: Int) { sharedMemory[socket: socket, .received] = callers.sent[socket] }
    }

    @Test("A call that is unread when patience ends is lost once, and its client is left alone")
    func unread() throws {
        let stage = try Fixture()
        #expect(stage.isFree(0, at: 10))
        stage.call(1, at: 10)
        stage.call(2, at: 20)
        #expect(!stage.isFree(0, at: 30))
        // A later call is not waited for.
        #expect(!stage.isAnyUnread(from: 10))
        stage.giveUp(from: 10)
        #expect(stage.calls.lost == 0 && stage.isAnyUnread(from: 30))
        stage.read(2)
        for _ in 0..<2 { stage.giveUp(from: 30) }
        #expect(stage.calls.lost == 1 && stage.calls.count == 2)
        #expect(stage.calls.hasLost(1) && !stage.calls.hasLost(0) && !stage.calls.hasLost(2))
        #expect(stage.calls.hasLostAny(0) && !stage.calls.hasLostAny(1))
        // Another wake in the end changes nothing.
        stage.read(1)
        #expect(!stage.isFree(0, at: 40))
        stage.calls.cancel(0)
        #expect(stage.isFree(0, at: 50))
        #expect(stage.calls.lost == 1)
    }

    @Test("A client that has read rests before it is called again")
    func rest() throws {
        let stage = try Fixture()
        stage.call(0, at: 10)
        stage.read(0)
        #expect(!stage.isAnyUnread(from: 20))
        #expect(!stage.isFree(0, at: 20, rest: 30))
        #expect(!stage.isFree(0, at: 49, rest: 30))
        #expect(stage.isFree(0, at: 50, rest: 30))
    }

    @Test("A call on a connection that has ended is no lost wake")
    func ended() throws {
        let stage = try Fixture()
        stage.call(0, at: 10)
        stage.callers.disconnect(0, stage.sharedMemory)
        stage.giveUp(from: 20)
        #expect(stage.calls.lost == 0)
        // Nothing can be sent to it now.
        stage.call(0, at: 30)
        #expect(stage.calls.count == 1)
    }
}

extension RunDirectory {
    static func forTests() throws -> RunDirectory {
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let programs = URL(fileURLWithPath: program).deletingLastPathComponent().path
        return try RunDirectory(programs: programs, progress: Progress(quiet: true))
    }
}
