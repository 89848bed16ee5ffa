import NightbellCore
import Simulation
import Testing

@Suite struct DeadlineQueueTests {
    @Test(arguments: 0..<20 as Range<UInt64>)
    func behavesLikeASortedList(_ seed: UInt64) {
        var random = SplitMix64(seed: seed)
        var queue = DeadlineQueue()
        var model: [UInt32: Int64] = [:]
        for _ in 0..<3_000 {
            let slot = UInt32.random(in: 0..<100, using: &random)
            // Few values, so that equal instants are common.
            let value = Int64.random(in: -20...20, using: &random)
            switch Int.random(in: 0..<4, using: &random) {
            case 0:
                queue.set(slot, to: nil)
                model[slot] = nil
            case 1:
                let due = model.filter { $0.value <= value }.min { ($0.value, $0.key) < ($1.value, $1.key) }
                #expect(queue.popDue(at: Instant(nanoseconds: value)) == due?.key)
                if let due { model[due.key] = nil }
            default:
                queue.set(slot, to: Instant(nanoseconds: value))
                model[slot] = value
            }
            let head = model.min { ($0.value, $0.key) < ($1.value, $1.key) }
            #expect(queue.first?.slot == head?.key && queue.first?.instant.nanoseconds == head?.value)
            #expect(queue[slot]?.nanoseconds == model[slot])
            #expect(queue.count == model.count && queue.isEmpty == model.isEmpty)
        }
        let expected = model.sorted { ($0.value, $0.key) < ($1.value, $1.key) }.map(\.key)
        var drained: [UInt32] = []
        while let slot = queue.popDue(at: Instant(nanoseconds: .max)) { drained.append(slot) }
        #expect(drained == expected)
    }

    @Test func slotsNeverSetHaveNoInstant() {
        var queue = DeadlineQueue()
        #expect(queue[.max] == nil && queue.first == nil)
        queue.set(7, to: nil)
        #expect(queue.isEmpty && queue.popDue(at: Instant(nanoseconds: .max)) == nil)
    }

    @Test func dueMeansNotAfterNow() {
        var queue = DeadlineQueue()
        queue.set(3, to: Instant(nanoseconds: 10))
        #expect(queue.popDue(at: Instant(nanoseconds: 9)) == nil)
        #expect(queue.popDue(at: Instant(nanoseconds: 10)) == 3)
    }
}
