import CTestSupport
import EdgeTestSupport
import Glibc
import NightbellParking
import Testing

/// The cost of parked sockets, and the behaviour without free descriptors or memory.
@Suite struct ResourceTests {
    /// The whole cost: its token, a state of 32 bytes, a profile, its next ping.
    @Test func aParkedSocketCostsFewerThan300Bytes() async {
        await #expect(processExitsWith: .success) {
            let count = 3_000
            var limit = rlimit()
            let resource = __rlimit_resource_t(RLIMIT_NOFILE.rawValue)
            try #require(getrlimit(resource, &limit) == 0)
            limit.rlim_cur = limit.rlim_max
            try #require(setrlimit(resource, &limit) == 0)
            let pairs = try (0..<count).map { _ in try Pair.unix() }
            let supervisor = try EmbeddedSupervisor { _ in }
            let profile = try ParkingProfile.webSocket(isServer: true)
            let state = [UInt8](repeating: 7, count: 32)
            // One-time allocations.
            let first = try supervisor.park(pairs[0].near, profile: profile, state: state)
            let before = ctest_heap_in_use()
            for pair in pairs.dropFirst() {
                _ = try supervisor.park(pair.near, profile: profile, state: state)
            }
            let each = Double(ctest_heap_in_use() - before) / Double(count - 1)
            print("bytes for each parked socket: \(each)")
            try supervisor.release(first)
            #expect(each <= 300)
        }
    }

    @Test func withoutDescriptorsNoneIsMadeButSocketsAreParked() async {
        await #expect(processExitsWith: .success) {
            let supervisor = try EmbeddedSupervisor { _ in }
            let pair = try Pair.unix()
            // Lazily loaded code.
            _ = try supervisor.claim(try supervisor.park(pair.near, profile: .irc(), state: [1]))
            try withNoDescriptorLeft {
                let error = #expect(throws: EmbeddedError.self) { try EmbeddedSupervisor() }
                #expect(error?.code == .resources && error?.errorNumber == EMFILE)
                let token = try supervisor.park(pair.near, profile: .irc(), state: [1])
                #expect(try supervisor.claim(token).descriptor == pair.near)
            }
        }
    }
}
