package import CLinux
import Glibc

/// A `pthread_mutex_t` in memory of its own.
///
/// Not `Synchronization.Mutex`: the thread sanitizer knows the former and reports races on the latter that do
/// not exist.
@safe
package final class Lock: @unchecked Sendable {
    // Sendable: a mutex is made for that, and it does not move.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>

    package init() {
        unsafe mutex = .allocate(capacity: 1)
        unsafe mutex.initialize(to: pthread_mutex_t())
        let result = unsafe pthread_mutex_init(mutex, nil)
        precondition(result == 0, "a mutex with default attributes can be made")
    }

    deinit {
        unsafe pthread_mutex_destroy(mutex)
        unsafe mutex.deallocate()
    }

    package func lock() {
        unsafe pthread_mutex_lock(mutex)
    }

    package func unlock() {
        unsafe pthread_mutex_unlock(mutex)
    }
}

/// A lock with a condition that threads wait for; times are those of `RunningClock`.
@safe
package final class ConditionLock: @unchecked Sendable {
    // Sendable: as `Lock`.
    private let mutex: UnsafeMutablePointer<pthread_mutex_t>
    private let condition: UnsafeMutablePointer<pthread_cond_t>

    package init() {
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
    }

    package func lock() { unsafe pthread_mutex_lock(mutex) }

    package func unlock() { unsafe pthread_mutex_unlock(mutex) }

    /// Wakes all waiting threads.
    package func signal() { unsafe pthread_cond_broadcast(condition) }

    /// Waits for `signal`, without the lock. May return without a reason.
    package func wait() { unsafe pthread_cond_wait(condition, mutex) }

    /// As `wait`, until an instant of `RunningClock.instant` at most.
    ///
    /// - Returns: false once the instant is over.
    @discardableResult
    package func wait(until instant: timespec) -> Bool {
        var instant = instant
        return unsafe pthread_cond_timedwait(condition, mutex, &instant) != ETIMEDOUT
    }
}
