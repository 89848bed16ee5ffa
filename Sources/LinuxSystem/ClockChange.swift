import CLinux
import Glibc

/// A descriptor that is readable once the clock of the time of day was set.
package struct ClockChangeDescriptor: ~Copyable, Sendable {
    private let descriptor: OwnedDescriptor

    package init() throws(SystemError) {
        let timer = OwnedDescriptor(
            adopting: try systemCall("timerfd_create") {
                timerfd_create(CLOCK_REALTIME, CInt(TFD_NONBLOCK | TFD_CLOEXEC))
            })
        try Self.arm(timer.rawValue)
        descriptor = timer
    }

    package var rawValue: CInt { descriptor.rawValue }

    /// Makes it unreadable again.
    ///
    /// - Returns: whether the clock was set since the last call.
    package borrowing func takeChange() throws(SystemError) -> Bool {
        var count: UInt64 = 0
        guard unsafe read(descriptor.rawValue, &count, MemoryLayout<UInt64>.size) < 0 else {
            try Self.arm(descriptor.rawValue)
            return true
        }
        switch errno {
        case ECANCELED:
            try Self.arm(descriptor.rawValue)
            return true
        case EAGAIN, EINTR: return false
        default: throw SystemError("read")
        }
    }

    /// It never fires by itself: only its cancellation is of interest.
    private static func arm(_ rawValue: CInt) throws(SystemError) {
        var specification = itimerspec()
        specification.it_value.tv_sec = time_t(Int32.max) * 4
        let flags = CInt(TFD_TIMER_ABSTIME) | CInt(TFD_TIMER_CANCEL_ON_SET)
        _ = try systemCall("timerfd_settime") {
            unsafe timerfd_settime(rawValue, flags, &specification, nil)
        }
    }
}
