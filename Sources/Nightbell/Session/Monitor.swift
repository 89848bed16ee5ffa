import Glibc
import LinuxSystem

/// A value that several threads share, under a lock with a condition: a thread either changes the value and
/// continues, or waits until another thread has changed it.
// @unchecked: `value` is only touched between lock and unlock.
@safe
package final class Monitor<Value>: @unchecked Sendable {
    package enum Turn<Result> {
        case done(Result)
        /// Look again after a call of `changed`, or after this many nanoseconds.
        case wait(Int64)
    }

    private let lock = ConditionLock()
    /// By an address: a stored property would be checked for exclusive access a second time.
    private let value: UnsafeMutablePointer<Value>

    package init(_ value: Value) {
        unsafe self.value = .allocate(capacity: 1)
        unsafe self.value.initialize(to: value)
    }

    deinit {
        unsafe value.deinitialize(count: 1)
        unsafe value.deallocate()
    }

    /// The lock is never held by the calling thread already: `body` calls nothing outside.
    package func withLock<Result, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Result
    ) throws(Failure) -> Result {
        lock.lock()
        defer { lock.unlock() }
        return try unsafe body(&value.pointee)
    }

    /// Calls `body` again after each change until it is done.
    package func turn<Result, Failure: Error>(
        _ body: (inout Value) throws(Failure) -> Turn<Result>
    ) throws(Failure) -> Result {
        lock.lock()
        defer { lock.unlock() }
        while true {
            switch try unsafe body(&value.pointee) {
            case .done(let result): return result
            case .wait(let nanoseconds): lock.wait(until: RunningClock.instant(after: nanoseconds))
            }
        }
    }

    /// Wakes all waiting threads so that they look again.
    package func changed() { lock.signal() }
}

/// The remaining time that a caller waits. Time in which the whole process was suspended counts for at most
/// one slice, so that an answer that already waits in the socket is found instead of timing out.
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
