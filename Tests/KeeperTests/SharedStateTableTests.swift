import EdgeTestSupport
import Glibc
import Keeper
import LinuxSystem
import Testing

@Suite("The shared state") struct SharedStateTableTests {
    private static let shape = SharedStateTable.Shape(records: 16, marks: 100)

    @Test("One mapping reads what the other writes")
    func shared() throws {
        let file = try SharedStateTable.create(Self.shape)
        let ours = try SharedStateTable(mapping: file.rawValue)
        let theirs = try SharedStateTable(mapping: file.rawValue)
        #expect(theirs.read(3).map { $0[0] } == nil)
        for round in UInt64(1)...5 {
            ours.write(3, SharedStateTable.Words(repeating: round))
            for index in 0..<SharedStateTable.Words(repeating: 0).count {
                #expect(theirs.read(3)?[index] == round)
            }
        }
        for index in 0..<SharedStateTable.plainCount { ours.setPlain(3, index, to: UInt64(index) + 1) }
        for index in 0..<SharedStateTable.generalCount { ours.setGeneral(index, to: UInt64(index) + 7) }
        for index in 0..<100 { ours.setMark(index, to: UInt32(index) + 9) }
        // No two of them overlap.
        #expect(theirs.read(3)?[15] == 5)
        #expect((0..<SharedStateTable.plainCount).allSatisfy { theirs.plain(3, $0) == UInt64($0) + 1 })
        #expect((0..<SharedStateTable.generalCount).allSatisfy { theirs.general($0) == UInt64($0) + 7 })
        #expect((0..<100).allSatisfy { theirs.mark($0) == UInt32($0) + 9 })
        #expect(theirs.read(2) == nil && theirs.read(4) == nil && theirs.plain(4, 0) == 0)
        ours.clear(3)
        #expect(theirs.read(3) == nil)
        #expect(try SharedStateTable(mapping: file.rawValue).shape == Self.shape)
    }

    @Test("The next writer completes an unfinished entry first")
    func begun() throws {
        let file = try SharedStateTable.create(Self.shape)
        let writer = try SharedStateTable(mapping: file.rawValue)
        writer.write(0, SharedStateTable.Words(repeating: 1))
        let (bytes, number) = try (MemoryFile.read(file.rawValue), 3)
        // As after the store that names the record.
        var changed = bytes
        changed[number * 8] = 1
        // It follows eight words and the general numbers.
        let first = (8 + SharedStateTable.generalCount) * 8
        for byte in 0..<(SharedStateTable.Words.count * 8) { changed[first + byte] = 7 }
        let seven = UInt64(0x0707_0707_0707_0707)
        for step in [
            { (sharedState: SharedStateTable) in sharedState.write(4, SharedStateTable.Words(repeating: 2)) },
            { $0.clear(4) },
        ] {
            let other = try MemoryFile.create("test", changed)
            let sharedState = try SharedStateTable(mapping: other.rawValue)
            #expect(sharedState.read(0)?[9] == seven)
            step(sharedState)
            #expect(sharedState.read(0)?[9] == seven && sharedState.read(0)?[15] == seven)
            sharedState.clear(0)
            #expect(sharedState.read(0) == nil)
        }
    }

    @Test("Zero numbers take no memory, until one of a record is not zero")
    func rarelyAnythingButZero() throws {
        let file = try SharedStateTable.create(SharedStateTable.Shape(records: 4_096, marks: 16))
        let sharedState = try SharedStateTable(mapping: file.rawValue)
        func blocks() -> Int {
            var status = stat()
            fstat(file.rawValue, &status)
            return Int(status.st_blocks)
        }
        for slot in 0..<4_096 { sharedState.write(slot, SharedStateTable.Words(repeating: 1)) }
        let before = blocks()
        var sum: UInt64 = 0
        for slot in 0..<4_096 {
            for index in SharedStateTable.nearCount..<SharedStateTable.plainCount {
                sharedState.setPlain(slot, index, to: 0)
                sum += sharedState.plain(slot, index)
            }
        }
        #expect(blocks() == before && sum == 0)
        sharedState.setPlain(2_000, SharedStateTable.plainCount - 1, to: 5)
        #expect(blocks() > before && sharedState.plain(2_000, SharedStateTable.plainCount - 1) == 5)
        sharedState.setPlain(2_000, SharedStateTable.plainCount - 1, to: 0)
        #expect(sharedState.plain(2_000, SharedStateTable.plainCount - 1) == 0)
    }

