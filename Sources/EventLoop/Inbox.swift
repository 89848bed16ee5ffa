import Glibc

/// Jobs on their way to the loop, and the wish to stop it. Used from all threads.
///
/// The lock is a `pthread_mutex_t` in memory of its own, not `Synchronization.Mutex`: the thread sanitizer knows
/// the former and reports races on the latter that do not exist.
@safe
final class Inbox: @unchecked Sendable {
    // Sendable: `jobs`, `isSignalled` and `stopRequested` are touched only between `lock` and `unlock`.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private var jobs: [UnownedJob] = []
    /// Whether the loop has been told, or need not be, that there is something in here.
    private var isSignalled = false
    private var stopRequested = false

    init() {
        unsafe mutex = .allocate(capacity: 1)
        unsafe mutex.initialize(to: pthread_mutex_t())
        let result = unsafe pthread_mutex_init(mutex, nil)
        precondition(result == 0, "a mutex with default attributes can be made")
    }

    deinit {
        unsafe pthread_mutex_destroy(mutex)
        unsafe mutex.deallocate()
    }

    /// True: the loop must be woken, because it does not know yet.
    func append(_ job: UnownedJob) -> Bool {
        withLock {
            jobs.append(job)
            defer { isSignalled = true }
            return !isSignalled
        }
    }

    /// True: the loop must be woken.
    func requestStop() -> Bool {
        withLock {
            stopRequested = true
            defer { isSignalled = true }
            return !isSignalled
        }
    }

    /// Exchanges the jobs that wait for an empty array with capacity. From here on the loop must be woken again
    /// for whatever is new.
    func take(into batch: inout [UnownedJob]) {
        withLock {
            swap(&batch, &jobs)
            isSignalled = false
        }
    }

    /// Whether there is nothing to do but to wait.
    var isEmpty: Bool { withLock { jobs.isEmpty && !stopRequested } }

    var hasJobs: Bool { withLock { !jobs.isEmpty } }

    var isStopRequested: Bool { withLock { stopRequested } }

    /// Makes the loop ready to run again. Jobs left here are found by its first turn, so they need no waking.
    func forgetStop() {
        withLock {
            stopRequested = false
            isSignalled = !jobs.isEmpty
        }
    }

    private func withLock<Result>(_ body: () -> Result) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return body()
    }
}
