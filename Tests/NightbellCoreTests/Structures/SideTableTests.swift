import NightbellCore
import Testing

@Suite struct SideTableTests {
    @Test func valuesComeAndGo() {
        var table = SideTable<Int>()
        for slot in [7, 0, 3] as [UInt32] { table.insert(Int(slot) * 10, at: slot) }
        table[3] += 1
        #expect(table.count == 3 && table[7] == 70 && table[3] == 31)
        #expect(table.remove(7) == 70 && table.remove(7) == nil)
        #expect(!table.contains(7) && table[0] == 0 && table[3] == 31)
        table.insert(5, at: 3)
        #expect(table.count == 2 && table[3] == 5)
    }

    @Test(arguments: [true, false]) func anEmptiedTableIsUsedAgain(keepsPlaces: Bool) {
        var table = SideTable<UInt32>()
        for _ in 1...2 {
            for slot in 0..<2_000 as Range<UInt32> { table.insert(slot, at: slot) }
            for slot in 0..<2_000 as Range<UInt32> {
                #expect(table.remove(slot, keepsPlaces: keepsPlaces) == slot)
            }
            #expect(table.isEmpty && table.slots.isEmpty && !table.contains(0))
        }
    }
}
