/// The names of all members of all rooms, each once in its room: 33 bytes for each member, and fewer than 11 to find it by.
package struct Names {
    private static let width = Limits.nameBytes + 1
    /// As in `Rows`.
    private static let pieceLength = 8_192
    private static let none = UInt32.max

    /// The others of a room, in a list.
    private struct Entry {
        var room: UInt32
        var next: UInt32
    }

    /// Each name's length, and its bytes.
    private var texts: [[UInt8]] = []
    private var entries = Rows<Entry>()
    /// Numbers of names, by name and room. Linear probing: as many places as a power of two, at most three quarters of
    /// them taken.
    private var places: [UInt32] = []

    package init() {}

    package var count: Int { entries.count }

    package func contains(_ name: String, room: UInt32) -> Bool {
        guard !places.isEmpty else { return false }
        var index = start(Self.hash(name.utf8, room))
        while places[index] != Self.none {
            if isEqual(places[index], name, room) { return true }
            index = following(index)
        }
        return false
    }

    /// - Parameter first: of the room; the new one is from now on.
    package mutating func insert(_ name: String, room: UInt32, first: inout UInt32?) -> UInt32 {
        let number = entries.insert(Entry(room: room, next: first ?? Self.none))
        first = number
        let (piece, start) = text(number)
        if piece == texts.count {
            texts.append([])
            texts[piece].reserveCapacity(Self.width * Self.pieceLength)
        }
        if start == texts[piece].count {
            texts[piece].append(contentsOf: repeatElement(0, count: Self.width))
        }
        texts[piece][start] = UInt8(name.utf8.count)
        for (index, byte) in name.utf8.enumerated() { texts[piece][start + 1 + index] = byte }
        if entries.count * 4 > places.count * 3 { resize(max(64, places.count * 2)) }
        put(number)
        return number
    }

    package mutating func remove(_ number: UInt32, first: inout UInt32?) {
        takeOut(number)
        if first == number {
            first = following(in: number)
        } else {
            var before = first
            while let current = before, entries[current].next != number { before = following(in: current) }
            if let before { entries[before].next = entries[number].next }
        }
        entries.remove(number)
        if entries.count == 0 {
            self = Names()
        } else if entries.count * 8 < places.count, places.count > 64 {
            resize(places.count / 4)
        }
    }

    package subscript(_ number: UInt32) -> String {
        let (piece, start) = text(number)
        let length = Int(texts[piece][start])
        return String(decoding: texts[piece][start + 1..<start + 1 + length], as: UTF8.self)
    }

    /// Those of a room from this one on, the newest first.
    package func numbers(from first: UInt32?) -> some Sequence<UInt32> {
        sequence(first: first ?? Self.none) { following(in: $0) ?? Self.none }
            .prefix { $0 != Self.none }
    }

    private func following(in number: UInt32) -> UInt32? {
        let next = entries[number].next
        return next == Self.none ? nil : next
    }

    // MARK: The places

    private mutating func takeOut(_ number: UInt32) {
        var hole = start(hash(number))
        while places[hole] != number { hole = following(hole) }
        // Whoever stands further from its place than the hole is moves up.
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
        while places[index] != Self.none, places[index] != number { index = following(index) }
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
        guard entries[number].room == room else { return false }
        let (piece, start) = text(number)
        return name.utf8.elementsEqual(texts[piece][start + 1..<start + 1 + Int(texts[piece][start])])
    }

    private func hash(_ number: UInt32) -> Int {
        let (piece, start) = text(number)
        return Self.hash(
            texts[piece][start + 1..<start + 1 + Int(texts[piece][start])], entries[number].room)
    }

    /// Seeded for each process: nobody can choose names that are slow to find.
    private static func hash(_ name: some Sequence<UInt8>, _ room: UInt32) -> Int {
        var hasher = Hasher()
        hasher.combine(room)
        for byte in name { hasher.combine(byte) }
        return hasher.finalize()
    }

    private func text(_ number: UInt32) -> (piece: Int, start: Int) {
        (Int(number) / Self.pieceLength, Int(number) % Self.pieceLength * Self.width)
    }
}
