import LinuxSystem
import Synchronization

/// Jobs queued for the loop, and the request to stop it. Used from all threads.
final class Inbox: @unchecked Sendable {
    // Sendable: `jobs`, `isSignalled` and `stopRequested` are changed only with the lock held.
    private let lock = Lock()
    private var jobs: [UnownedJob] = []
    /// Whether the loop has been woken for the contents, or does not need to be.
    private var isSignalled = false
    private var stopRequested = false
    /// Whether there are jobs or a request, for turns that find neither; changed with the lock held.
    private let hasContent = Atomic<Bool>(false)

    /// True: the loop must be woken, because it does not know yet.
    func append(_ job: UnownedJob) -> Bool {
        withLock {
            jobs.append(job)
            hasContent.store(true, ordering: .releasing)
            defer { isSignalled = true }
            return !isSignalled
        }
    }

    /// True: the loop must be woken.
    func requestStop() -> Bool {
        withLock {
            stopRequested = true
            hasContent.store(true, ordering: .releasing)
            defer { isSignalled = true }
            return !isSignalled
        }
    }

    /// Exchanges the queued jobs for an empty array with capacity. From here on the loop must be woken again
    /// for new jobs.
    func drain(into batch: inout [UnownedJob]) {
        guard !isEmpty else { return }
        withLock {
            swap(&batch, &jobs)
            isSignalled = false
            hasContent.store(stopRequested, ordering: .releasing)
        }
    }

    /// Whether the loop may wait.
    var isEmpty: Bool { !hasContent.load(ordering: .acquiring) }

    var hasJobs: Bool { withLock { !jobs.isEmpty } }

    var isStopRequested: Bool { !isEmpty && withLock { stopRequested } }

    /// Makes the loop ready to run again. Jobs left here are found by its first turn, so they need no waking.
    func forgetStop() {
        withLock {
            stopRequested = false
            isSignalled = !jobs.isEmpty
            hasContent.store(!jobs.isEmpty, ordering: .releasing)
        }
    }

    private func withLock<Result>(_ body: () -> Result) -> Result {
        lock.lock()
        defer { lock.unlock() }
        return body()
    }
}
