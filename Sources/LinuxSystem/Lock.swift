import Glibc

/// A `pthread_mutex_t` in memory of its own.
///
/// Not `Synchronization.Mutex`: the thread sanitizer knows the former and reports races on the latter that do not
/// exist.
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
