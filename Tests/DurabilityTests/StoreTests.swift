import Descriptors
import Durability
import EdgeTestSupport
import Foundation
import Glibc
import Testing

@Suite("The table of identifiers, on disk")
struct StoreTests {
    private let directory: TemporaryDirectory
    private var path: String { directory.file("local/state/identifiers") }

    init() throws {
        directory = try TemporaryDirectory()
    }

    private func store() throws -> IdentifierStore {
        try IdentifierStore(path: path) { Issue.record("\($0)") }
    }

    private func bytes(_ suffix: String = "") throws -> [UInt8] {
        Array(try Data(contentsOf: URL(fileURLWithPath: path + suffix)))
    }

    private func put(_ bytes: [UInt8], _ suffix: String = "") throws {
        try Data(bytes).write(to: URL(fileURLWithPath: path + suffix))
    }

    @Test("What one supervisor knew, the next one knows")
    func survives() throws {
        let first = try store()
        #expect(try first.entries().isEmpty && first.warnings.isEmpty)
        for number in 0..<100 {
            first.note("client.\(number)", .init(user: 1_000, isQuit: number % 2 == 0))
        }
        first.flush()
        let second = try store()
        #expect(try second.table() == first.table() && second.entries().count == 100)
        second.note("client.7", nil)
        second.note("client.8", .init(user: 1_000, isQuit: false))
        second.flush()
        let third = try store()
        #expect(try third.table() == second.table() && third.entries().count == 99)
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test("What cannot be a table is put aside, and nobody waits for it", arguments: 0..<3)
    func strangers(kind: Int) throws {
        let first = try store()
        first.note("a", .init(user: 1, isQuit: false))
        first.flush()
        first.note("b", .init(user: 1, isQuit: false))
        first.flush()
        unlink(path)
        switch kind {
        case 0: #expect(mkfifo(path, 0o600) == 0)
        case 1: #expect(mkdir(path, 0o700) == 0)
        default:
            #expect(creat(path, 0o600) >= 0)
            #expect(truncate(path, off_t(DurableFile.sizeLimit) + 1) == 0)
        }
        // Nobody reads what is written to it.
        #expect(mkfifo(path + ".new", 0o600) == 0)
        let second = try store()
        let words = kind < 2 ? "it is no regular file" : "it is longer than 268435456 bytes"
        #expect(second.warnings == ["\(path): \(words)", "the damaged table is \(path).damaged now"])
        #expect(try second.entries().keys.sorted() == ["a"])
        second.note("c", .init(user: 1, isQuit: false))
        second.flush()
        #expect(try second.entries().keys.sorted() == ["a", "c"])
        if kind == 1 { rmdir(path + ".damaged") } else { unlink(path + ".damaged") }
    }

    @Test("Nothing is written when nothing has changed")
    func unchanged() throws {
        let store = try store()
        store.note("a", .init(user: 1, isQuit: false))
        store.flush()
        var before = stat()
        stat(path, &before)
        store.note("a", .init(user: 1, isQuit: false))
        store.note("b", nil)
        store.flush()
        var after = stat()
        stat(path, &after)
        #expect(before.st_ino == after.st_ino)
    }

    @Test("A write that was interrupted anywhere leaves the old table or the new one")
    func torn() throws {
        let store = try store()
        store.note("old", .init(user: 1, isQuit: false))
        store.flush()
        let old = try bytes()
        let new = IdentifierTable(["new": .init(user: 2, isQuit: true)]).encoded
        // While it is written beside the old one …
        for count in 0...new.count {
            try put(Array(new.prefix(count)), ".new")
            #expect(try self.store().table().encoded == old)
        }
        // … when the old one has been put aside …
        rename(path, path + ".previous")
        #expect(try self.store().table().encoded == old)
        // … and when the new one is in its place.
        rename(path + ".new", path)
        #expect(try self.store().table().encoded == new)
    }

    @Test("On a disk that does not keep its word, the one before counts")
    func damaged() throws {
        let first = try store()
        first.note("a", .init(user: 1, isQuit: false))
        first.flush()
        first.note("b", .init(user: 1, isQuit: false))
        first.flush()
        let whole = try bytes()
        for index in whole.indices {
            var damaged = whole
            damaged[index] ^= 0x20
            try put(damaged)
            let second = try store()
            #expect(try Array(second.entries().keys) == ["a"])
            #expect(second.warnings.count == 2 && second.warnings[0].contains("damaged"))
            try put(Array(whole.prefix(index)))
            #expect(try Array(store().entries().keys) == ["a"])
        }
    }

    @Test("With nothing whole left, nobody is known, and what is left is kept for people to look at")
    func lost() throws {
        _ = try store()
        try put([1, 2, 3])
        let store = try store()
        #expect(try store.entries().isEmpty && store.warnings.count == 3)
        #expect(try bytes(".damaged") == [1, 2, 3])
        store.note("a", .init(user: 1, isQuit: false))
        store.flush()
        #expect(try self.store().table() == store.table())
    }

    @Test("If only a damaged one before is left, it is put aside, and what comes after is written")
    func previousDamaged() throws {
        _ = try store()
        try put([1, 2, 3], ".previous")
        let store = try store()
        #expect(try store.entries().isEmpty && store.warnings.count == 3)
        #expect(try bytes(".previous.damaged") == [1, 2, 3])
        store.note("a", .init(user: 1, isQuit: false))
        store.flush()
        #expect(try self.store().table() == store.table())
    }

    @Test("A damaged table does not take the place of the one before")
    func keepsPrevious() throws {
        let first = try store()
        first.note("a", .init(user: 1, isQuit: false))
        first.flush()
        rename(path, path + ".previous")
        try put([1, 2, 3])
        let second = try store()
        #expect(try bytes(".damaged") == [1, 2, 3])
        // The machine stops when the next one has been written, and is not in its place yet.
        rename(path, path + ".previous")
        #expect(try Array(store().entries().keys) == ["a"] && second.warnings.count == 2)
    }

    @Test("What is noted while the disk is busy takes no longer the more is known")
    func large() throws {
        let names = (0..<20_000).map { "client.\($0)" }
        let store = try store()
        func time(_ names: ArraySlice<String>) -> Duration {
            let clock = SuspendingClock()
            return clock.measure {
                for name in names { store.note(name, .init(user: 1, isQuit: false)) }
            }
        }
        let first = time(names[..<500])
        store.note(names[500..<19_500].map { ($0, .init(user: 1, isQuit: false)) })
        store.flush()
        let last = time(names[19_500...])
        store.flush()
        #expect(try self.store().entries().count == 20_000)
        // Both take about a millisecond. With the whole table looked at each time, it would be seconds.
        #expect(last < max(first, .milliseconds(1)) * 100)
    }

    @Test("What becomes of the file while somebody serves is told, and hardly anything is lost by it")
    func damagedMeanwhile() throws {
        let told = Told()
        let store = try IdentifierStore(path: path) { told.note($0) }
        for name in ["a", "b", "c"] {
            store.note(name, .init(user: 1, isQuit: false))
            store.flush()
        }
        try put([1, 2, 3])
        store.note("d", .init(user: 1, isQuit: false))
        store.flush()
        // What is damaged, and where it is now.
        #expect(told.number == 2)
        #expect(try self.store().entries().keys.sorted() == ["a", "b", "d"])
        #expect(try bytes(".damaged") == [1, 2, 3])
    }

    @Test("A table of a later version is left alone, and the reason is told")
    func newer() throws {
        _ = try store()
        let text = "nightbell-identifiers 3\nsomething else\nsum e9f16c96\n"
        try put(Array(text.utf8))
        let failure = #expect(throws: IdentifierStore.Failure.self) { try store() }
        #expect(failure?.description.hasPrefix("\(path): it is of version 3") == true)
        #expect(try bytes() == Array(text.utf8))
    }

    @Test("What cannot be written is told once, and written when it can be and somebody asks")
    func unwritable() throws {
        let told = Told()
        let store = try IdentifierStore(path: path) { told.note($0) }
        mkdir(path + ".new", 0o700)
        store.note("a", .init(user: 1, isQuit: false))
        store.flush()
        store.flush()
        #expect(told.number == 1 && store.problems.count == 1)
        rmdir(path + ".new")
        store.note("b", .init(user: 1, isQuit: false))
        store.flush()
        #expect(try self.store().entries().count == 2)
        #expect(told.last == .written && store.problems.isEmpty)
    }

    @Test("On a disk that is full, it is written as soon as there is room", .enabled(if: geteuid() == 0))
    func full() throws {
        let disk = try SmallDisk()
        let told = Told()
        let path = disk.path + "/state/identifiers"
        let store = try IdentifierStore(path: path) { told.note($0) }
        store.note("first", .init(user: 1, isQuit: false))
        store.flush()
        try disk.fill()
        for number in 0..<2_000 { store.note("client.\(number)", .init(user: 1, isQuit: false)) }
        store.flush()
        #expect(store.problems.count == 1)
        try disk.free()
        // Nobody asks, and nothing else changes.
        #expect(eventually(within: 30_000) { told.last == .written })
        let next = try IdentifierStore(path: path) { _ in }
        #expect(try next.entries().count == 2_001 && next.warnings.isEmpty && store.problems.isEmpty)
    }

    @Test("A disk that is full from the start is no reason not to write later", .enabled(if: geteuid() == 0))
    func fullAtFirst() throws {
        let disk = try SmallDisk()
        let path = disk.path + "/state/identifiers"
        // Not even a directory can be made.
        try disk.fill(inodes: true)
        let store = try IdentifierStore(path: path) { _ in }
        #expect(store.warnings.count == 1 && store.problems.count == 1)
        store.note("a", .init(user: 1, isQuit: false))
        store.flush()
        #expect(store.problems.count == 2)
        try disk.free()
        store.flush()
        #expect(try store.entries().keys.sorted() == ["a"])
    }
}

extension IdentifierStore {
    fileprivate func entries() throws -> [String: IdentifierTable.Entry] {
        var entries: [String: IdentifierTable.Entry] = [:]
        try table().forEach { entries[$0] = $1 }
        return entries
    }

    fileprivate func note(_ identifier: String, _ entry: IdentifierTable.Entry?) {
        note(CollectionOfOne((identifier: identifier, entry: entry)))
    }
}

private final class Told: @unchecked Sendable {
    private let lock = NSLock()
    private var changes: [IdentifierStore.Change] = []
    func note(_ change: IdentifierStore.Change) { lock.withLock { changes.append(change) } }
    var number: Int { lock.withLock { changes.count } }
    var last: IdentifierStore.Change? { lock.withLock { changes.last } }
}
