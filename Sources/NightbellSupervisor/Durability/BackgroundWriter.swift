import Glibc
import LinuxSystem

/// Replaces the content of a durable file on a thread of its own, which exists only while there is something to
/// write, because a disk is slow. Of contents that come faster than they are written, the last one is.
@safe
final class BackgroundWriter: @unchecked Sendable {
    // Sendable: mutable state is touched only with the lock held.

    private let file: DurableFile
    private let lock = ConditionLock()
    /// Locked: the content that is to be written.
    private var pending: [UInt8]?
    /// Locked: whether there is a thread.
    private var isWriting = false
    /// Locked: why the latest content is not on the disk.
    private var obstacle: String?

    init(_ file: DurableFile) {
        self.file = file
    }

    deinit { flush() }

    /// Why the latest content is not on the disk; nil: it is, or is being written.
    var problem: String? {
        lock.lock()
        defer { lock.unlock() }
        return obstacle
    }

    /// Has the file replaced soon.
    func write(_ content: [UInt8]) {
        lock.lock()
        defer { lock.unlock() }
        pending = content
        guard !isWriting else { return }
        // Not retained: deinitialising the writer waits for the thread's end.
        let writer = unsafe Unmanaged.passUnretained(self)
        isWriting = true
        let code = Thread.start(stackSize: Thread.smallStack) {
            unsafe writer.takeUnretainedValue().writeAll()
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
