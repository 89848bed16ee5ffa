import Keeper
import NightbellCore
import Testing

@Suite struct SharedStateSizeTests {
    /// Usual figures lie with a record, all others apart: each side must know the number.
    @Test func usualFiguresLieNear() {
        // The number of the last wake sent lies before them.
        #expect(SharedStateTable.nearCount == 1 + ClientStateEncoding.usualStatistics)
        #expect(SharedStateTable.plainCount == 1 + ClientStateEncoding.Statistics(repeating: 0).count)
    }
}
