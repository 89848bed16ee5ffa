import Keeper
import NightbellCore
import Testing

@Suite struct SharedStateSizeTests {
    /// Usual figures lie with a record, all others apart: each side must know the number.
    @Test func usualFiguresLieNear() {
        // The number of the last wake sent lies before them.
        #expect(SharedStateTable.nearCount == 1 + ClientStatistics.usualCount)
        #expect(SharedStateTable.plainCount == 1 + ClientStatistics().words.count)
    }

    /// A row is stored as the words that change together, and read by the next version of the program.
    @Test func aRowHasOneLayout() {
        #expect(MemoryLayout<ClientRow>.size == MemoryLayout<SharedStateTable.Words>.size)
        #expect(MemoryLayout<ClientRow>.offset(of: \.excessWakes) == 3)
        #expect(MemoryLayout<ClientRow>.offset(of: \.flags) == 10)
        #expect(MemoryLayout<ClientRow>.offset(of: \.lastEpoch) == 56)
        #expect(MemoryLayout<ClientRow>.offset(of: \.lastWakeID) == 64)
    }
}
