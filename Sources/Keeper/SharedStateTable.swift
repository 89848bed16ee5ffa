import CLinux
import Glibc
package import LinuxSystem

/// Shared memory that outlives the process that writes it: the keeper holds the file, the worker writes with
/// plain stores and no system call.
///
/// A process can be killed between any two stores. Values that must change together are therefore written
/// twice, by a one-entry redo log: first into one slot for all records, where one store names the record, and
/// from there into the record; the next process completes an unfinished entry. A single number needs none of
/// that. (The memory itself is intact: only the process dies, not the machine.)
///
/// A page takes memory once something in it is read or written. So a record's numbers that are mostly zero
/// lie apart, and are not touched while they are.
@safe
package final class SharedStateTable {
    /// The values that change together.
    package typealias Words = InlineArray<17, UInt64>

    /// The capacity.
    package struct Shape: Sendable, Hashable {
        package var records: Int
        package var marks: Int

        package init(records: Int, marks: Int) {
            self.records = records
            self.marks = marks
        }

        var byteCount: Int { (wordCount + marks * SharedStateTable.wideCount) * 8 + marks * 4 }

        var wordCount: Int { headerWords + records * (nearWords + farCount) }
    }

    /// Single numbers of each record, beside the words that change together.
    package static let plainCount = nearCount + farCount
    /// The ones that lie with the record; the others are rarely anything but zero.
    package static let nearCount = 5
    /// Single numbers for each thing with a mark, for the few that need more than the mark.
    package static let wideCount = 11
    /// Single numbers of the table as a whole.
    package static let generalCount = 112

    private static let farCount = 29
    private static let headerWords = begunStart + 24
    /// The slot of the record that waits in the header, plus one; 0: none.
    private static let begunIndex = 3
    private static let generalStart = 8
    private static let begunStart = generalStart + generalCount
    /// A record's presence, its words, and its near numbers.
    private static let nearWords = 1 + Words.count + nearCount
    private static let isThere: UInt64 = 1
    private static let hasFar: UInt64 = 2
    /// "nightbell ledger", and the version of its layout in the last byte.
    private static let magic: UInt64 = 0x6e62_6c65_6467_6506

    package let shape: Shape
    private let words: UnsafeMutablePointer<UInt64>
    private let marks: UnsafeMutablePointer<UInt32>
    private let wide: UnsafeMutablePointer<UInt64>

    /// An empty table.
    package static func create(_ shape: Shape) throws(SystemError) -> OwnedDescriptor {
        let file = try MemoryFile.create("nightbell-shared-state", length: shape.byteCount)
        let header = [magic, UInt64(shape.records), UInt64(shape.marks)]
        let rawValue = file.rawValue
        _ = try systemCall("pwrite") { unsafe pwrite(rawValue, header, header.count * 8, 0) }
        return file
    }

    /// Maps the table in this file, which may be closed afterwards.
    ///
    /// - Throws: `EPROTO` if another version of the program has made it, or it is no such table.
    package init(mapping descriptor: CInt) throws(SystemError) {
        var header: [UInt64] = [0, 0, 0]
        let read = try systemCall("pread") { unsafe pread(descriptor, &header, header.count * 8, 0) }
        var status = stat()
        _ = try systemCall("fstat") { unsafe fstat(descriptor, &status) }
        let shape = Shape(records: Int(clamping: header[1]), marks: Int(clamping: header[2]))
        guard read != 24 || header[0] >> 8 != Self.magic >> 8 || header[0] == Self.magic else {
            let versions = "version \(header[0] & 0xFF) (this program knows \(Self.magic & 0xFF))"
            throw SystemError(code: EPROTO, call: "read shared state of \(versions)")
        }
        guard read == 24, header[0] == Self.magic, max(shape.records, shape.marks) < 1 << 32,
            status.st_size == off_t(shape.byteCount)
        else { throw SystemError(code: EPROTO, call: "shared state") }
        let memory = unsafe mmap(nil, shape.byteCount, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0)
        guard let memory = unsafe memory, unsafe memory != MAP_FAILED else { throw SystemError("mmap") }
        self.shape = shape
        let wordCount = shape.wordCount
        unsafe words = memory.bindMemory(to: UInt64.self, capacity: wordCount)
        let wideStart = wordCount * 8
        let wideWords = shape.marks * Self.wideCount
        unsafe wide = (memory + wideStart).bindMemory(to: UInt64.self, capacity: wideWords)
        unsafe marks = (memory + wideStart + wideWords * 8).bindMemory(
            to: UInt32.self, capacity: shape.marks)
    }

    deinit { unsafe munmap(words, shape.byteCount) }

    // MARK: Records

    /// Writes the values that change together. A slot beyond the capacity is ignored.
    package func write(_ slot: Int, _ value: Words) {
        write(slot, value) {}
    }

    /// As above; `stored` is called after each store, for tests that check the states in between.
    @inline(__always)
    package func write(_ slot: Int, _ value: Words, stored: () -> Void) {
        guard slot < shape.records else { return }
        finish {}
        for index in 0..<Words.count {
            unsafe clinux_store_release(words + Self.begunStart + index, value[index])
            stored()
        }
        unsafe clinux_store_release(words + Self.begunIndex, UInt64(slot) + 1)
        stored()
        finish(stored)
    }

    /// Copies the record that waits in the header to its slot.
    @inline(__always)
    private func finish(_ stored: () -> Void) {
        let begun = unsafe words[Self.begunIndex]
        guard begun != 0, begun <= UInt64(shape.records) else { return }
        let record = unsafe record(Int(begun) - 1)
        for index in 0..<Words.count {
            unsafe clinux_store_release(record + 1 + index, words[Self.begunStart + index])
            stored()
        }
        unsafe clinux_store_release(record, record[0] | Self.isThere)
        stored()
        unsafe clinux_store_release(words + Self.begunIndex, 0)
        stored()
    }

    /// The last values written; nil: none, or the slot was cleared.
    package func read(_ slot: Int) -> Words? {
        guard slot < shape.records else { return nil }
        if unsafe words[Self.begunIndex] == UInt64(slot) + 1 {
            return Words { index in unsafe words[Self.begunStart + index] }
        }
        let record = unsafe record(slot)
        guard unsafe record[0] & Self.isThere != 0 else { return nil }
        return Words { index in unsafe record[1 + index] }
    }

    /// Clears the slot.
    package func clear(_ slot: Int) {
        guard slot < shape.records else { return }
        finish {}
        let record = unsafe record(slot)
        unsafe clinux_store_release(record, record[0] & ~Self.isThere)
    }

    package func plain(_ slot: Int, _ index: Int) -> UInt64 {
        guard slot < shape.records else { return 0 }
        precondition(index >= 0 && index < Self.plainCount, "no such number")
        if index < Self.nearCount { return unsafe record(slot)[1 + Words.count + index] }
        guard unsafe record(slot)[0] & Self.hasFar != 0 else { return 0 }
        return unsafe far(slot)[index - Self.nearCount]
    }

    package func setPlain(_ slot: Int, _ index: Int, to value: UInt64) {
        guard slot < shape.records else { return }
        precondition(index >= 0 && index < Self.plainCount, "no such number")
        let record = unsafe record(slot)
        if index < Self.nearCount {
            return unsafe clinux_store_release(record + 1 + Words.count + index, value)
        }
        if unsafe record[0] & Self.hasFar == 0 {
            if value == 0 { return }
            unsafe clinux_store_release(record, record[0] | Self.hasFar)
        }
        unsafe clinux_store_release(far(slot) + index - Self.nearCount, value)
    }

    private func record(_ slot: Int) -> UnsafeMutablePointer<UInt64> {
        unsafe words + Self.headerWords + slot * Self.nearWords
    }

    private func far(_ slot: Int) -> UnsafeMutablePointer<UInt64> {
        unsafe words + Self.headerWords + shape.records * Self.nearWords + slot * Self.farCount
    }

    // MARK: Marks and general numbers

    /// A small number for each of many things.
    package func mark(_ slot: Int) -> UInt32 {
        slot < shape.marks ? unsafe marks[slot] : 0
    }

    package func wide(_ slot: Int, _ index: Int) -> UInt64 {
        guard slot < shape.marks else { return 0 }
        precondition(index >= 0 && index < Self.wideCount, "no such number")
        return unsafe wide[slot * Self.wideCount + index]
    }

    package func setWide(_ slot: Int, _ index: Int, to value: UInt64) {
        guard slot < shape.marks else { return }
        precondition(index >= 0 && index < Self.wideCount, "no such number")
        unsafe clinux_store_release(wide + slot * Self.wideCount + index, value)
    }

    /// Stores several numbers that follow one another, in their order.
    package func setWide(_ slot: Int, from first: Int, to values: InlineArray<5, UInt64>) {
        guard slot < shape.marks else { return }
        precondition(first >= 0 && first + values.count <= Self.wideCount, "no such number")
        let place = unsafe wide + slot * Self.wideCount + first
        for index in values.indices { unsafe clinux_store_release(place + index, values[index]) }
    }

    package func setMark(_ slot: Int, to value: UInt32) {
        guard slot < shape.marks else { return }
        unsafe clinux_store_half(marks + slot, value)
    }

    package func general(_ index: Int) -> UInt64 {
        precondition(index >= 0 && index < Self.generalCount, "no such number")
        return unsafe words[Self.generalStart + index]
    }

    package func setGeneral(_ index: Int, to value: UInt64) {
        precondition(index >= 0 && index < Self.generalCount, "no such number")
        unsafe clinux_store_release(words + Self.generalStart + index, value)
    }
}
