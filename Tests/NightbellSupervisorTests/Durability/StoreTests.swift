import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellSupervisor
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

    @Test("The next supervisor reads what one has written")
    func survives() throws {
        let first = try store()
        #expect(try first.entries().isEmpty && first.warnings.isEmpty)
        for number in 0..<100 {
            first.record("client.\(number)", .init(user: 1_000, isQuit: number % 2 == 0))
        }
        first.flush()
        let second = try store()
        #expect(try second.table() == first.table() && second.entries().count == 100)
        second.record("client.7", nil)
        second.record("client.8", .init(user: 1_000, isQuit: false))
        second.flush()
        let third = try store()
        #expect(try third.table() == second.table() && third.entries().count == 99)
        var status = stat()
        #expect(stat(path, &status) == 0 && status.st_mode & 0o777 == 0o600)
    }

    @Test("A file that cannot be a table is put aside without blocking", arguments: 0..<3)
    func strangers(kind: Int) throws {
        let first = try store()
        first.record("a", .init(user: 1, isQuit: false))
        first.flush()
        first.record("b", .init(user: 1, isQuit: false))
        first.flush()
        unlink(path)
        switch kind {
        case 0: #expect(mkfifo(path, 0o600) == 0)
        case 1: #expect(mkdir(path, 0o700) == 0)
        default:
            #expect(creat(path, 0o600) >= 0)
            #expect(truncate(path, off_t(DurableFile.sizeLimit) + 1) == 0)
        }
        // It has no reader.
        #expect(mkfifo(path + ".new", 0o600) == 0)
        let second = try store()
        let words = kind < 2 ? "it is no regular file" : "it is longer than 268435456 bytes"
        #expect(second.warnings == ["\(path): \(words)", "the damaged table is \(path).damaged now"])
        #expect(try second.entries().keys.sorted() == ["a"])
        second.record("c", .init(user: 1, isQuit: false))
        second.flush()
        #expect(try second.entries().keys.sorted() == ["a", "c"])
        if kind == 1 { rmdir(path + ".damaged") } else { unlink(path + ".damaged") }
    }

    @Test("Nothing is written when nothing has changed")
    func unchanged() throws {
        let store = try store()
        store.record("a", .init(user: 1, isQuit: false))
        store.flush()
        var before = stat()
        stat(path, &before)
        store.record("a", .init(user: 1, isQuit: false))
        store.record("b", nil)
        store.flush()
        var after = stat()
        stat(path, &after)
        #expect(before.st_ino == after.st_ino)
    }

    @Test("A write interrupted anywhere leaves the old table or the new one")
    func torn() throws {
        let store = try store()
        store.record("old", .init(user: 1, isQuit: false))
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

    @Test("On a disk that loses synced data, the previous table counts")
    func damaged() throws {
        let first = try store()
        first.record("a", .init(user: 1, isQuit: false))
        first.flush()
        first.record("b", .init(user: 1, isQuit: false))
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

    @Test("With no whole table left, no identifier is known, and the files are kept for inspection")
    func lost() throws {
        _ = try store()
        try put([1, 2, 3])
        let store = try store()
        #expect(try store.entries().isEmpty && store.warnings.count == 3)
        #expect(try bytes(".damaged") == [1, 2, 3])
        store.record("a", .init(user: 1, isQuit: false))
        store.flush()
        #expect(try self.store().table() == store.table())
    }

    @Test("A damaged previous table alone is put aside, and later changes are written")
    func previousDamaged() throws {
        _ = try store()
        try put([1, 2, 3], ".previous")
        let store = try store()
        #expect(try store.entries().isEmpty && store.warnings.count == 3)
        #expect(try bytes(".previous.damaged") == [1, 2, 3])
        store.record("a", .init(user: 1, isQuit: false))
        store.flush()
        #expect(try self.store().table() == store.table())
    }

    @Test("A damaged table does not replace the previous one")
    func keepsPrevious() throws {
        let first = try store()
        first.record("a", .init(user: 1, isQuit: false))
        first.flush()
        rename(path, path + ".previous")
        try put([1, 2, 3])
        let second = try store()
        #expect(try bytes(".damaged") == [1, 2, 3])
        // The machine stops when the next one has been written, and is not in its place yet.
        rename(path, path + ".previous")
        #expect(try Array(store().entries().keys) == ["a"] && second.warnings.count == 2)
    }

    @Test("Recording a change on a busy disk takes the same time for any size of the table")
    func large() throws {
        let names = (0..<20_000).map { "client.\($0)" }
        let store = try store()
        func time(_ names: ArraySlice<String>) -> Duration {
            let clock = SuspendingClock()
            return clock.measure {
                for name in names { store.record(name, .init(user: 1, isQuit: false)) }
            }
        }
        let first = time(names[..<500])
        store.record(names[500..<19_500].map { ($0, .init(user: 1, isQuit: false)) })
        store.flush()
        let last = time(names[19_500...])
        store.flush()
        #expect(try self.store().entries().count == 20_000)
        // Both take about a millisecond. If the whole table were read each time, it would be seconds.
        #expect(last < max(first, .milliseconds(1)) * 100)
    }

    @Test("Damage to the file while a supervisor serves is reported, and hardly anything is lost")
    func damagedMeanwhile() throws {
        let told = Told()
        let store = try IdentifierStore(path: path) { told.record($0) }
        for name in ["a", "b", "c"] {
            store.record(name, .init(user: 1, isQuit: false))
            store.flush()
        }
        try put([1, 2, 3])
        store.record("d", .init(user: 1, isQuit: false))
        store.flush()
        // The damage, and where the file is now.
        #expect(told.number == 2)
        #expect(try self.store().entries().keys.sorted() == ["a", "b", "d"])
        #expect(try bytes(".damaged") == [1, 2, 3])
    }

    @Test("A table of a later version is left alone, with a reason")
    func newer() throws {
        _ = try store()
        let text = "nightbell-identifiers 3\nsomething else\nsum e9f16c96\n"
        try put(Array(text.utf8))
        let failure = #expect(throws: IdentifierStore.Failure.self) { try store() }
        #expect(failure?.description.hasPrefix("\(path): it is of version 3") == true)
        #expect(try bytes() == Array(text.utf8))
    }

    @Test("A failed write is reported once, and done when it can be and a flush asks for it")
    func unwritable() throws {
        let told = Told()
        let store = try IdentifierStore(path: path) { told.record($0) }
        mkdir(path + ".new", 0o700)
        store.record("a", .init(user: 1, isQuit: false))
        store.flush()
        store.flush()
        #expect(told.number == 1 && store.problems.count == 1)
        rmdir(path + ".new")
        store.record("b", .init(user: 1, isQuit: false))
        store.flush()
        #expect(try self.store().entries().count == 2)
        #expect(told.last == .written && store.problems.isEmpty)
    }

    @Test("On a full disk, it is written as soon as there is space", .enabled(if: geteuid() == 0))
    func full() throws {
        let disk = try SmallDisk()
        let told = Told()
        let path = disk.path + "/state/identifiers"
        let store = try IdentifierStore(path: path) { told.record($0) }
        store.record("first", .init(user: 1, isQuit: false))
        store.flush()
        try disk.fill()
        for number in 0..<2_000 { store.record("client.\(number)", .init(user: 1, isQuit: false)) }
        store.flush()
        #expect(store.problems.count == 1)
        try disk.free()
        // Without a flush, and without further changes.
        #expect(eventually(within: 30_000) { told.last == .written })
        let next = try IdentifierStore(path: path) { _ in }
        #expect(try next.entries().count == 2_001 && next.warnings.isEmpty && store.problems.isEmpty)
    }

    @Test("With a disk that is full from the start, it is written later", .enabled(if: geteuid() == 0))
    func fullAtFirst() throws {
        let disk = try SmallDisk()
        let path = disk.path + "/state/identifiers"
        // Not even a directory can be made.
        try disk.fill(inodes: true)
        let store = try IdentifierStore(path: path) { _ in }
        #expect(store.warnings.count == 1 && store.problems.count == 1)
        store.record("a", .init(user: 1, isQuit: false))
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

    fileprivate func record(_ identifier: String, _ entry: IdentifierTable.Entry?) {
        record(CollectionOfOne((identifier: identifier, entry: entry)))
    }
}

private final class Told: @unchecked Sendable {
    private let lock = NSLock()
    private var changes: [IdentifierStore.Change] = []
    func record(_ change: IdentifierStore.Change) { lock.withLock { changes.append(change) } }
    var number: Int { lock.withLock { changes.count } }
    var last: IdentifierStore.Change? { lock.withLock { changes.last } }
}
