import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf

/// The file of all clients' fetches: their intervals, scores and learned habits outlive the supervisor and
/// the machine. It is written by a thread of its own, which exists only while there is something to write,
/// because a disk is slow. Habits lost with a disk that cannot be written are learned again.
@safe
final class FetchStore: @unchecked Sendable {
    // Sendable: mutable state is touched only with the lock held.

    private let file: DurableFile
    private let lock = ConditionLock()
    /// Locked: the content that is to be written.
    private var pending: [UInt8]?
    /// Locked: whether there is a thread.
    private var isWriting = false
    /// Locked: why the latest content is not on the disk.
    private var obstacle: String?

    init(path: String) {
        file = DurableFile(path: path)
    }

    deinit { flush() }

    /// Why the latest content is not on the disk; nil: it is, or is being written.
    var problem: String? {
        lock.lock()
        defer { lock.unlock() }
        return obstacle.map { "the learned habits of fetches cannot be written: \($0)" }
    }

    /// The entries on the disk: of the latest file that is whole.
    func read() throws(SystemError) -> [StoredFetch] {
        for (_, found) in try file.candidates() {
            guard case .content(let bytes) = found,
                let fetches = try? StoredFetches(serializedBytes: bytes), fetches.isWhole
            else { continue }
            return fetches.fetches
        }
        return []
    }

    /// Has the file replaced soon.
    func write(_ fetches: [StoredFetch]) {
        let content = StoredFetches.with {
            $0.fetches = fetches
            $0.isWhole = true
        }
        lock.lock()
        defer { lock.unlock() }
        pending = content.record
        guard !isWriting else { return }
        // Not retained: deinitialising the store waits for the thread's end.
        let store = unsafe Unmanaged.passUnretained(self)
        isWriting = true
        let code = Thread.start(stackSize: Thread.smallStack) {
            unsafe store.takeUnretainedValue().writeAll()
        }
        guard code != 0 else { return }
        isWriting = false
        obstacle = "\(SystemError(code: code, call: "pthread_create"))"
    }

    /// Returns when the latest content is on the disk, or cannot be written.
    func flush() {
        lock.lock()
        defer { lock.unlock() }
        while isWriting { lock.wait() }
    }

    private func writeAll() {
        lock.lock()
        while let content = pending.take() {
            lock.unlock()
            let failure: String?
            do throws(SystemError) {
                try file.write(content)
                failure = nil
            } catch {
                failure = "\(error)"
            }
            lock.lock()
            obstacle = failure
        }
        isWriting = false
        lock.signal()
        lock.unlock()
    }
}
