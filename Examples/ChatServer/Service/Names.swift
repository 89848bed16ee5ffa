/// The names of all members of all rooms, each once in its room: 12 bytes for each member and the bytes of
/// its name, in whole words of four, and, while the number grows, fewer than 11 bytes for the hash table.
///
/// Names that look the same are equal, even if composed differently (`é`, or `e` and an accent): they are
/// compared and hashed as strings, which is by canonical equivalence (Unicode, annex 15), and kept as they
/// were sent.
///
/// Names with the same number of words share a shelf, where a new name takes the place of a removed one:
/// there is no compaction that would delay others. A shelf keeps its memory until it is empty.
package struct Names {
    private static let none = UInt32.max
    /// The words in front of a name.
    private static let (room, next, previous, text) = (0, 1, 2, 3)
    /// A number has a row of a shelf in its low bits, and the shelf in the bits from here on.
    private static let shelfShift = UInt32(29)

    /// One shelf for each length in words. Names are padded with zeros, which no name contains.
    private var shelves = (1...(Limits.nameBytes + 3) / 4).map { WordRows(width: Self.text + $0) }
    /// Numbers of names, by name and room. Linear probing: the number of places is a power of two, at most
    /// three quarters of them taken.
    private var places: [UInt32] = []

    package init() {}

    package var count: Int { shelves.reduce(0) { $0 + $1.count } }
    /// The memory of the names, without the hash table.
    package var heldBytes: Int { shelves.reduce(0) { $0 + $1.heldWords * 4 } }

    package func contains(_ name: String, room: UInt32) -> Bool {
        guard !places.isEmpty else { return false }
        var index = start(Self.hash(name, room))
        while places[index] != Self.none {
            if isEqual(places[index], name, room) { return true }
            index = following(index)
        }
        return false
    }

    /// - Parameter name: valid by `Limits`.
    /// - Parameter first: the first name of the room; updated to the new one.
    package mutating func insert(_ name: String, room: UInt32, first: inout UInt32?) -> UInt32 {
        let shelf = (name.utf8.count + 3) / 4 - 1
        let row = shelves[shelf].insert()
        let number = UInt32(shelf) << Self.shelfShift | row
        self[number, Self.room] = room
        link(number, before: first)
        first = number
        for word in Self.text..<shelves[shelf].width { self[number, word] = 0 }
        for (index, byte) in name.utf8.enumerated() {
            self[number, Self.text + index / 4] |= UInt32(byte) << (index % 4 * 8)
        }
        let count = count
        if count * 4 > places.count * 3 { resize(max(64, places.count * 2)) }
        put(number)
        return number
    }

    package mutating func remove(_ number: UInt32, first: inout UInt32?) {
        takeOut(number)
        unlink(number, &first)
        shelves[Self.shelf(number)].remove(Self.row(number))
        let count = count
        if count == 0 {
            self = Names()
        } else if count * 8 < places.count, places.count > 64 {
            resize(places.count / 4)
        }
    }

    package subscript(_ number: UInt32) -> String {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Limits.nameBytes)
        for word in Self.text..<shelves[Self.shelf(number)].width {
            var rest = self[number, word]
            while rest != 0 {
                bytes.append(UInt8(truncatingIfNeeded: rest))
                rest >>= 8
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }

    /// The names of a room, the newest first.
    package func numbers(from first: UInt32?) -> some Sequence<UInt32> {
        sequence(state: first) { coming in
            guard let number = coming else { return nil }
            let next = self[number, Self.next]
            coming = next == first ? nil : next
            return number
        }
    }

    // MARK: The ring of a room

    private mutating func link(_ number: UInt32, before first: UInt32?) {
        let next = first ?? number
        let previous = first.map { self[$0, Self.previous] } ?? number
        self[number, Self.next] = next
        self[number, Self.previous] = previous
        self[next, Self.previous] = number
        self[previous, Self.next] = number
    }

    private mutating func unlink(_ number: UInt32, _ first: inout UInt32?) {
        let (next, previous) = (self[number, Self.next], self[number, Self.previous])
        self[next, Self.previous] = previous
        self[previous, Self.next] = next
        if first == number { first = next == number ? nil : next }
    }

    // MARK: The places

    private mutating func takeOut(_ number: UInt32) {
        var hole = start(hash(number))
        while places[hole] != number { hole = following(hole) }
        // Move up entries that are further from their own place than from the hole.
        var index = following(hole)
        while places[index] != Self.none {
            let own = start(hash(places[index]))
            if (index - own) & (places.count - 1) >= (index - hole) & (places.count - 1) {
                places[hole] = places[index]
                hole = index
            }
            index = following(index)
        }
        places[hole] = Self.none
    }

    private mutating func put(_ number: UInt32) {
        var index = start(hash(number))
        while places[index] != Self.none { index = following(index) }
        places[index] = number
    }

    private mutating func resize(_ length: Int) {
        let former = places
        places = [UInt32](repeating: Self.none, count: length)
        for number in former where number != Self.none { put(number) }
    }

    private func start(_ hash: Int) -> Int { hash & (places.count - 1) }
    private func following(_ index: Int) -> Int { (index + 1) & (places.count - 1) }

    private func isEqual(_ number: UInt32, _ name: String, _ room: UInt32) -> Bool {
        self[number, Self.room] == room && self[number] == name
    }

    private func hash(_ number: UInt32) -> Int { Self.hash(self[number], self[number, Self.room]) }

    /// Seeded for each process, so that users cannot choose colliding names.
    private static func hash(_ name: String, _ room: UInt32) -> Int {
        var hasher = Hasher()
        hasher.combine(room)
        hasher.combine(name)
        return hasher.finalize()
    }

    // MARK: The shelves

    private static func shelf(_ number: UInt32) -> Int { Int(number >> shelfShift) }
    private static func row(_ number: UInt32) -> UInt32 { number & (1 << shelfShift - 1) }

    private subscript(_ number: UInt32, _ word: Int) -> UInt32 {
        get { shelves[Self.shelf(number)][Self.row(number), word] }
        set { shelves[Self.shelf(number)][Self.row(number), word] = newValue }
    }
}
