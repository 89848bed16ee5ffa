/// A name for an element of a `SlotMap`: the slot it lies in, and how often that slot had been used before. A
/// name that outlives its element never names another one.
public struct SlotID: Sendable, Hashable {
    public let slot: UInt32
    public let generation: UInt32

    public init(slot: UInt32, generation: UInt32) {
        self.slot = slot
        self.generation = generation
    }

    /// Both parts in one number, which is never 0.
    public var rawValue: UInt64 { UInt64(generation) << 32 | UInt64(slot) }

    public init(rawValue: UInt64) {
        slot = UInt32(truncatingIfNeeded: rawValue)
        generation = UInt32(truncatingIfNeeded: rawValue >> 32)
    }
}

/// Elements in slots that are used again, each under a name that is not.
package struct SlotMap<Element: Sendable>: Sendable {
    private var elements: [Element?] = []
    private var generations: [UInt32] = []
    private var free: [UInt32] = []
    package private(set) var count = 0

    package init() {}

    /// Slots in use or used before: the upper bound of every slot number.
    package var slotCount: Int { elements.count }

    package mutating func insert(_ element: Element) -> SlotID {
        count += 1
        if let slot = free.popLast() {
            elements[Int(slot)] = element
            return SlotID(slot: slot, generation: generations[Int(slot)])
        }
        elements.append(element)
        generations.append(1)
        return SlotID(slot: UInt32(elements.count - 1), generation: 1)
    }

    @discardableResult
    package mutating func remove(_ id: SlotID) -> Element? {
        guard contains(id), let element = elements[Int(id.slot)].take() else { return nil }
        count -= 1
        // A slot whose generations are used up is retired, so that a name never comes back.
        if generations[Int(id.slot)] < .max {
            generations[Int(id.slot)] += 1
            free.append(id.slot)
        }
        return element
    }

    package func contains(_ id: SlotID) -> Bool {
        Int(id.slot) < elements.count && generations[Int(id.slot)] == id.generation
            && elements[Int(id.slot)] != nil
    }

    /// The name of what lies in `slot` now.
    package func id(inSlot slot: UInt32) -> SlotID? {
        guard Int(slot) < elements.count, elements[Int(slot)] != nil else { return nil }
        return SlotID(slot: slot, generation: generations[Int(slot)])
    }

    /// All names in use, by slot.
    package var ids: some Sequence<SlotID> {
        (0..<UInt32(elements.count)).lazy.compactMap { id(inSlot: $0) }
    }

    /// The element, in place. The name must be in use: names from outside are checked with `contains` first.
    package subscript(id: SlotID) -> Element {
        _read {
            precondition(contains(id), "stale name")
            // swift-format-ignore: NeverForceUnwrap
            yield elements[Int(id.slot)]!
        }
        _modify {
            precondition(contains(id), "stale name")
            // swift-format-ignore: NeverForceUnwrap
            yield &elements[Int(id.slot)]!
        }
    }
}

extension SlotMap: Equatable where Element: Equatable {}
