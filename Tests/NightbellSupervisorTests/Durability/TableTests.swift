import NightbellSupervisor
import Testing

@Suite("The table of identifiers, as bytes")
struct TableTests {
    private static let table = IdentifierTable([
        "org.example.phone.alice": .init(user: 1_000, isQuit: true, quitBoot: "6c7e8b0e"),
        "org.example.phone.bob": .init(user: 1_001, isQuit: false),
        "a": .init(user: 0, isQuit: false), "z": .init(user: .max, isQuit: true),
    ])

    @Test("A written table is read again, and is text for people")
    func roundTrip() throws {
        for table in [Self.table, IdentifierTable()] {
            #expect(try IdentifierTable(decoding: table.encoded) == table)
        }
        let lines = String(decoding: Self.table.encoded, as: UTF8.self).split(separator: "\n")
        #expect(lines[0] == "nightbell-identifiers 2")
        #expect(lines[2] == "1000 quit:6c7e8b0e org.example.phone.alice")
        #expect(lines.count == 6)
    }

    @Test("Changes have the same effect as on a dictionary")
    func changes() throws {
        var table = IdentifierTable()
        var dictionary: [String: IdentifierTable.Entry] = [:]
        for _ in 0..<500 {
            var changes: [String: IdentifierTable.Entry?] = [:]
            for _ in 0..<Int.random(in: 0..<4) {
                let entry = IdentifierTable.Entry(
                    user: .random(in: 0..<3), isQuit: .random(), quitBoot: .random() ? "boot" : "")
                changes.updateValue(.random() ? entry : nil, forKey: "client.\(Int.random(in: 0..<40))")
            }
            table.change(changes)
            for (identifier, entry) in changes { dictionary[identifier] = entry }
            #expect(table == IdentifierTable(dictionary))
            #expect(try IdentifierTable(decoding: table.encoded) == table)
            var read: [(String, IdentifierTable.Entry)] = []
            table.forEach { read.append(($0, $1)) }
            let sorted = dictionary.sorted { $0.key < $1.key }
            #expect(read.map(\.0) == sorted.map(\.key) && read.map(\.1) == sorted.map(\.value))
        }
    }

    @Test("Cut off after any byte, it is detected as damaged")
    func truncated() {
        let bytes = Self.table.encoded
        for count in bytes.indices {
            #expect(throws: IdentifierTable.Damage.checksum) {
                try IdentifierTable(decoding: Array(bytes.prefix(count)))
            }
        }
    }

    @Test("With any byte changed, it is detected as damaged")
    func corrupted() {
        let bytes = Self.table.encoded
        for index in bytes.indices {
            for value in UInt8.min...UInt8.max where value != bytes[index] {
                var damaged = bytes
                damaged[index] = value
                guard let read = try? IdentifierTable(decoding: damaged) else { continue }
                Issue.record("byte \(index) as \(value) is read as \(read)")
            }
            var longer = bytes
            longer.insert(bytes[index], at: index)
            #expect(throws: IdentifierTable.Damage.self) { try IdentifierTable(decoding: longer) }
            longer = bytes
            longer.remove(at: index)
            #expect(throws: IdentifierTable.Damage.self) { try IdentifierTable(decoding: longer) }
        }
        #expect(throws: IdentifierTable.Damage.checksum) { try IdentifierTable(decoding: bytes + bytes) }
        #expect(throws: IdentifierTable.Damage.checksum) { try IdentifierTable(decoding: bytes + [0]) }
        let blocks = [UInt8](repeating: 0, count: 4_096)
        #expect(throws: IdentifierTable.Damage.checksum) { try IdentifierTable(decoding: blocks) }
    }

    @Test("A table without boot IDs is read")
    func versionWithoutBoots() throws {
        let text = "nightbell-identifiers 1\n1000 quit org.example.phone\nsum 24bf9b11\n"
        let table = try IdentifierTable(decoding: Array(text.utf8))
        #expect(table == IdentifierTable(["org.example.phone": .init(user: 1_000, isQuit: true)]))
    }

    @Test("A table that is not text is damaged, even with a correct checksum")
    func noText() {
        let bytes =
            Array("nightbell-identifiers 1\n1000 - ".utf8) + [0xFF, 0xFE]
            + Array("\nsum 4bb7ac1c\n".utf8)
        #expect(throws: IdentifierTable.Damage.checksum) { try IdentifierTable(decoding: bytes) }
    }

    @Test("A later version is refused by its name, if it is whole")
    func newer() throws {
        // The same checksum, of another first line.
        let newer = "nightbell-identifiers 3\nsomething else\nsum e9f16c96\n"
        let damage = #expect(throws: IdentifierTable.Damage.self) {
            try IdentifierTable(decoding: Array(newer.utf8))
        }
        #expect(damage == .newer(version: "3"))
        #expect(damage?.description.contains("version 3") == true)
        let torn = Array(newer.utf8.dropLast(3))
        #expect(throws: IdentifierTable.Damage.checksum) { try IdentifierTable(decoding: torn) }
    }
}
