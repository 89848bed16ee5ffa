/// The names of all members of all rooms: 25 bytes for each.
package struct Names {
    private static let width = Limits.nameBytes + 1
    private static let pieceLength = 256

    /// Each name's length, and its bytes.
    private var pieces: [[UInt8]] = []
    private var free: [UInt32] = []
    private var used: UInt32 = 0

    package init() {}

    package mutating func insert(_ name: String) -> UInt32 {
        let number = free.popLast() ?? used
        if number == used { used += 1 }
        if Int(number) / Self.pieceLength == pieces.count {
            pieces.append([UInt8](repeating: 0, count: Self.width * Self.pieceLength))
        }
        let (piece, start) = place(number)
        pieces[piece][start] = UInt8(name.utf8.count)
        for (index, byte) in name.utf8.enumerated() { pieces[piece][start + 1 + index] = byte }
        return number
    }

    package mutating func remove(_ number: UInt32) {
        free.append(number)
        if free.count == Int(used) { self = Names() }
    }

    package subscript(_ number: UInt32) -> String {
        let (piece, start) = place(number)
        let length = Int(pieces[piece][start])
        return String(decoding: pieces[piece][start + 1..<start + 1 + length], as: UTF8.self)
    }

    func isEqual(_ number: UInt32, _ name: String) -> Bool {
        let (piece, start) = place(number)
        let length = Int(pieces[piece][start])
        return name.utf8.elementsEqual(pieces[piece][start + 1..<start + 1 + length])
    }

    func hash(_ number: UInt32) -> Int {
        let (piece, start) = place(number)
        let length = Int(pieces[piece][start])
        return Self.hash(pieces[piece][start + 1..<start + 1 + length])
    }

    /// Seeded for each process: nobody can choose names that are slow to find.
    static func hash(_ name: some Sequence<UInt8>) -> Int {
        var hasher = Hasher()
        for byte in name { hasher.combine(byte) }
        return hasher.finalize()
    }

    private func place(_ number: UInt32) -> (piece: Int, start: Int) {
        (Int(number) / Self.pieceLength, Int(number) % Self.pieceLength * Self.width)
    }
}

/// Whose names are taken in a room: numbers of names, found by what they are, in fewer than 11 bytes for each.
package struct NameSet {
    private static let none = UInt32.max

    /// Linear probing: as many places as a power of two, at most three quarters of them taken.
    private var places: [UInt32] = []
    package private(set) var count = 0

    package init() {}

    /// In no order.
    package var numbers: some Sequence<UInt32> { places.lazy.filter { $0 != Self.none } }

    package func contains(_ name: String, in names: Names) -> Bool {
        guard !places.isEmpty else { return false }
        var index = start(Names.hash(name.utf8))
        while places[index] != Self.none {
            if names.isEqual(places[index], name) { return true }
            index = next(index)
        }
        return false
    }

    package mutating func insert(_ number: UInt32, in names: Names) {
        if (count + 1) * 4 > places.count * 3 { resize(max(8, places.count * 2), names) }
        count += 1
        put(number, names)
    }

    package mutating func remove(_ number: UInt32, in names: Names) {
        var hole = start(names.hash(number))
        while places[hole] != number { hole = next(hole) }
        count -= 1
        // Whoever stands further from its place than the hole is moves up.
        var index = next(hole)
        while places[index] != Self.none {
            let own = start(names.hash(places[index]))
            if (index - own) & (places.count - 1) >= (index - hole) & (places.count - 1) {
                places[hole] = places[index]
                hole = index
            }
            index = next(index)
        }
        places[hole] = Self.none
        if count == 0 {
            places = []
        } else if count * 8 < places.count, places.count > 8 {
            resize(places.count / 4, names)
        }
    }

    private mutating func put(_ number: UInt32, _ names: Names) {
        var index = start(names.hash(number))
        while places[index] != Self.none { index = next(index) }
        places[index] = number
    }

    private mutating func resize(_ length: Int, _ names: Names) {
        let former = places
        places = [UInt32](repeating: Self.none, count: length)
        for number in former where number != Self.none { put(number, names) }
    }

    private func start(_ hash: Int) -> Int { hash & (places.count - 1) }
    private func next(_ index: Int) -> Int { (index + 1) & (places.count - 1) }
}
