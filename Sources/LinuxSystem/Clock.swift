package import CLinux
import Glibc

/// A clock that counts while the machine sleeps: our timers are about the outside world.
package enum BootClock {
    /// Nanoseconds since the machine booted.
    package static func now() -> Int64 {
        var time = timespec()
        let result = unsafe clock_gettime(CLOCK_BOOTTIME, &time)
        precondition(result == 0, "CLOCK_BOOTTIME exists on every Linux we run on")
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// Identifies the time from one start of the machine to the next.
    package static func bootID() throws(SystemError) -> String {
        String(try SmallFile.readText("/proc/sys/kernel/random/boot_id").prefix { $0 != "\n" })
    }
}

/// The processor time of the calling thread: neither that of others nor a sleep of the machine is part of it.
package enum ThreadClock {
    /// Nanoseconds since the thread began.
    package static func now() -> Int64 {
        var time = timespec()
        let result = unsafe clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        precondition(result == 0, "CLOCK_THREAD_CPUTIME_ID exists on every Linux we run on")
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}

/// A clock that stops while the machine sleeps: budgets of processes use it.
package enum RunningClock {
    /// The instant this many nanoseconds from now, for calls that wait until then. At most some eleven days.
    package static func instant(after nanoseconds: Int64) -> timespec {
        let instant = now() + min(nanoseconds, 1_000_000_000_000_000)
        return timespec(tv_sec: Int(instant / 1_000_000_000), tv_nsec: Int(instant % 1_000_000_000))
    }

    /// Nanoseconds since some moment, the same for all processes.
    package static func now() -> Int64 {
        var time = timespec()
        let result = unsafe clock_gettime(CLOCK_MONOTONIC, &time)
        precondition(result == 0, "CLOCK_MONOTONIC exists on every Linux we run on")
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}

/// Reads both clocks and tracks their difference.
package struct ClockPair: Sendable {
    /// Nanoseconds by which `BootClock` was ahead of `RunningClock` at the last reading: the time that the
    /// machine slept. It changes only when the machine sleeps.
    package private(set) var nanosecondsSlept: Int64 = 0

    package init() {}

    /// - Returns: running time, in nanoseconds.
    package mutating func read() -> Int64 {
        let before = RunningClock.now()
        let elapsed = BootClock.now()
        let after = RunningClock.now()
        // The three readings are not simultaneous: the old value is kept while it is within their bounds.
        if !(elapsed - after...elapsed - before).contains(nanosecondsSlept) {
            nanosecondsSlept = elapsed - after
        }
        return after
    }
}

/// A timer as a descriptor: readable once its instant has come.
package struct TimerDescriptor: ~Copyable, Sendable {
    private let descriptor: OwnedDescriptor

    /// - Parameter wakesMachine: whether the machine wakes from its sleep for it. `EPERM`: needs
    ///   `CAP_WAKE_ALARM`.
    package init(wakesMachine: Bool = false) throws(SystemError) {
        let clock = wakesMachine ? CLOCK_BOOTTIME_ALARM : CLOCK_BOOTTIME
        descriptor = OwnedDescriptor(
            adopting: try systemCall("timerfd_create") {
                timerfd_create(clock, CInt(TFD_NONBLOCK | TFD_CLOEXEC))
            })
    }

    /// Whether the machine has a clock that can wake it. Without one the kernel accepts alarms, and sleeps
    /// on.
    package static var canWakeMachine: Bool {
        (0..<8).contains { unsafe access("/sys/class/rtc/rtc\($0)/wakealarm", F_OK) == 0 }
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// Sets the instant of `BootClock` to fire at; a past instant fires at once, nil disarms the timer.
    package borrowing func set(absoluteNanoseconds: Int64?) throws(SystemError) {
        var specification = itimerspec()
        if let absoluteNanoseconds {
            // All zero would mean "never".
            let instant = max(1, absoluteNanoseconds)
            specification.it_value.tv_sec = time_t(instant / 1_000_000_000)
            specification.it_value.tv_nsec = Int(instant % 1_000_000_000)
        }
        let rawValue = descriptor.rawValue
        let absolute = CInt(TFD_TIMER_ABSTIME)
        _ = try systemCall("timerfd_settime") {
            unsafe timerfd_settime(rawValue, absolute, &specification, nil)
        }
    }

    /// Makes it unreadable again after it has fired.
    package borrowing func clear() throws(SystemError) {
        try drainCounter(descriptor.rawValue)
    }
}

/// A flag as a descriptor: readable from `signal` to `clear`.
package struct EventDescriptor: ~Copyable, Sendable {
    private let descriptor: OwnedDescriptor

    package init() throws(SystemError) {
        descriptor = OwnedDescriptor(
            adopting: try systemCall("eventfd") {
                eventfd(0, CInt(EFD_NONBLOCK | EFD_CLOEXEC))
            })
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// May be called from any thread. A full counter (`EAGAIN`) is readable already, which suffices.
    package borrowing func signal() throws(SystemError) {
        let rawValue = descriptor.rawValue
        _ = try nonblockingSystemCall("eventfd_write") { eventfd_write(rawValue, 1) }
    }

    /// - Returns: whether it was signalled.
    @discardableResult
    package borrowing func clear() throws(SystemError) -> Bool {
        try drainCounter(descriptor.rawValue)
    }
}

/// Reads the eight bytes of a timerfd or an eventfd.
///
/// - Returns: whether there was something to read.
@discardableResult
private func drainCounter(_ descriptor: CInt) throws(SystemError) -> Bool {
    var count: UInt64 = 0
    return try nonblockingSystemCall("read") {
        unsafe read(descriptor, &count, MemoryLayout<UInt64>.size)
    } != nil
}
