import Glibc
import LinuxSystem

/// Replaces the content of a durable file on a thread of its own, which exists only while there is something to
/// write, because a disk is slow. Of contents that come faster than they are written, the last one is.
///
/// A failed write, for example on a full disk, is retried: after a second, then with doubling pauses, and at
/// each `flush`. A writer that is released meanwhile goes on until it has succeeded.
package final class BackgroundWriter: @unchecked Sendable {
    // Sendable: mutable state is touched only with the lock held.

    /// Events of the file while it is in use.
    package enum Change: Sendable, Hashable {
        /// It cannot be written; reported for the first of a row of attempts.
        case unwritable(String)
        /// It is written again.
        case written
    }

    /// The longest pause between two attempts, in seconds.
    private static let longestPause = 60
    private let file: DurableFile
    private let onChange: @Sendable (Change) -> Void
    private let lock = ConditionLock()
    /// Locked: the latest content, unless it is on the disk or being written.
    private var pending: [UInt8]?
    /// Locked: whether there is a thread.
    private var isWriting = false
    /// Locked: whether it is writing, and not waiting for the next attempt.
    private var isAttempting = false
    /// Locked: how many attempts have failed, and up to which count the next ones come without a pause.
    private var failures: UInt64 = 0
    private var hurriesUntil: UInt64 = 0
    /// Locked: failures in a row, which determine the pause.
    private var pauses = 0
    /// Locked: why the latest content is not on the disk.
    private var obstacle: String?

    /// - Parameter onChange: called on any thread, but never twice at a time.
    package init(_ file: DurableFile, onChange: @escaping @Sendable (Change) -> Void) {
        self.file = file
        self.onChange = onChange
    }

    /// Why the latest content is not on the disk; nil: it is, or is being written.
    package var problem: String? {
        lock.lock()
        defer { lock.unlock() }
        return obstacle
    }

    /// Has the file replaced soon.
    package func write(_ content: [UInt8]) {
        lock.lock()
        defer { lock.unlock() }
        pending = content
        startThread()
    }

    /// Returns when the latest content is on the disk, or an attempt from now on has failed.
    package func flush() {
        lock.lock()
        defer { lock.unlock() }
        if pending != nil { startThread() }
        // The current attempt may already have failed.
        let enough = failures + (isAttempting ? 2 : 1)
        hurriesUntil = max(hurriesUntil, enough)
        lock.signal()
        while isWriting, failures < enough { lock.wait() }
    }

    // MARK: The thread

    /// Call it with the lock held.
    private func startThread() {
        guard !isWriting else { return }
        isWriting = true
        let code = Thread.start(stackSize: Thread.smallStack) { self.writeAll() }
        guard code != 0 else { return }
        isWriting = false
        tell("\(SystemError(code: code, call: "pthread_create"))")
    }

    private func writeAll() {
        lock.lock()
        while let content = pending.take() {
            isAttempting = true
            lock.unlock()
            let failure: String?
            do throws(SystemError) {
                try file.write(content)
                failure = nil
            } catch {
                failure = "\(error)"
            }
            lock.lock()
            isAttempting = false
            guard let failure else {
                if obstacle != nil { onChange(.written) }
                obstacle = nil
                pauses = 0
                continue
            }
            if pending == nil { pending = content }
            tell(failure)
            pauseAfterFailure()
        }
        isWriting = false
        lock.signal()
        lock.unlock()
    }

    /// Returns when it is time for the next attempt. Call it with the lock held.
    private func pauseAfterFailure() {
        failures += 1
        lock.signal()
        let pause = min(Self.longestPause, 1 << min(pauses, 6))
        let until = RunningClock.instant(after: Int64(pause) * 1_000_000_000)
        pauses += 1
        while failures >= hurriesUntil {
            guard lock.wait(until: until) else { return }
        }
    }

    private func tell(_ problem: String) {
        if obstacle == nil { onChange(.unwritable(problem)) }
        obstacle = problem
    }
}
