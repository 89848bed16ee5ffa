/// A priority queue of instants, at most one for each slot, in which a slot's instant can be changed or
/// removed in logarithmic time. Slots are small numbers handed out by a `SlotMap`.
///
/// A 4-ary heap: the shallower tree costs fewer cache misses than a binary one. Equal instants come out by
/// slot, so that a replay is exact.
package struct DeadlineQueue: Sendable, Equatable {
    /// 12 bytes: the instant is stored in two halves, because aligned as a whole it would waste four bytes.
    private struct Entry: Comparable {
        private var upper: Int32
        private var lower: UInt32
        let slot: UInt32

        init(instant: Instant, slot: UInt32) {
            upper = Int32(truncatingIfNeeded: instant.nanoseconds >> 32)
            lower = UInt32(truncatingIfNeeded: instant.nanoseconds)
            self.slot = slot
        }

        var nanoseconds: Int64 { Int64(upper) << 32 | Int64(lower) }
        var instant: Instant { Instant(nanoseconds: nanoseconds) }

        static func < (left: Entry, right: Entry) -> Bool {
            (left.nanoseconds, left.slot) < (right.nanoseconds, right.slot)
        }
    }

    private static let absent: Int32 = -1
    /// The capacity that is always kept.
    private static let few = 1_024
    private var heap: [Entry] = []
    private var positions: [Int32] = []

    package init() {}

    package var isEmpty: Bool { heap.isEmpty }
    package var count: Int { heap.count }
    package var first: (instant: Instant, slot: UInt32)? { heap.first.map { ($0.instant, $0.slot) } }

    /// The instant of `slot`, if it has one.
    package subscript(slot: UInt32) -> Instant? {
        guard let index = position(of: slot) else { return nil }
        return heap[index].instant
    }

    /// Gives `slot` a new instant, or none.
    package mutating func set(_ slot: UInt32, to instant: Instant?) {
        switch (position(of: slot), instant) {
        case (nil, nil):
            break
        case (nil, let instant?):
            // As in `SlotMap`: an array would double by itself.
            positions.makeRoom(for: Int(slot) + 1 - positions.count)
            while positions.count <= Int(slot) { positions.append(Self.absent) }
            heap.makeRoom()
            heap.append(Entry(instant: instant, slot: slot))
            positions[Int(slot)] = Int32(heap.count - 1)
            siftUp(heap.count - 1)
        case (let index?, nil):
            remove(at: index)
        case (let index?, let instant?):
            guard heap[index].instant != instant else { return }
            heap[index] = Entry(instant: instant, slot: slot)
            siftUp(index)
            if let now = position(of: slot) { siftDown(now) }
        }
    }

    /// Removes and returns the first slot if its instant is not after `now`.
    package mutating func popDue(at now: Instant) -> UInt32? {
        guard let head = heap.first, head.instant <= now else { return nil }
        remove(at: 0)
        return head.slot
    }

    private func position(of slot: UInt32) -> Int? {
        guard Int(slot) < positions.count, positions[Int(slot)] != Self.absent else { return nil }
        return Int(positions[Int(slot)])
    }

    private mutating func remove(at index: Int) {
        positions[Int(heap[index].slot)] = Self.absent
        let last = heap.removeLast()
        if heap.isEmpty, positions.count > Self.few {
            // Many slots were due at the same time: free the memory.
            heap = []
            positions = []
        }
        guard index < heap.count else { return }
        heap[index] = last
        positions[Int(last.slot)] = Int32(index)
        siftUp(index)
        if let now = position(of: last.slot) { siftDown(now) }
    }

    private mutating func siftUp(_ start: Int) {
        var index = start
        let entry = heap[index]
        while index > 0 {
            let parent = (index - 1) / 4
            guard entry < heap[parent] else { break }
            heap[index] = heap[parent]
            positions[Int(heap[index].slot)] = Int32(index)
            index = parent
        }
        heap[index] = entry
        positions[Int(entry.slot)] = Int32(index)
    }

    private mutating func siftDown(_ start: Int) {
        var index = start
        let entry = heap[index]
        while true {
            let firstChild = index * 4 + 1
            guard firstChild < heap.count else { break }
            var smallest = firstChild
            for child in firstChild + 1..<max(firstChild + 1, min(firstChild + 4, heap.count))
            where heap[child] < heap[smallest] {
                smallest = child
            }
            guard heap[smallest] < entry else { break }
            heap[index] = heap[smallest]
            positions[Int(heap[index].slot)] = Int32(index)
            index = smallest
        }
        heap[index] = entry
        positions[Int(entry.slot)] = Int32(index)
    }
}
