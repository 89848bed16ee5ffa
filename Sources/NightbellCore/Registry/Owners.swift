/// A hash table of identifiers and their owners. Each client has an identifier, and a dictionary would take
/// several times the memory.
///
/// An identifier keeps its place as long as it has an owner.
struct Owners: Sendable {
    fileprivate struct Entry: Sendable, Equatable {
        enum Use: UInt8 {
            /// A free place.
            case none
            case unused
            case used
        }

        var use = Use.none
        var isQuit = false
        var user: UserID = 0
        var number: UInt64 = 0
        /// Its client's name, or the number under which it was given up.
        var word: UInt64 = 0
    }

    private var entries: [Entry] = []
    /// The identifiers, by place.
    private var names = SlotTexts()
    private var freePlaces: [UInt32] = []
    private(set) var count = 0
    /// Places plus one, by linear probing from the hash of the identifier; 0: empty.
    private var table: [UInt32] = Array(repeating: 0, count: 16)

    subscript(identifier: ClientIdentifier) -> Supervision.Ownership? {
        get { place(of: identifier).flatMap { self[place: $0] } }
        set {
            switch (slot(of: identifier), newValue) {
            case (let slot?, let ownership?):
                entries[Int(table[slot] - 1)] = Entry(ownership)
            case (nil, let ownership?):
                insert(identifier, Entry(ownership))
            case (let slot?, nil):
                remove(slot)
            case (nil, nil):
                break
            }
        }
    }

    /// nil: there is nothing at this place.
    subscript(place place: UInt32) -> Supervision.Ownership? {
        Int(place) < entries.count ? Supervision.Ownership(entries[Int(place)]) : nil
    }

    func place(of identifier: ClientIdentifier) -> UInt32? { slot(of: identifier).map { table[$0] - 1 } }

    func identifier(at place: UInt32) -> ClientIdentifier {
        ClientIdentifier(known: String(decoding: names[place], as: UTF8.self))
    }

    var keys: [ClientIdentifier] {
        entries.indices.filter { entries[$0].use != .none }.map { identifier(at: UInt32($0)) }
    }

    // MARK: The table

    private mutating func insert(_ identifier: ClientIdentifier, _ entry: Entry) {
        if (count + 1) * 4 > table.count * 3 { resize(to: table.count * 3 / 2) }
        let place = freePlaces.popLast() ?? UInt32(entries.count)
        if Int(place) == entries.count {
            entries.makeRoom()
            entries.append(entry)
        } else {
            entries[Int(place)] = entry
        }
        names.set(place, to: identifier.description.utf8)
        count += 1
        table[freeSlot(for: place)] = place + 1
    }

    private mutating func remove(_ slot: Int) {
        let place = table[slot] - 1
        close(slot)
        entries[Int(place)] = Entry()
        names.remove(place)
        freePlaces.append(place)
        count -= 1
    }

    /// Moves later entries of the probe sequence up, so that none is separated from its hash by a gap.
    private mutating func close(_ slot: Int) {
        var gap = slot
        table[gap] = 0
        var next = after(gap)
        while table[next] != 0 {
            let home = home(of: names[table[next] - 1])
            // Whether the gap lies between the entry's home slot and its slot, modulo the table's length.
            let fromHome = (next - home + table.count) % table.count
            let fromGap = (next - gap + table.count) % table.count
            if fromHome >= fromGap {
                table.swapAt(gap, next)
                gap = next
            }
            next = after(next)
        }
    }

    private mutating func resize(to length: Int) {
        let old = table
        table = Array(repeating: 0, count: length)
        for number in old where number != 0 { table[freeSlot(for: number - 1)] = number }
    }

    /// The slot that the hash selects. The hash is seeded per process, so that clients cannot force
    /// collisions.
    private func home(of name: some Sequence<UInt8>) -> Int {
        var hasher = Hasher()
        var word: UInt64 = 0
        var length = 0
        for byte in name {
            word = word << 8 | UInt64(byte)
            length += 1
            if length % 8 == 0 { hasher.combine(word) }
        }
        hasher.combine(word)
        let hash = UInt64(truncatingIfNeeded: hasher.finalize())
        return Int(hash.multipliedFullWidth(by: UInt64(table.count)).high)
    }

    private func after(_ slot: Int) -> Int { slot + 1 == table.count ? 0 : slot + 1 }

    private func slot(of identifier: ClientIdentifier) -> Int? {
        let name = identifier.description.utf8
        var slot = home(of: name)
        while table[slot] != 0 {
            if names[table[slot] - 1].elementsEqual(name) { return slot }
            slot = after(slot)
        }
        return nil
    }

    private func freeSlot(for place: UInt32) -> Int {
        var slot = home(of: names[place])
        while table[slot] != 0 { slot = after(slot) }
        return slot
    }
}

extension Owners: Equatable {
    static func == (one: Owners, other: Owners) -> Bool {
        one.entries == other.entries && one.keys == other.keys
    }
}

extension Owners.Entry {
    fileprivate init(_ ownership: Supervision.Ownership) {
        use = ownership.client == nil ? .unused : .used
        isQuit = ownership.isQuit
        user = ownership.user
        number = ownership.number
        word = ownership.client?.rawValue ?? ownership.givenUp
    }
}

extension Supervision.Ownership {
    fileprivate init?(_ entry: Owners.Entry) {
        let isUsed = entry.use == .used
        guard entry.use != .none else { return nil }
        self.init(
            user: entry.user, client: isUsed ? ClientID(rawValue: entry.word) : nil, isQuit: entry.isQuit,
            number: entry.number, givenUp: isUsed ? 0 : entry.word)
    }
}
