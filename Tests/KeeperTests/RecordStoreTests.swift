import EdgeTestSupport
import Glibc
import Keeper
import LinuxSystem
import Testing

@Suite("The store's memory") struct RecordStoreTests {
    /// The reference that the store is compared with.
    private struct Plain {
        var record: [UInt8]
        var descriptor: CInt?
    }

    @Test("After random operations it equals a dictionary", arguments: [1, 2, 3, 4])
    func randomOperations(seed: UInt64) throws {
        var random = SplitMix(state: seed)
        let file = try MemoryFile.create("test", [7])
        var store = RecordStore()
        var plain: [RecordKey: Plain] = [:]
        for step in 0..<100_000 {
            // Phases of growing and of shrinking.
            let isGrowing = step / 9_000 % 2 == 0
            let key = RecordKey(
                kind: UInt8(random.below(3)),
                id: UInt64(random.below(900)) | UInt64(random.below(2)) << (random.below(2) == 0 ? 32 : 56))
            let choice = random.below(10)
            if choice < (isGrowing ? 7 : 2) {
                let record = Self.record(&random, step)
                var number: CInt?
                var old: CInt?
                if random.below(40) == 0, plain.count(where: { $0.value.descriptor != nil }) < 100 {
                    let duplicate = try file.duplicate()
                    number = duplicate.rawValue
                    old = Self.number(store.put(key, record, duplicate))
                } else {
                    old = Self.number(store.put(key, record))
                }
                try #require(old == plain[key]?.descriptor)
                plain[key] = Plain(record: record, descriptor: number)
            } else if choice == 7 {
                let record = Self.record(&random, step)
                store.update(key, record)
                plain[key]?.record = record
            } else {
                let expected = plain.removeValue(forKey: key)
                switch store.removeValue(for: key) {
                case .some(let kept):
                    try #require(kept.record == expected?.record)
                    try #require(Self.number(kept.takeDescriptor()) == expected?.descriptor)
                case .none:
                    try #require(expected == nil)
                }
            }
            try #require(store.count == plain.count && store.record(key) == plain[key]?.record)
            if step % 10_000 == 9_999 { try compare(store, plain) }
        }
        // And once more from the image, as the next program reads it.
        switch RecordStore(image: store.image()) {
        case .some(var next):
            try compare(next, plain)
            for key in plain.keys {
                switch next.removeValue(for: key) {
                case .some(let kept): if let one = kept.takeDescriptor() { _ = one.take() }
                case .none: Issue.record("it is not there")
                }
            }
        case .none:
            Issue.record("it cannot be read")
        }
    }

    /// Most are short, many are as long as the one before them, and some are longer than a chunk.
    private static func record(_ random: inout SplitMix, _ step: Int) -> [UInt8] {
        let length =
            switch random.below(200) {
            case 0: 70_000 + random.below(10)
            case 1: 16_360 + random.below(20)
            case 2..<120: 64 + random.below(2)
            default: random.below(300)
            }
        return [UInt8](repeating: UInt8(truncatingIfNeeded: step), count: length)
    }

    private static func number(_ descriptor: consuming OwnedDescriptor?) -> CInt? {
        switch consume descriptor {
        case .some(let descriptor): descriptor.rawValue
        case .none: nil
        }
    }

    private func compare(_ store: borrowing RecordStore, _ plain: [RecordKey: Plain]) throws {
        for kind in UInt8(0)...3 {
            try #require(store.keys(ofKind: kind) == plain.keys.filter { $0.kind == kind }.sorted())
        }
        for (key, entry) in plain {
            try #require(store.record(key) == entry.record && store.descriptor(key) == entry.descriptor)
        }
        try #require(store.descriptors.sorted() == plain.values.compactMap(\.descriptor).sorted())
        try #require(store.descriptorCount == plain.count { $0.value.descriptor != nil })
    }

