import Glibc

/// A value that several threads share, under a lock with a condition: a thread either does something with the
/// value and goes on, or waits until another has changed it.
///
/// A lock of the system's own because a condition variable needs one, and because the thread sanitizer
/// understands it.
// @unchecked: `value` is only touched between lock and unlock.
@safe
package final class Monitor<Value>: @unchecked Sendable {
    package enum Turn<Result> {
        case done(Result)
        /// Look again when somebody has called `changed`, or after this many nanoseconds.
        case wait(Int64)
    }

    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>
    /// By an address: the class's own storage would be guarded against overlapping access a second time.
    private let value: UnsafeMutablePointer<Value>

    package init(_ value: Value) {
        unsafe self.value = .allocate(capacity: 1)
        unsafe self.value.initialize(to: value)
        unsafe mutex = .allocate(capacity: 1)
        unsafe condition = .allocate(capacity: 1)
        unsafe pthread_mutex_init(mutex, nil)
        var attributes = pthread_condattr_t()
        unsafe pthread_condattr_init(&attributes)
        unsafe pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC)
        unsafe pthread_cond_init(condition, &attributes)
        unsafe pthread_condattr_destroy(&attributes)
    }

    deinit {
        unsafe pthread_cond_destroy(condition)
        unsafe pthread_mutex_destroy(mutex)
        unsafe condition.deallocate()
        unsafe mutex.deallocate()
        unsafe value.deinitialize(count: 1)
        unsafe value.deallocate()
    }

    /// Nobody who calls this holds the lock already: nothing in here calls out.
    package func withLock<Result, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        return try unsafe body(&value.pointee)
    }

    /// Calls `body` again after each change until it is done.
    package func turn<Result, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Turn<Result>
    ) throws(Failure) -> Result {
        unsafe pthread_mutex_lock(mutex)
        defer { unsafe pthread_mutex_unlock(mutex) }
        while true {
            switch try unsafe body(&value.pointee) {
            case .done(let result): return result
            case .wait(let nanoseconds): wait(nanoseconds)
            }
        }
    }

    /// Lets all who wait look again.
    package func changed() {
        unsafe pthread_cond_broadcast(condition)
    }

    private func wait(_ nanoseconds: Int64) {
        var until = timespec()
        unsafe clock_gettime(CLOCK_MONOTONIC, &until)
        let total = Int64(until.tv_nsec) + min(nanoseconds, 1_000_000_000_000_000)
        until.tv_sec += Int(total / 1_000_000_000)
        until.tv_nsec = Int(total % 1_000_000_000)
        unsafe pthread_cond_timedwait(condition, mutex, &until)
    }
}

/// How much longer a caller waits. Time in which the whole process stood still, because it was suspended, counts
/// for at most one slice: an answer that waits in the socket is found, not given up for lost.
package struct Patience {
    private var remaining: Int64
    private var last: Int64
    package let slice: Int64

    package init(_ total: Int64, from now: Int64) {
        remaining = max(total, 1)
        slice = max(total / 8, 1)
        last = now
    }

    /// How long to wait this time; nil when the time is over.
    package mutating func next(at now: Int64) -> Int64? {
        remaining -= min(max(now - last, 0), slice * 2)
        last = now
        return remaining > 0 ? min(slice, remaining) : nil
    }
}
