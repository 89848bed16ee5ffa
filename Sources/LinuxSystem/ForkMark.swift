import CLinux
import Glibc

/// Detects without a system call whether it is still in the process that made it, by a page that the kernel
/// wipes in the child of a fork (Linux 4.14).
@safe
package struct ForkMark: ~Copyable, @unchecked Sendable {
    // Sendable: the page is written once, before other threads can see it, and only read afterwards.
    private let page: UnsafeMutablePointer<UInt64>
    private static let byteCount = 4_096

    package init() throws(SystemError) {
        unsafe page = try Self.makePage()
    }

    private static func makePage() throws(SystemError) -> UnsafeMutablePointer<UInt64> {
        let protection = PROT_READ | PROT_WRITE
        let flags = CInt(MAP_PRIVATE | MAP_ANONYMOUS)
        guard let address = unsafe mmap(nil, byteCount, protection, flags, -1, 0),
            unsafe address != MAP_FAILED
        else { throw SystemError("mmap") }
        let page = unsafe address.bindMemory(to: UInt64.self, capacity: 1)
        unsafe page.pointee = 1
        guard unsafe clinux_wipe_on_fork(address, byteCount) == 0 else {
            let error = SystemError("madvise")
            unsafe munmap(address, byteCount)
            throw error
        }
        return unsafe page
    }

    deinit {
        unsafe munmap(page, Self.byteCount)
    }

    package var isForked: Bool { unsafe page.pointee == 0 }
}
