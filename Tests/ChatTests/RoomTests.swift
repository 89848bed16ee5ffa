import ChatService
import NIOCore
import NIOWebSocket
import Testing

/// Who is in which room, on paper.
@Suite struct RoomTests {
    @Test func namesAreTakenAsInASet() {
        var generator = SplitMix(seed: 7)
        var (names, set) = (Names(), NameSet())
        var model: [String: UInt32] = [:]
        for _ in 0..<20_000 {
            let name = "n\(generator.next() % 600)"
            #expect(set.contains(name, in: names) == (model[name] != nil))
            if let number = model.removeValue(forKey: name) {
                set.remove(number, in: names)
                names.remove(number)
            } else {
                let number = names.insert(name)
                set.insert(number, in: names)
                model[name] = number
            }
        }
        #expect(set.count == model.count)
        #expect(set.numbers.map { names[$0] }.sorted() == model.keys.sorted())
        for (name, number) in model { #expect(names[number] == name) }
    }

    @Test func rowsKeepTheirNumbers() {
        var generator = SplitMix(seed: 8)
        var rows = Rows<Int>()
        var model: [UInt32: Int] = [:]
        for step in 0..<20_000 {
            if generator.next() % 2 == 0, let number = model.keys.min() {
                #expect(rows[number] == model.removeValue(forKey: number))
                rows.remove(number)
            } else {
                let number = rows.insert(step)
                #expect(model[number] == nil)
                model[number] = step
            }
        }
        #expect(rows.count == model.count)
        for (number, value) in model { #expect(rows[number] == value) }
    }

    @Test(
        arguments: [
            ("Ann", true), ("Åsa 🐈", true), ("A B", true), (String(repeating: "n", count: 24), true),
            ("", false), (" Ann", false), ("Ann ", false), ("A\nB", false), ("\u{202E}x", true), ("A\u{0}", false),
            (String(repeating: "n", count: 25), false), (String(repeating: "ü", count: 13), false),
            ("\u{2028}", false),
        ])
    func names(name: String, isName: Bool) {
        #expect(Limits.isName(name, bytes: Limits.nameBytes) == isName)
    }

    @Test(
        arguments: [
            ("hello", true), ("a\nb\tc", true), (String(repeating: "x", count: 4_096), true),
            ("", false), (" \n", false), ("\u{7}", false), (String(repeating: "x", count: 4_097), false),
        ])
    func texts(text: String, isText: Bool) {
        #expect(Limits.isText(text) == isText)
    }

    @Test(arguments: [0, 1, 125, 126, 65_535, 65_536, 70_000])
    func lengthsOfFrames(count: Int) {
        let frame = Frame(.text, [UInt8](repeating: 65, count: count))
        let header = count < 126 ? 2 : count < 65_536 ? 4 : 10
        #expect(frame.bytes.count == header + count && frame.bytes[0] == 0x81)
        let length = header == 2 ? Int(frame.bytes[1]) : frame.bytes[2..<header].reduce(0) { $0 << 8 | Int($1) }
        #expect(length == count)
        #expect(Array(frame.buffer.readableBytesView) == frame.bytes)
    }

    @Test(arguments: [nil, 0, 255, 256, 70_000, UInt32.max])
    func whatIsSaved(row: UInt32?) {
        let saved = SavedSession(row: row).bytes
        #expect(saved.count <= 32 && SavedSession(saved).row == row)
    }
}

struct SplitMix: RandomNumberGenerator {
    private var state: UInt64

    init(seed: UInt64) { state = seed }

    mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var value = state
        value = (value ^ (value >> 30)) &* 0xBF58_476D_1CE4_E5B9
        value = (value ^ (value >> 27)) &* 0x94D0_49BB_1331_11EB
        return value ^ (value >> 31)
    }
}
