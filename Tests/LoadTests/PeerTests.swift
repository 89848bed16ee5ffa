import CFloors
import Foundation
import Testing

@testable import LoadTester

/// Callers' sockets in further processes, as they are where one process would run out of descriptors.
@Suite("Peer processes", .serialized, .timeLimit(.minutes(40)))
struct PeerTests {
    private static var method: SuspensionMethod { geteuid() == 0 ? .cgroup : .signal }

    private func makeRunDirectory(_ peers: Int) throws -> RunDirectory {
        let program = try FileManager.default.destinationOfSymbolicLink(atPath: "/proc/self/exe")
        let programs = URL(fileURLWithPath: program).deletingLastPathComponent().path
        return try RunDirectory(programs: programs, peerProcesses: peers, progress: Progress(quiet: true))
    }

    @Test("No process runs out of descriptors before the supervisor does")
    func supervisorFirst() throws {
        var spread = 0
        for limit in [256, 512, 1_024, 4_096, 20_000, 1_048_576] {
            for clients in stride(from: 1, through: limit, by: max(1, limit / 500)) {
                var all: [DescriptorNeeds] = [
                    .parked(clients, clients: 1), .parked(clients, clients: clients),
                    .dormant(clients, running: 256),
                ]
                for transport in Transport.allCases {
                    for suspension in SuspensionMethod.allCases {
                        all += [
                            .called(clients, transport, suspension),
                            .called(clients, transport, suspension, areOthers: true),
                            .called(clients, transport, suspension, hasFloor: false, passing: 100),
                        ]
                    }
                }
                for needs in all {
                    do throws(LoadError) {
                        let count = try needs.peerProcesses(limit: limit)
                        if count > 0 { spread += 1 }
                    } catch {
                        guard case .tooFewDescriptors(let need, _, "the supervisor") = error, need > limit
                        else {
                            Issue.record("\(needs) at \(limit): \(error)")
                            return
                        }
                    }
                }
            }
        }
        #expect(spread > 0)
    }

    @Test("A process is given no more than it can hold", arguments: [200, 512, 1_800, 20_000])
    func shares(limit: Int) throws {
        for clients in 1...limit {
            guard let count = try? DescriptorNeeds.dormant(clients, running: 8).peerProcesses(limit: limit),
                count > 0
            else { continue }
            let callPlan = CallPlan((0..<count).map { "\($0)" })
            var held = Array(repeating: 0, count: count)
            for index in 0..<2 * clients { held[callPlan.process(of: index)] += 1 }
            #expect(held.allSatisfy { $0 <= limit - 64 }, "\(clients) clients in \(count) processes")
            if limit > 2_000 { break }
        }
        #expect(try DescriptorNeeds.dormant(limit / 2, running: 8).peerProcesses(limit: limit) == 2)
        #expect(try DescriptorNeeds.dormant(limit / 4, running: 8).peerProcesses(limit: limit) == 0)
    }

    @Test(
        "Each sleeper is called by the process that holds its peer socket", arguments: [Transport.unix, .tcp])
    func calling(transport: Transport) throws {
        let runDirectory = try makeRunDirectory(3)
        let callers = try Callers(transport, slots: 12, runDirectory)
        #expect(Set((0..<12).map { callers.callPlan[$0] }).count == 3)
        let sharedMemory = try SharedMemory(slots: 12)
        var sockets: [CInt] = []
        defer { for socket in sockets { close(socket) } }
        for index in 0..<12 { sockets.append(try transport.connect(to: callers.callPlan[index], as: index)) }
        try wait(for: "all to be there", atMost: .seconds(20)) {
            try callers.acceptConnections()
            return callers.connected == 12
        }
        let start = monotonicNow()
        try callers.call(7)
        try callers.call(Array(0..<12).reversed())
        for index in 0..<12 {
            for sequence in 1...(index == 7 ? 2 : 1) {
                #expect(cfloors_receive(sockets[index], sharedMemory[index].pointer, 0) == 1)
                let slot = sharedMemory[index].pointer.pointee
                #expect(slot.sequence == UInt64(sequence) && slot.duplicates == 0 && slot.skipped == 0)
                #expect((start...slot.received_at).contains(slot.sent_at))
            }
            #expect(callers.sent(to: index) == (index == 7 ? 2 : 1))
            #expect(cfloors_receive(sockets[index], sharedMemory[index].pointer, CInt(MSG_DONTWAIT)) == 0)
        }
    }

    @Test("A call that cannot be sent ends the process and is reported")
    func failing() throws {
        let runDirectory = try makeRunDirectory(2)
        let callers = try Callers(.unix, slots: 2, runDirectory)
        let socket = try Transport.unix.connect(to: callers.callPlan[1], as: 1)
        try wait(for: "it to be there", atMost: .seconds(20)) {
            try callers.acceptConnections()
            return callers.connected == 1
        }
        try callers.requirePeersRunning()
        close(socket)
        let error = #expect(throws: LoadError.self) { try callers.call([1]) }
        #expect("\(try #require(error))".contains("sleeper 1"))
        #expect(throws: LoadError.self) { try callers.requirePeersRunning() }
    }

    @Test("wake", arguments: [Transport.unix, .tcp])
    func wake(transport: Transport) throws {
        let settings = WakeRun.Settings(
            suspension: Self.method, transport: transport, clients: 6, calls: 20, rounds: 1, seed: 1)
        let results = try WakeRun(settings: settings, runDirectory: makeRunDirectory(3)).run()
        #expect(results.lost == 0 && results.lostByFloor == 0 && results.duplicate == 0)
        #expect(results.rounds.map(\.ours.count) == [20] && results.rounds.map(\.floor.count) == [20])
        #expect(results.figures.p50 > 0 && results.floorFigures.p50 > 0)
    }

    @Test("storm")
    func storm() throws {
        let settings = StormRun.Settings(
            suspension: Self.method, transport: .unix, clients: 20, rounds: 2, seed: 1,
            secondUser: geteuid() == 0 ? 65_534 : nil)
        let results = try StormRun(settings: settings, runDirectory: makeRunDirectory(3)).run()
        #expect(results.lost == 0 && results.lostByFloor == 0 && results.duplicate == 0)
        #expect(results.ours.map(\.times.count) == [20, 20])
    }

    @Test("soak")
    func soak() throws {
        let settings = SoakRun.Settings(
            suspension: Self.method, transport: .tcp, clients: 6, minutes: 0.02, seed: 1)
        let results = try SoakRun(settings: settings, runDirectory: makeRunDirectory(2)).run()
        #expect(results.lost == 0 && results.duplicate == 0 && results.calls > 0)
    }

    @Test("relaunch")
    func relaunch() throws {
        let settings = RelaunchRun.Settings(
            suspension: Self.method, clients: 12, firstClients: 4, calls: 5, rounds: 2, seed: 1)
        let results = try RelaunchRun(settings: settings, runDirectory: makeRunDirectory(3)).run()
        #expect(results.lost == 0 && results.lostByFloor == 0 && results.answered == 12)
        #expect(results.rounds.map(\.ours.count) == [5, 5] && results.rounds.map(\.floor.count) == [5, 5])
    }
}
