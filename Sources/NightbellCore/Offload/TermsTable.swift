/// The terms of pings in use, each stored once under a short number, because thousands of sockets share them.
///
/// Numbers depend only on the order of the calls, so that a simulation is reproducible.
struct TermsTable: Sendable, Equatable {
    /// The number that stands for no terms.
    static let none: UInt16 = 0
    /// The number of terms that are stored for one socket alone, because all other numbers are in use.
    private static let own = UInt16.max

    private struct Entry: Sendable, Equatable {
        var terms: PingTerms
        /// 0: the number is free.
        var uses: UInt32
    }

    /// An entry's number is its index plus one.
    private var entries: [Entry] = []
    private var free: [UInt16] = []
    /// Never iterated, like `owned`, because a dictionary's order is not deterministic.
    private var numbers: [PingTerms: UInt16] = [:]
    private var owned: [UInt32: PingTerms] = [:]

    /// How many different terms have a number.
    var count: Int { numbers.count }

    /// Returns a number for the terms of one more socket, until it is put back.
    mutating func assign(_ terms: PingTerms, for slot: UInt32) -> UInt16 {
        if let number = numbers[terms] {
            entries[Int(number) - 1].uses += 1
            return number
        }
        guard let number = unused() else {
            owned[slot] = terms
            return Self.own
        }
        numbers[terms] = number
        let entry = Entry(terms: terms, uses: 1)
        if Int(number) > entries.count {
            entries.makeRoom()
            entries.append(entry)
        } else {
            entries[Int(number) - 1] = entry
        }
        return number
    }

    mutating func putBack(_ number: UInt16, of slot: UInt32) {
        switch number {
        case Self.none: return
        case Self.own: owned[slot] = nil
        default:
            let index = Int(number) - 1
            entries[index].uses -= 1
            guard entries[index].uses == 0 else { return }
            numbers[entries[index].terms] = nil
            free.append(number)
        }
        if numbers.isEmpty, owned.isEmpty { self = TermsTable() }
    }

    func terms(_ number: UInt16, of slot: UInt32) -> PingTerms? {
        switch number {
        case Self.none: nil
        case Self.own: owned[slot]
        default: entries[Int(number) - 1].terms
        }
    }

    private mutating func unused() -> UInt16? {
        if let number = free.popLast() { return number }
        return entries.count < Int(Self.own) - 1 ? UInt16(entries.count + 1) : nil
    }
}
