import Keeper
import NightbellCore
import Testing

@Suite struct LedgerRoomTests {
    /// Usual figures lie with a record, all others apart: each side must know the number.
    @Test func usualFiguresLieNear() {
        // The number of the last wake sent lies before them.
        #expect(Ledger.nearCount == 1 + Progress.usualFigures)
        #expect(Ledger.plainCount == 1 + Progress.Figures(repeating: 0).count)
    }
}
