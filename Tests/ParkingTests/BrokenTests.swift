import EdgeTestSupport
import Glibc
import NightbellCore
import NightbellParking
import Testing

/// Hosts that misuse the supervisor.
@Suite(.timeLimit(.minutes(40))) struct BrokenTests {
    private func code(_ body: () throws -> Void) -> EmbeddedError.Code? {
        #expect(throws: EmbeddedError.self) { try body() }?.code
    }

    @Test(arguments: [false, true]) func aDescriptorClosedByTheHostIsReported(isTCP: Bool) throws {
        let host = try Hosted()
        let profile = isTCP ? try ParkingProfile.tcp() : nil
        func broken(_ body: (ParkingToken) throws -> Void) throws {
            let pair = try Pair.tcp()
            let token = try host.supervisor.park(pair.near, profile: profile, state: [1, 2])
            close(pair.near)
            #expect(code { try body(token) } == .broken)
            #expect(code { try body(token) } == .unknownToken)
        }
        try broken { _ = try host.supervisor.claim($0) }
        try broken { try host.supervisor.release($0) }
        #expect(host.supervisor.counters.sockets == 0 && host.supervisor.counters.stateBytes == 0)
        #expect(host.isQuiet())
    }

    /// Its number belongs to another socket by then.
    @Test func aFileWithTheNumberOfAClosedSocketIsLeftAlone() throws {
        let host = try Hosted()
        let peers = try (0..<5).map { _ in try Pair.tcp() }
        let others = try (0..<5).map { _ in try Pair.tcp() }
        let tokens = try peers.map { try host.supervisor.park($0.near, profile: .tcp()) }
        for (peer, other) in zip(peers, others) { try #require(dup2(other.near, peer.near) == peer.near) }
        for other in others { close(other.near) }
        func isUntouched(_ index: Int) throws -> Bool {
            var on: CInt = 1
            var length = socklen_t(MemoryLayout<CInt>.size)
            try #require(getsockopt(peers[index].near, SOL_SOCKET, SO_KEEPALIVE, &on, &length) == 0)
            try others[index].say("still")
            let heard = try read(5, from: peers[index].near)
            return on == 0 && heard == Array("still".utf8)
        }
        #expect(code { _ = try host.supervisor.claim(tokens[0]) } == .broken)
        #expect(code { try host.supervisor.release(tokens[1]) } == .broken)
        #expect(try isUntouched(0) && isUntouched(1))
        // Intact sockets come back.
        let pair = try Pair.tcp()
        _ = try host.supervisor.park(pair.near)
        #expect(host.supervisor.claimAll().map(\.descriptor) == [pair.near])
        #expect(try isUntouched(2))
        _ = try host.supervisor.park(pair.near)
        host.supervisor.close()
        #expect(try pair.hear(1) == [])
        #expect(try isUntouched(3) && isUntouched(4))
        for peer in peers { close(peer.near) }
    }

    /// Nothing can be sent to it, which is reported; it is not watched any more.
    @Test func pingsOfASocketClosedByTheHostEndNothingElse() throws {
        let host = try Hosted()
        let pair = try Pair.tcp()
        let ping = ParkingProfile.Ping([1], answer: [2], interval: .seconds(1), answerWithin: .seconds(1))
        let token = try host.supervisor.park(pair.near, profile: .bytes([], ping: ping))
        // A number that no other thread opens.
        let (end, other) = (open("/dev/null", O_RDONLY | O_CLOEXEC), pair.near)
        try #require(dup2(end, other) == other)
        close(end)
        let events = try host.next()
        #expect(events.map(\.token) == [token] && events[0].reasons.contains(.unanswerable))
        #expect(code { try host.supervisor.release(token) } == .broken)
        #expect(isOpen(other))
        close(other)
    }

    @Test func aConfigurationThatMakesNoSenseIsRefused() throws {
        func isRefused(_ adjust: (inout EmbeddedSupervisor.Configuration) -> Void) -> Bool {
            code { _ = try Hosted(adjust) } == .configuration
        }
        for tolerance in [-0.1, 1.1, .nan, .infinity] {
            #expect(isRefused { $0.keepAliveTolerance = tolerance })
        }
        #expect(isRefused { $0.lead = .nanoseconds(-1) })
        #expect(isRefused { $0.stateLimit = -1 } && isRefused { $0.stateLimit = .max })
        #expect(isRefused { $0.socketLimit = 0 } && isRefused { $0.socketLimit = -1 })
        #expect(isRefused { $0.noiseBurst = 0 } && isRefused { $0.noiseBurst = 65_536 })
        #expect(isRefused { $0.noiseInterval = .zero } && isRefused { $0.partialTimeout = .seconds(-1) })
        for tolerance in [0, 1.0] {
            _ = try Hosted { configuration in
                configuration.keepAliveTolerance = tolerance
                configuration.lead = .zero
                configuration.stateLimit = 0
                configuration.socketLimit = 1
                configuration.noiseBurst = 1
            }
        }
    }
}
