import NightbellCore
import Testing

@Suite struct SlotTextsTests {
    /// Compared with a dictionary, for texts stored contiguously and separately.
    @Test func itIsADictionary() {
        var texts = SlotTexts()
        var dictionary: [UInt32: [UInt8]] = [:]
        for _ in 0..<20_000 {
            let slot = UInt32.random(in: 0..<100)
            let longest = Int.random(in: 0..<50) == 0 ? 3_000 : 60
            let text = (0..<Int.random(in: 0...longest)).map { _ in UInt8.random(in: 0...255) }
            if Bool.random() {
                texts.set(slot, to: text)
                dictionary[slot] = text
            } else {
                texts.remove(slot)
                dictionary[slot] = nil
            }
            #expect(Array(texts[slot]) == dictionary[slot] ?? [])
        }
        for slot in 0..<200 as Range<UInt32> { #expect(Array(texts[slot]) == dictionary[slot] ?? []) }
    }
}
