import NightbellCore
import Simulation
import Testing

@Suite struct SlotMapTests {
    @Test(arguments: 0..<20 as Range<UInt64>)
    func behavesLikeADictionary(_ seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var map = SlotMap<Int>()
        var model: [SlotID: Int] = [:]
        var everUsed: [SlotID] = []
        for step in 0..<2_000 {
            if random.once(in: 2) || everUsed.isEmpty {
                let id = map.insert(step)
                #expect(!everUsed.contains(id) && id.rawValue != 0)
                #expect(SlotID(rawValue: id.rawValue) == id)
                everUsed.append(id)
                model[id] = step
            } else if let id = everUsed.randomElement(using: &random) {
                switch Int.random(in: 0..<3, using: &random) {
                case 0:
                    #expect(map.remove(id) == model.removeValue(forKey: id))
                case 1 where model[id] != nil:
                    map[id] += 1
                    model[id, default: 0] += 1
                default:
                    #expect(map.contains(id) == (model[id] != nil))
                    #expect((map.id(inSlot: id.slot) == id) == (model[id] != nil))
                }
            }
            #expect(map.count == model.count)
        }
        #expect(Set(map.ids) == Set(model.keys))
        #expect(map.ids.map(\.slot) == map.ids.map(\.slot).sorted())
        for (id, value) in model { #expect(map[id] == value) }
        #expect(map.slotCount <= everUsed.count)
    }

    @Test func madeUpNamesAreStrangers() {
        var map = SlotMap<Int>()
        let id = map.insert(1)
        for raw in [0, 1, id.rawValue + 1, id.rawValue ^ (1 << 32), .max, .max >> 32] as [UInt64] {
            #expect(!map.contains(SlotID(rawValue: raw)))
            #expect(map.remove(SlotID(rawValue: raw)) == nil)
        }
        #expect(map.id(inSlot: .max) == nil)
        #expect(map.count == 1)
    }

    @Test func slotsAreUsedAgainUnderNewNames() {
        var map = SlotMap<Int>()
        let first = map.insert(1)
        map.remove(first)
        let second = map.insert(2)
        #expect(first.slot == second.slot && first != second)
        #expect(!map.contains(first) && map.contains(second))
    }
}
