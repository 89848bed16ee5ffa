import CLinux
import Glibc

/// One page of memory that this process writes and processes with its descriptor can only read: the kernel
/// refuses to let them write it, map it for writing, or change its size (Linux 5.1).
@safe
package struct SharedPage: ~Copyable {
    package static let byteCount = 4_096
    package static let wordCount = byteCount / MemoryLayout<UInt64>.stride

    /// The descriptor to send to readers.
    package let descriptor: OwnedDescriptor
    private let words: UnsafeMutablePointer<UInt64>

    package init(name: String) throws(SystemError) {
        let descriptor = OwnedDescriptor(
            adopting: try systemCall("memfd_create") { unsafe clinux_sealable_memory(name) })
        let rawValue = descriptor.rawValue
        _ = try systemCall("ftruncate") { ftruncate(rawValue, Self.byteCount) }
        let protection = PROT_READ | PROT_WRITE
        guard let address = unsafe mmap(nil, Self.byteCount, protection, CInt(MAP_SHARED), rawValue, 0),
            unsafe address != MAP_FAILED
        else { throw SystemError("mmap") }
        do {
            _ = try systemCall("F_ADD_SEALS") { clinux_seal_for_readers(rawValue) }
        } catch {
            unsafe munmap(address, Self.byteCount)
            throw error
        }
        unsafe words = address.bindMemory(to: UInt64.self, capacity: Self.wordCount)
        self.descriptor = descriptor
    }

    deinit {
        unsafe munmap(words, Self.byteCount)
    }

    /// A word for writing, valid for as long as the page.
    @unsafe
    package struct Word {
        private let address: UnsafeMutablePointer<UInt64>

        init(_ address: UnsafeMutablePointer<UInt64>) {
            unsafe self.address = address
        }

        /// A release store: a reader that sees the new value sees all earlier writes.
        package func store(_ value: UInt64) { unsafe clinux_store_release(address, value) }
    }

    package borrowing func word(at index: Int) -> Word {
        precondition(index >= 0 && index < Self.wordCount, "a page has no such word")
        return unsafe Word(words + index)
    }
}

/// The reader's view of one word of another process's `SharedPage`.
@safe
package struct SharedWord: ~Copyable, @unchecked Sendable {
    // Sendable: the memory is only read, atomically, and stays mapped for as long as this value lives.
    private let page: UnsafeMutableRawPointer
    private let word: UnsafePointer<UInt64>

    /// Maps the page; the descriptor is not needed afterwards. `EINVAL`: it is not such a page, or the index
    /// is out of range.
    package init(mapping descriptor: consuming OwnedDescriptor, at index: Int) throws(SystemError) {
        let rawValue = descriptor.rawValue
        // Memory that its writer could still shrink would end this process with SIGBUS.
        guard index >= 0, index < SharedPage.wordCount,
            clinux_is_sealed_page(rawValue, SharedPage.byteCount) == 1
        else { throw SystemError(code: EINVAL, call: "mmap of a shared page") }
        guard let address = unsafe mmap(nil, SharedPage.byteCount, PROT_READ, CInt(MAP_SHARED), rawValue, 0),
            unsafe address != MAP_FAILED
        else { throw SystemError("mmap") }
        unsafe page = address
        unsafe word = UnsafePointer(address.assumingMemoryBound(to: UInt64.self)) + index
    }

    deinit {
        unsafe munmap(page, SharedPage.byteCount)
    }

    package var value: UInt64 { unsafe clinux_load_acquire(word) }
}
