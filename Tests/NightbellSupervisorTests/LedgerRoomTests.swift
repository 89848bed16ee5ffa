import Keeper
import NightbellCore
import Testing

@Suite struct LedgerRoomTests {
    /// What is usual lies with a record, all else apart: neither knows of the other.
    @Test func usualFiguresLieNear() {
        // The number of the wake that was told lies before them.
        #expect(Ledger.nearCount == 1 + Progress.usualFigures)
        #expect(Ledger.plainCount == 1 + Progress.Figures(repeating: 0).count)
    }
}
