/// A name for an element of a `SlotMap`: its slot, and how often that slot had been used before. A name that
/// outlives its element never names another one.
@usableFromInline package struct SlotID: Sendable, Hashable {
    @usableFromInline package let slot: UInt32
    @usableFromInline package let generation: UInt32

    @inlinable package init(slot: UInt32, generation: UInt32) {
        self.slot = slot
        self.generation = generation
    }

    /// Both parts in one number, which is never 0.
    @inlinable package var rawValue: UInt64 { UInt64(generation) << 32 | UInt64(slot) }

    @inlinable package init(rawValue: UInt64) {
        slot = UInt32(truncatingIfNeeded: rawValue)
        generation = UInt32(truncatingIfNeeded: rawValue >> 32)
    }
}

/// Elements in reusable slots, each under a name that is never reused.
///
/// The elements lie side by side, not in optionals: reading a part of an optional in an array copies the
/// whole element, with a retain for each array and string in it (measured: a third of the core's time).
package struct SlotMap<Element: Sendable>: Sendable {
    private struct Slot: Sendable, Equatable {
        static var free: Int32 { -1 }

        /// The generation of the slot's current element, or of its next one.
        var generation: UInt32 = 1
        /// Where its element lies.
        var place: Int32
    }

    private var elements: [Element] = []
    /// The slot of each element.
    private var owners: [UInt32] = []
    private var slots: [Slot] = []
    private var free: [UInt32] = []
    /// The first generation of a new slot.
    private var firstGeneration: UInt32 = 1

    package init() {}

    /// Takes elements that already have names. Every new name gets a generation after `generation`, so that
    /// no earlier name is given again.
    package init(_ named: [(id: SlotID, element: Element)], after generation: UInt32) {
        firstGeneration = max(1, generation == .max ? .max : generation + 1)
        let count = named.map { Int($0.id.slot) + 1 }.max() ?? 0
        slots = Array(repeating: Slot(generation: firstGeneration, place: Slot.free), count: count)
        elements.reserveCapacity(named.count)
        owners.reserveCapacity(named.count)
        for (id, element) in named {
            slots[Int(id.slot)] = Slot(generation: id.generation, place: Int32(elements.count))
            elements.append(element)
            owners.append(id.slot)
        }
        for slot in (0..<UInt32(count)).reversed() where slots[Int(slot)].place == Slot.free {
            free.append(slot)
        }
    }

    package var count: Int { elements.count }

    /// Slots in use or used before: the upper bound of every slot number.
    package var slotCount: Int { slots.count }

    package mutating func insert(_ element: Element) -> SlotID {
        elements.makeRoom()
        let place = Int32(elements.count)
        let slot: UInt32
        if let used = free.popLast() {
            slot = used
            slots[Int(slot)].place = place
        } else {
            slot = UInt32(slots.count)
            slots.append(Slot(generation: firstGeneration, place: place))
        }
        elements.append(element)
        owners.append(slot)
        return SlotID(slot: slot, generation: slots[Int(slot)].generation)
    }

    @discardableResult
    package mutating func remove(_ id: SlotID) -> Element? {
        guard contains(id) else { return nil }
        let place = Int(slots[Int(id.slot)].place)
        slots[Int(id.slot)].place = Slot.free
        // A slot at its last generation is retired, so that no name is given twice.
        if id.generation < .max {
            slots[Int(id.slot)].generation += 1
            free.append(id.slot)
        }
        // The last element takes the place.
        elements.swapAt(place, elements.count - 1)
        let owner = owners.removeLast()
        if owner != id.slot {
            owners[place] = owner
            slots[Int(owner)].place = Int32(place)
        }
        return elements.removeLast()
    }

    /// Frees the memory of removed elements. The slots stay, so that no name is given twice.
    package mutating func giveMemoryBack() {
        guard elements.count < elements.capacity / 2 else { return }
        elements = elements.withRoom
        owners = owners.withRoom
    }

    package func contains(_ id: SlotID) -> Bool {
        guard Int(id.slot) < slots.count else { return false }
        let slot = slots[Int(id.slot)]
        return slot.generation == id.generation && slot.place != Slot.free
    }

    /// The name of the element in `slot`.
    package func id(inSlot slot: UInt32) -> SlotID? {
        guard Int(slot) < slots.count, slots[Int(slot)].place != Slot.free else { return nil }
        return SlotID(slot: slot, generation: slots[Int(slot)].generation)
    }

    /// All names in use, by slot.
    package var ids: some Sequence<SlotID> {
        (0..<UInt32(slots.count)).lazy.compactMap { id(inSlot: $0) }
    }

    /// The element, in place. The name must be in use: names from outside are checked with `contains` first.
    package subscript(id: SlotID) -> Element {
        @inline(__always)
        _read {
            precondition(contains(id), "stale name")
            // An array hands out copies; a span does not.
            yield elements.span[Int(slots[Int(id.slot)].place)]
        }
        @inline(__always)
        _modify {
            precondition(contains(id), "stale name")
            yield &elements[Int(slots[Int(id.slot)].place)]
        }
    }
}

extension SlotMap: Equatable where Element: Equatable {}

extension Array {
    /// A copy with room for an eighth more.
    fileprivate var withRoom: [Element] {
        var array: [Element] = []
        array.reserveCapacity(count + Swift.max(8, count / 8))
        array += self
        return array
    }
}