    @Test("Memory is little more than the records, and is given back")
    func memory() {
        var store = RecordStore()
        let (count, length) = (20_000, 100)
        for number in 0..<count { put(number, length, into: &store) }
        let whole = count * (length + 17)
        #expect(store.byteCount < whole * 5 / 4 && store.byteCount > whole)
        // Each again and again, with another length each time.
        for round in 1...10 {
            for number in 0..<count {
                put((number * 7_919) % count, length + round % 3, into: &store)
                if number % 1_000 == 0 { #expect(store.byteCount < whole * 5 / 2) }
            }
        }
        // One in ten stays, in any chunk.
        for number in 0..<count where number % 10 != 0 {
            _ = isMissing(store.removeValue(for: Self.key(number)))
        }
        #expect(store.byteCount < whole * 3 / 10)
        for number in stride(from: 0, to: count, by: 10) {
            #expect(store.record(Self.key(number))?.count == length + 1)
        }
        for number in 0..<count { _ = isMissing(store.removeValue(for: Self.key(number))) }
        #expect(store.count == 0 && store.byteCount < 70_000)
        // No room is kept for long records.
        for _ in 0..<100 { put(0, 60_000, into: &store) }
        put(0, 60_001, into: &store)
        #expect(store.byteCount < 140_000)
        _ = isMissing(store.removeValue(for: Self.key(0)))
        #expect(store.byteCount < 70_000)
    }

    private static func key(_ number: Int) -> RecordKey { RecordKey(kind: 20, id: UInt64(number)) }

    private func put(_ number: Int, _ length: Int, into store: inout RecordStore) {
        let record = [UInt8](repeating: UInt8(truncatingIfNeeded: number), count: length)
        let isNew = isMissing(store.put(Self.key(number), record))
        #expect(isNew)
    }

    @Test("A descriptor is closed once: when it is replaced, removed, or with the store")
    func descriptors() throws {
        var ends: [CInt] = [-1, -1]
        try #require(pipe(&ends) == 0)
        let reader = OwnedDescriptor(adopting: ends[0])
        let writer = OwnedDescriptor(adopting: ends[1])
        do {
            var store = RecordStore()
            for number in 0..<300 {
                let isNew = isMissing(store.put(Self.key(number), [1, 2], try writer.duplicate()))
                #expect(isNew)
            }
            // They move, with their records.
            for number in 0..<300 { store.update(Self.key(number), [UInt8](repeating: 3, count: 2_000)) }
            #expect(store.descriptorCount == 300 && Set(store.descriptors).count == 300)
            for number in 0..<100 {
                let isNew = isMissing(store.put(Self.key(number), [1]))
                #expect(!isNew)
            }
            for number in 100..<200 {
                let isGone = isMissing(store.removeValue(for: Self.key(number)))
                #expect(!isGone)
            }
            #expect(store.descriptorCount == 100)
            for number in 200..<250 {
                switch store.takeDescriptor(Self.key(number)) {
                case .some(let descriptor): descriptor.close()
                case .none: Issue.record("it is not there")
                }
                #expect(store.record(Self.key(number))?.count == 2_000)
                let isTaken = isMissing(store.takeDescriptor(Self.key(number)))
                #expect(isTaken)
            }
            #expect(store.descriptorCount == 50)
            writer.close()
            #expect(Poll.now(reader.rawValue).isEmpty, "the rest are open")
        }
        // If two owners had one number, it would have been closed twice, which ends the program.
        #expect(Poll.wait(reader.rawValue, for: .readable, timeoutMilliseconds: 10_000).contains(.hangUp))
    }
}

/// The same numbers for the same seed.
private struct SplitMix {
    var state: UInt64

    mutating func below(_ bound: Int) -> Int {
        state &+= 0x9E37_79B9_7F4A_7C15
        var word = state
        word = (word ^ word >> 30) &* 0xBF58_476D_1CE4_E5B9
        word = (word ^ word >> 27) &* 0x94D0_49BB_1331_11EB
        return Int((word ^ word >> 31) % UInt64(bound))
    }
}
