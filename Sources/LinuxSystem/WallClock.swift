import CLinux
import Glibc

/// The time of day, for display only. No decision depends on it.
package enum WallClock {
    /// Nanoseconds since 1970.
    package static func now() -> UInt64 {
        var time = timespec()
        let result = unsafe clock_gettime(CLOCK_REALTIME, &time)
        precondition(result == 0, "CLOCK_REALTIME exists on every Linux")
        return UInt64(time.tv_sec) * 1_000_000_000 + UInt64(time.tv_nsec)
    }
}
