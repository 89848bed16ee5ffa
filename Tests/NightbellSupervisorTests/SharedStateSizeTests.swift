import Keeper
import NightbellCore
import NightbellProfiles
import NightbellWire
import Testing

@Suite struct SharedStateSizeTests {
    /// Usual figures lie with a record, all others apart: each side must know the number.
    @Test func usualFiguresLieNear() {
        // The number of the last wake sent lies before them.
        #expect(SharedStateTable.nearCount == 1 + ClientStatistics.usualCount)
        #expect(SharedStateTable.plainCount == 1 + ClientStatistics().words.count)
    }

    /// The counters of clients that are gone lie between other numbers of the table.
    @Test func allCountersHaveRoom() {
        #expect(Counter.allCases.count <= Counters.capacity)
        #expect(ClientStatistics.CounterWords(repeating: 0).count == ClientStatistics.counterCount)
        // Eight numbers come before them, two and the totals of pings after.
        let pings = OffloadTotals().words.count
        #expect(8 + ClientStatistics.counterCount + 2 + pings <= SharedStateTable.generalCount)
        #expect(ProfileName.allCases.allSatisfy { $0.number < OffloadTotals.profiles })
        #expect(Set(ProfileName.allCases.map(\.number)).count == ProfileName.allCases.count)
    }

    /// A row is stored as the words that change together, and read by the next version of the program.
    @Test func aRowHasOneLayout() {
        #expect(MemoryLayout<ClientRow>.size == MemoryLayout<SharedStateTable.Words>.size)
        #expect(MemoryLayout<ClientRow>.offset(of: \.excessWakes) == 3)
        #expect(MemoryLayout<ClientRow>.offset(of: \.flags) == 10)
        #expect(MemoryLayout<ClientRow>.offset(of: \.lastEpoch) == 56)
        #expect(MemoryLayout<ClientRow>.offset(of: \.lastWakeID) == 64)
    }

    @Test("Each reason of a wake outlives the worker", arguments: WireWakeReason.allCases)
    func reasons(_ reason: WireWakeReason) {
        guard reason != .unspecified else { return }
        let reasons = WakeReasons(rawValue: 1 << (UInt32(reason.rawValue) - 1))
        #expect(ClientRow.StoredReasons(reasons).reasons == reasons)
        #expect(ClientRow.StoredReasons([reasons, .socket]).reasons == [reasons, .socket])
    }

    /// The pings of a socket lie between its token and the random numbers of its last ping.
    @Test func offloadHasOneLayout() {
        typealias Offload = RecoverySnapshot.Offload
        #expect(MemoryLayout<Offload>.size == 5 * MemoryLayout<UInt64>.size)
        #expect(MemoryLayout<Offload>.offset(of: \.found) == 1)
        #expect(MemoryLayout<Offload>.offset(of: \.foundInWake) == 4)
        #expect(MemoryLayout<Offload>.offset(of: \.lastPing) == 8)
        var offload = Offload(at: Instant(nanoseconds: 1))
        offload.counters.wakesAvoided = 7
        withUnsafeBytes(of: offload) { bytes in
            #expect(bytes.loadUnaligned(fromByteOffset: 32, as: UInt64.self) == 7)
        }
    }
}
