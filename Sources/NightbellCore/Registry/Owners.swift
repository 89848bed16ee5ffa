/// Whom identifiers belong to. A dictionary of as many would take twice the memory, and each client has one.
struct Owners: Sendable {
    fileprivate struct Entry: Sendable, Equatable {
        let identifier: ClientIdentifier
        let number: UInt64
        /// Its client's name, or the number under which it was given up.
        let word: UInt64
        let user: UserID
        let isInUse: Bool
        let isQuit: Bool
    }

    private var entries: [Entry] = []
    /// Places in `entries`, each plus one, where the hash of the identifier says or behind it; 0: nothing.
    private var table: [UInt32] = Array(repeating: 0, count: 16)

    subscript(identifier: ClientIdentifier) -> Supervision.Ownership? {
        get { slot(of: identifier).map { Supervision.Ownership(entries[Int(table[$0]) - 1]) } }
        set {
            switch (slot(of: identifier), newValue) {
            case (let slot?, let ownership?):
                entries[Int(table[slot]) - 1] = Entry(identifier, ownership)
            case (nil, let ownership?):
                insert(Entry(identifier, ownership))
            case (let slot?, nil):
                remove(slot)
            case (nil, nil):
                break
            }
        }
    }

    var keys: [ClientIdentifier] { entries.map(\.identifier) }

    // MARK: The table

    private mutating func insert(_ entry: Entry) {
        if (entries.count + 1) * 4 > table.count * 3 { resize(to: table.count * 3 / 2) }
        if entries.count == entries.capacity {
            entries.reserveCapacity(entries.count + max(8, entries.count / 8))
        }
        entries.append(entry)
        table[freeSlot(for: entry.identifier)] = UInt32(entries.count)
    }

    private mutating func remove(_ slot: Int) {
        let place = Int(table[slot]) - 1
        let last = entries.count - 1
        if place != last, let moved = self.slot(of: entries[last].identifier) {
            table[moved] = UInt32(place + 1)
            entries.swapAt(place, last)
        }
        entries.removeLast()
        close(slot)
    }

    /// Those behind a gap that were only in each other's way move up, so that nobody's way has a gap.
    private mutating func close(_ slot: Int) {
        var gap = slot
        table[gap] = 0
        var next = after(gap)
        while table[next] != 0 {
            let home = home(of: entries[Int(table[next]) - 1].identifier)
            // Whether the gap lies between where it would be and where it is, around the end of the table.
            let fromHome = (next - home + table.count) % table.count
            let fromGap = (next - gap + table.count) % table.count
            if fromHome >= fromGap {
                table.swapAt(gap, next)
                gap = next
            }
            next = after(next)
        }
    }

    private mutating func resize(to count: Int) {
        table = Array(repeating: 0, count: count)
        for (place, entry) in entries.enumerated() {
            table[freeSlot(for: entry.identifier)] = UInt32(place + 1)
        }
    }

    /// Nobody chooses where it lies: the hash is another one in each process.
    private func home(of identifier: ClientIdentifier) -> Int {
        let hash = UInt64(truncatingIfNeeded: identifier.hashValue)
        return Int(hash.multipliedFullWidth(by: UInt64(table.count)).high)
    }

    private func after(_ slot: Int) -> Int { slot + 1 == table.count ? 0 : slot + 1 }

    private func slot(of identifier: ClientIdentifier) -> Int? {
        var slot = home(of: identifier)
        while table[slot] != 0 {
            if entries[Int(table[slot]) - 1].identifier == identifier { return slot }
            slot = after(slot)
        }
        return nil
    }

    private func freeSlot(for identifier: ClientIdentifier) -> Int {
        var slot = home(of: identifier)
        while table[slot] != 0 { slot = after(slot) }
        return slot
    }
}

extension Owners: Equatable {
    static func == (one: Owners, other: Owners) -> Bool { one.entries == other.entries }
}

extension Owners.Entry {
    fileprivate init(_ identifier: ClientIdentifier, _ ownership: Supervision.Ownership) {
        self.identifier = identifier
        number = ownership.number
        word = ownership.client?.rawValue ?? ownership.givenUp
        user = ownership.user
        isInUse = ownership.client != nil
        isQuit = ownership.isQuit
    }
}

extension Supervision.Ownership {
    fileprivate init(_ entry: Owners.Entry) {
        self.init(
            user: entry.user, client: entry.isInUse ? ClientID(rawValue: entry.word) : nil,
            isQuit: entry.isQuit, number: entry.number, givenUp: entry.isInUse ? 0 : entry.word)
    }
}
