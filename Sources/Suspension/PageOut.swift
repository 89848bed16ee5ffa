import CLinux
import Glibc
package import LinuxSystem

/// Writes the memory of sleeping processes to swap (`process_madvise(2)`, `MADV_PAGEOUT`), on a thread of its
/// own that exists only while there is something to write: it waits for the disk.
@safe
package final class PageOut: @unchecked Sendable {
    // Sendable: mutable state is touched only with the lock held.

    /// Enough for one system call, and little enough to be cancelled between two.
    private static let rangesPerCall = 64

    private let lock = Lock()
    private var waiting: [(id: UInt64, pidfd: CInt, pid: pid_t)] = []
    /// The process that is being written; nil once it is awake again.
    private var current: UInt64?
    private var isRunning = false
    private var reclaimed: UInt64 = 0
    private let onEnd: @Sendable () -> Void

    /// - Parameter onEnd: called on the thread when nothing is left to write.
    package init(onEnd: @escaping @Sendable () -> Void = {}) { self.onEnd = onEnd }

    /// By how much the processes' memory was smaller after it was written, in bytes.
    package var reclaimedBytes: UInt64 {
        lock.lock()
        defer { lock.unlock() }
        return reclaimed
    }

    /// Whether there is any swap.
    package static var hasSwap: Bool {
        guard let text = try? SmallFile.readText("/proc/swaps") else { return false }
        return text.split(separator: "\n").count > 1
    }

    /// Whether this process may write the memory of another one, which it needs `CAP_SYS_NICE` for.
    package static func mayWrite(_ process: borrowing ProcessHandle) -> Bool {
        clinux_page_out(process.pidfdValue, nil, 0) == 0
    }

    /// A process has been suspended.
    package func begin(_ id: UInt64, _ process: borrowing ProcessHandle) throws(SystemError) {
        let pidfd = try OwnedDescriptor(duplicating: process.rawValue)
        let pid = process.pid
        lock.lock()
        defer { lock.unlock() }
        waiting.append((id, pidfd.take(), pid))
        guard !isRunning else { return }
        isRunning = Thread.start(stackSize: Thread.smallStack) { self.work() } == 0
    }

    /// It is awake: memory that is not written yet stays.
    package func cancel(_ id: UInt64) {
        lock.lock()
        defer { lock.unlock() }
        if current == id { current = nil }
        for index in waiting.indices.reversed() where waiting[index].id == id {
            OwnedDescriptor(adopting: waiting.remove(at: index).pidfd).close()
        }
    }

    // MARK: The thread

    private func work() {
        while let (id, pidfd, pid) = next() {
            let descriptor = OwnedDescriptor(adopting: pidfd)
            let before = ProcFS.residentBytes(pid) ?? 0
            _ = Self.pageOut(descriptor.rawValue, pid) { self.isCurrent(id) }
            if let after = ProcFS.residentBytes(pid) { note(reclaimed: max(0, before - after)) }
            descriptor.close()
        }
        onEnd()
    }

    private func next() -> (id: UInt64, pidfd: CInt, pid: pid_t)? {
        lock.lock()
        defer { lock.unlock() }
        guard !waiting.isEmpty else {
            isRunning = false
            current = nil
            return nil
        }
        let job = waiting.removeFirst()
        current = job.id
        return job
    }

    private func note(reclaimed bytes: Int) {
        lock.lock()
        defer { lock.unlock() }
        reclaimed += UInt64(bytes)
    }

    private func isCurrent(_ id: UInt64) -> Bool {
        lock.lock()
        defer { lock.unlock() }
        return current == id
    }

    // MARK: One process

    /// Writes the memory of a process as long as `goesOn` returns true. Returns how many bytes were advised
    /// on; an error ends it.
    @discardableResult
    package static func pageOut(
        _ pidfd: CInt, _ pid: Int32, while goesOn: () -> Bool
    ) -> Result<Int, SystemError> {
        guard let maps = try? SmallFile.readText("/proc/\(pid)/maps") else {
            return .failure(SystemError(code: ESRCH, call: "read maps"))
        }
        let ranges = maps.split(separator: "\n").compactMap(range)
        var total = 0
        for start in stride(from: 0, to: ranges.count, by: rangesPerCall) where goesOn() {
            var part = unsafe ranges[start..<min(start + rangesPerCall, ranges.count)].map { range in
                unsafe iovec(
                    iov_base: UnsafeMutableRawPointer(bitPattern: range.lowerBound), iov_len: range.count)
            }
            let count = unsafe clinux_page_out(pidfd, &part, CUnsignedLong(part.count))
            guard count >= 0 else { return .failure(SystemError("process_madvise")) }
            total += Int(count)
        }
        return .success(total)
    }

    /// Memory that can be written: neither the kernel's own pages nor mappings without pages.
    private static func range(_ line: Substring) -> Range<UInt>? {
        let fields = line.split(separator: " ", omittingEmptySubsequences: true)
        guard fields.count >= 5, fields.count < 6 || !fields[5].hasPrefix("[v") else { return nil }
        let bounds = fields[0].split(separator: "-").compactMap { UInt($0, radix: 16) }
        guard bounds.count == 2, bounds[0] < bounds[1] else { return nil }
        return bounds[0]..<bounds[1]
    }
}
