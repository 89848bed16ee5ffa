import ChatService
import Glibc
import NIOCore
import NIOWebSocket
import Testing

/// A model of the members of each room.
@Suite struct RoomTests {
    @Test func namesAreTakenAsInASet() {
        struct Key: Hashable {
            var room: UInt32
            var name: String
        }
        var generator = SplitMix(seed: 7)
        var names = Names()
        var newest: [UInt32: UInt32] = [:]
        var model: [Key: UInt32] = [:]
        /// The members of each room, the newest first.
        var order = [[UInt32]](repeating: [], count: 3)
        for step in 0..<40_000 {
            // Many first, few later, and none at some point.
            let range: UInt64 = step < 20_000 ? 900 : step < 30_000 ? 40 : 2
            let key = Key(room: UInt32(generator.next() % 3), name: "n\(generator.next() % range)")
            #expect(names.contains(key.name, room: key.room) == (model[key] != nil))
            let leaving = model[key] ?? (model.count > range * 3 ? model.values.min() : nil)
            if let leaving, let gone = model.first(where: { $0.value == leaving })?.key {
                names.remove(leaving, first: &newest[gone.room])
                model[gone] = nil
                order[Int(gone.room)].removeAll { $0 == leaving }
            } else {
                let number = names.insert(key.name, room: key.room, first: &newest[key.room])
                model[key] = number
                order[Int(key.room)].insert(number, at: 0)
            }
            #expect(names.count == model.count)
        }
        for room in 0..<3 as Range<UInt32> {
            let expected = model.filter { $0.key.room == room }
            let numbers = Array(names.numbers(from: newest[room]))
            #expect(numbers == order[Int(room)])
            #expect(numbers.sorted() == expected.values.sorted())
            #expect(numbers.map { names[$0] }.sorted() == expected.keys.map(\.name).sorted())
        }
    }

    /// Leaving a room of thousands takes no search among all members, which would take thousands of times as
    /// long. Other load at the same time is not counted.
    @Test func leavingALargeRoomIsAsQuickAsLeavingASmallOne() {
        let count = 30_000
        func time(perRoom: Int) -> UInt64 {
            var names = Names()
            var newest: [UInt32?] = Array(repeating: nil, count: count / perRoom)
            let numbers = (0..<count).map { number in
                let room = number / perRoom
                return names.insert("\(number)", room: UInt32(room), first: &newest[room])
            }
            let start = ownTime()
            for (index, number) in numbers.enumerated() {
                names.remove(number, first: &newest[index / perRoom])
            }
            return ownTime() - start
        }
        let (small, large) = (time(perRoom: 2), time(perRoom: count))
        #expect(large < small * 50, "\(large) ns, \(small) ns")
    }

    /// A short name takes less than a long one, and a new name takes the place of a removed one.
    @Test func aNameTakesWhatItNeeds() {
        for length in 1...Limits.nameBytes {
            var names = Names()
            var newest: UInt32?
            let texts = (0..<90).map { number in
                let digits = "\(number)"
                let name = length < 2 ? String(UnicodeScalar(UInt8(33 + number))) : "ü" + digits
                return name + String(repeating: "n", count: max(0, length - name.utf8.count))
            }
            let numbers = texts.map { names.insert($0, room: 7, first: &newest) }
            for (number, text) in zip(numbers, texts) { #expect(names[number] == text) }
            let bytes = texts.reduce(0) { $0 + 12 + ($1.utf8.count + 3) / 4 * 4 }
            #expect(names.heldBytes == bytes)
            for number in numbers.dropFirst() { names.remove(number, first: &newest) }
            for text in texts.dropFirst() { _ = names.insert(text, room: 7, first: &newest) }
            #expect(names.heldBytes == bytes && names.count == texts.count)
        }
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
            ("", false), (" Ann", false), ("Ann ", false), ("A\nB", false), ("\u{202E}x", false),
            ("x\u{200B}", false),
            ("A\u{0}", false),
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
        let length =
            header == 2 ? Int(frame.bytes[1]) : frame.bytes[2..<header].reduce(0) { $0 << 8 | Int($1) }
        #expect(length == count)
        #expect(Array(frame.buffer.readableBytesView) == frame.bytes)
    }

    @Test(arguments: [nil, 0, 255, 256, 70_000, UInt32.max])
    func savedSessions(row: UInt32?) {
        let saved = SavedSession(row: row).bytes
        #expect(saved.count <= 32 && SavedSession(saved).row == row)
    }
}

/// The processor time of this thread, in nanoseconds.
private func ownTime() -> UInt64 {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
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