    @Test("Slots beyond the capacity are ignored, not written elsewhere")
    func outside() throws {
        let file = try SharedStateTable.create(SharedStateTable.Shape(records: 1, marks: 1))
        let sharedState = try SharedStateTable(mapping: file.rawValue)
        sharedState.write(1, SharedStateTable.Words(repeating: 1))
        sharedState.setMark(1, to: 1)
        sharedState.setPlain(1, 0, to: 1)
        #expect(
            sharedState.read(1) == nil && sharedState.mark(1) == 0 && sharedState.mark(0) == 0
                && sharedState.plain(1, 0) == 0)
    }

    @Test("After every single store, the old value or the new one is read")
    func everyStore() throws {
        let file = try SharedStateTable.create(Self.shape)
        let writer = try SharedStateTable(mapping: file.rawValue)
        let reader = try SharedStateTable(mapping: file.rawValue)
        var stores = 0
        for round in UInt64(1)...4 {
            writer.write(0, SharedStateTable.Words(repeating: round)) {
                stores += 1
                let seen = reader.read(0)
                let expected = seen?[0] ?? 0
                #expect(expected == round || expected == round - 1)
                for index in 0..<SharedStateTable.Words.count { #expect((seen?[index] ?? 0) == expected) }
            }
            #expect(reader.read(0)?[0] == round)
        }
        // Each word twice, the record's name twice, and that it is there.
        #expect(stores == 4 * (2 * SharedStateTable.Words.count + 3))
    }

    @Test("A writer killed at any moment leaves no mixed values")
    func killed() throws {
        let program = try KeptProgram()
        try program.worker("first")
        var progress = 0
        for _ in 0..<30 {
            // It writes one number everywhere, and then the next, for ever.
            try program.child.send("scribble\n")
            let pid = try #require(pid_t(try program.said("scribbles ").split(separator: " ")[1]))
            kill(pid, SIGKILL)
            try program.worker()
            try program.child.send("values\n")
            let values = try program.said("values ").split(separator: " ").dropFirst().compactMap { Int($0) }
            try program.said("ok")
            #expect(values.count == SharedStateTable.Words.count && Set(values).count == 1)
            #expect(values[0] > progress)
            progress = values[0]
        }
    }

    @Test("Another version's shared state, or another file, is refused")
    func refused() throws {
        let file = try SharedStateTable.create(Self.shape)
        let raw = file.rawValue
        var wrong: UInt64 = 0x6e62_6c65_6467_65ff
        pwrite(raw, &wrong, 8, 0)
        let call = "read shared state of version 255 (this program knows 6)"
        #expect(throws: SystemError(code: EPROTO, call: call)) { _ = try SharedStateTable(mapping: raw) }
        wrong = 1
        pwrite(raw, &wrong, 8, 0)
        #expect(throws: SystemError(code: EPROTO, call: "shared state")) {
            _ = try SharedStateTable(mapping: raw)
        }
        let short = try MemoryFile.create("test", [1, 2, 3])
        let shortRaw = short.rawValue
        #expect(throws: SystemError(code: EPROTO, call: "shared state")) {
            _ = try SharedStateTable(mapping: shortRaw)
        }
        let shrunk = try SharedStateTable.create(Self.shape)
        let shrunkRaw = shrunk.rawValue
        ftruncate(shrunkRaw, 4_096)
        #expect(throws: SystemError(code: EPROTO, call: "shared state")) {
            _ = try SharedStateTable(mapping: shrunkRaw)
        }
    }
}
