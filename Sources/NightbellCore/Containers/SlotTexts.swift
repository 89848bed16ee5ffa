/// Thousands of texts by slot, stored contiguously. Separate allocations would take twice the memory, and
/// freed ones between live ones would be fragments without use.
package struct SlotTexts: Sendable {
    private struct Place: Sendable {
        var offset: UInt32 = 0
        var length: UInt32 = 0
    }

    /// Longer texts are allocated separately, so that compaction never moves megabytes.
    private static let longestShared = 1_024

    private var places: [Place] = []
    private var bytes: [UInt8] = []
    /// The number of bytes that belong to live texts.
    private var live = 0
    private var longOnes: [UInt32: [UInt8]] = [:]

    package init() {}

    /// The text in a slot; empty if there is none.
    package subscript(slot: UInt32) -> ArraySlice<UInt8> {
        guard slot < places.count else { return [] }
        let place = places[Int(slot)]
        guard place.length > 0 else { return longOnes[slot]?[...] ?? [] }
        return bytes[Int(place.offset)..<Int(place.offset + place.length)]
    }

    package mutating func set(_ slot: UInt32, to text: some Collection<UInt8>) {
        remove(slot)
        guard !text.isEmpty else { return }
        if slot >= places.count {
            let missing = Int(slot) + 1 - places.count
            places.makeRoom(for: missing)
            places.append(contentsOf: repeatElement(Place(), count: missing))
        }
        guard text.count <= Self.longestShared else {
            longOnes[slot] = Array(text)
            return
        }
        bytes.makeRoom(for: text.count)
        places[Int(slot)] = Place(offset: UInt32(bytes.count), length: UInt32(text.count))
        bytes += text
        live += text.count
    }

    package mutating func remove(_ slot: UInt32) {
        guard slot < places.count else { return }
        let place = places[Int(slot)]
        guard place.length > 0 else {
            longOnes[slot] = nil
            return
        }
        places[Int(slot)] = Place()
        live -= Int(place.length)
        if bytes.count > 2 * live + 4_096 { moveTogether() }
    }

    private mutating func moveTogether() {
        var moved: [UInt8] = []
        moved.reserveCapacity(live + live / 8)
        for slot in places.indices where places[slot].length > 0 {
            let place = places[slot]
            places[slot].offset = UInt32(moved.count)
            moved += bytes[Int(place.offset)..<Int(place.offset + place.length)]
        }
        bytes = moved
    }
}

extension Array {
    /// Grows by less than an array would by itself: doubling leaves up to half of a large table unused.
    package mutating func makeRoom(for others: Int = 1) {
        if count + others > capacity { reserveCapacity(count + Swift.max(others, 8, count / 8)) }
    }
}
