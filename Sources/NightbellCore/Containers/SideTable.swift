/// Values for a few of many slots, side by side: slots without one cost four bytes at most.
///
/// Elements are accessed in place and have a deterministic order, unlike a dictionary's. Lookups are
/// inlinable: each one in another module would ask the runtime for the table's generic type.
@usableFromInline package struct SideTable<Element: Sendable>: Sendable {
    /// The capacity that may be kept without values.
    private static var few: Int { 1_024 }
    @usableFromInline package static var absent: Int32 { -1 }

    @usableFromInline package var places: [Int32] = []
    @usableFromInline package var elements: [Element] = []
    private var owners: [UInt32] = []

    package init() {}

    package var count: Int { elements.count }
    package var isEmpty: Bool { elements.isEmpty }
    /// The slots that have a value, in an arbitrary but deterministic order.
    package var slots: [UInt32] { owners }

    @inlinable package func contains(_ slot: UInt32) -> Bool {
        Int(slot) < places.count && places[Int(slot)] != Self.absent
    }

    /// Sets or replaces a slot's value.
    package mutating func insert(_ element: Element, at slot: UInt32) {
        if contains(slot) { return elements[Int(places[Int(slot)])] = element }
        // As in `SlotMap`: an array would double by itself.
        places.makeRoom(for: Int(slot) + 1 - places.count)
        while places.count <= Int(slot) { places.append(Self.absent) }
        elements.makeRoom()
        owners.makeRoom()
        places[Int(slot)] = Int32(elements.count)
        elements.append(element)
        owners.append(slot)
    }

    /// - Parameter keepsPlaces: keeps the four bytes for each slot when no value is left, because another one
    ///   comes soon.
    @discardableResult
    package mutating func remove(_ slot: UInt32, keepsPlaces: Bool = false) -> Element? {
        guard contains(slot) else { return nil }
        let place = Int(places[Int(slot)])
        places[Int(slot)] = Self.absent
        elements.swapAt(place, elements.count - 1)
        let moved = owners.removeLast()
        if moved != slot {
            owners[place] = moved
            places[Int(moved)] = Int32(place)
        }
        let removed = elements.removeLast()
        if elements.isEmpty { giveMemoryBack(keepsPlaces: keepsPlaces) }
        return removed
    }

    private mutating func giveMemoryBack(keepsPlaces: Bool) {
        guard keepsPlaces else { return self = SideTable() }
        // There were many values at the same time.
        if elements.capacity > Self.few { (elements, owners) = ([], []) }
    }

    /// The value of a slot that `contains` knows, in place.
    package subscript(slot: UInt32) -> Element {
        @inlinable _read {
            precondition(contains(slot), "nothing in this slot")
            yield elements.span[Int(places[Int(slot)])]
        }
        @inlinable _modify {
            precondition(contains(slot), "nothing in this slot")
            yield &elements[Int(places[Int(slot)])]
        }
    }
}

extension SideTable: Equatable where Element: Equatable {}
