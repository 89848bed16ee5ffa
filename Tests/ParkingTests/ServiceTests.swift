import EdgeTestSupport
import Glibc
import NightbellCore
import NightbellParking
import Synchronization
import Testing

/// The supervisor's own thread, its events, and its end.
@Suite(.timeLimit(.minutes(40))) struct ServiceTests {
    @Test func eventsAsASequence() async throws {
        let supervisor = try EmbeddedSupervisor()
        let pair = try Pair.tcp()
        let token = try supervisor.park(pair.near, state: [1])
        try pair.say("hello")
        var events = supervisor.events.makeAsyncIterator()
        #expect(await events.next() == ParkedEvent(token, .readable))
        #expect(try supervisor.claim(token).state == [1])
        close(pair.near)
        supervisor.close()
        #expect(await events.next() == nil)
    }

    @Test func claimedWhileBeingTold() throws {
        let claimed = Mutex<[ClaimedSocket]>([])
        let own = Mutex<EmbeddedSupervisor?>(nil)
        let supervisor = try EmbeddedSupervisor { events in
            let supervisor = own.withLock { $0 }
            for event in events {
                guard let socket = try? supervisor?.claim(event.token) else { continue }
                claimed.withLock { $0.append(socket) }
            }
        }
        own.withLock { $0 = supervisor }
        let pairs = try (0..<100).map { _ in try Pair.unix() }
        // Traffic before, at, and after the moment of parking.
        for (index, pair) in pairs.enumerated() {
            if index % 2 == 0 { try pair.say([UInt8(index)]) }
            _ = try supervisor.park(pair.near, state: [UInt8(index)])
            if index % 2 == 1 { try pair.say([UInt8(index)]) }
        }
        #expect(eventually { claimed.withLock { $0.count } == pairs.count })
        for socket in claimed.withLock({ $0 }) {
            #expect(try read(1, from: socket.descriptor) == socket.state)
            close(socket.descriptor)
        }
        own.withLock { $0 = nil }
    }

    @Test func parkedAndClaimedByManyThreads() throws {
        let supervisor = try EmbeddedSupervisor { _ in }
        let threads = try (0..<4).map { number in
            let pairs = try (0..<8).map { _ in try Pair.unix() }
            return OwnThread { () throws -> Int in
                var rounds = 0
                for round in 0..<500 {
                    let pair = pairs[round % pairs.count]
                    let state = [UInt8](repeating: UInt8(number), count: round % 80)
                    let token = try supervisor.park(pair.near, state: state)
                    if round % 3 == 0 { try pair.say("x") }
                    let claimed = try supervisor.claim(token)
                    guard claimed.descriptor == pair.near, claimed.state == state else { return rounds }
                    rounds += 1
                }
                for pair in pairs { close(pair.near) }
                return rounds
            }
        }
        for thread in threads { #expect(try thread.join() == 500) }
        let counters = supervisor.counters
        #expect(counters.sockets == 0 && counters.stateBytes == 0)
        #expect(counters.parking.parked == 2_000 && counters.parking.claimed == 2_000)
    }

    @Test func everythingIsHandedBackOrClosedAtTheEnd() throws {
        let pairs = try (0..<3).map { _ in try Pair.tcp() }
        let supervisor = try EmbeddedSupervisor { _ in }
        for (index, pair) in pairs.enumerated() {
            _ = try supervisor.park(pair.near, state: [UInt8](repeating: UInt8(index), count: 2_000))
        }
        let back = supervisor.claimAll()
        #expect(back.map(\.descriptor) == pairs.map(\.near))
        #expect(back.map(\.state.first) == [0, 1, 2] && back.allSatisfy { $0.state.count == 2_000 })
        for socket in back { _ = try supervisor.park(socket.descriptor) }
        supervisor.close()
        for pair in pairs { #expect(try pair.hear(1) == []) }
        let other = try Pair.tcp()
        let error = #expect(throws: EmbeddedError.self) { try supervisor.park(other.near) }
        #expect(error?.code == .closed)
        close(other.near)
    }

    @Test func lettingGoOfItClosesIt() throws {
        let pair = try Pair.tcp()
        do {
            let supervisor = try EmbeddedSupervisor { _ in }
            _ = try supervisor.park(pair.near)
        }
        #expect(try pair.hear(1) == [])
    }
}
