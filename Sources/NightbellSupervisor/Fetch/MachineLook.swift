import Glibc
import LinuxSystem
import NightbellCore

/// The state of the machine as far as fetches depend on it, read now and then in turns that there are anyway.
package struct MachineLook {
    /// Local time is `BootClock` plus this, in nanoseconds.
    package let wallClockOffset: Int64
    /// Memory or processors are short.
    package let isShort: Bool

    /// - Parameters:
    ///   - processorLimit, memoryLimit: from which share of the last ten seconds on, in percent, processes
    ///     that had to wait make the processors or the memory short.
    ///   - directory: the kernel's files of pressure, or a test's.
    package init(processorLimit: Double, memoryLimit: Double, directory: String = "/proc/pressure") {
        wallClockOffset = Self.wallClockOffset()
        isShort =
            Self.pressure(directory + "/cpu") >= processorLimit
            || Self.pressure(directory + "/memory") >= memoryLimit
    }

    private static func wallClockOffset() -> Int64 {
        // `localtime_r` reads the time zone once only; this looks whether it has changed.
        tzset()
        var seconds = time(nil)
        var broken = unsafe tm()
        let zone = unsafe localtime_r(&seconds, &broken) == nil ? 0 : Int64(broken.tm_gmtoff)
        return realOffset() + zone * 1_000_000_000
    }

    /// Time since 1970 (UTC) is `BootClock` plus this.
    static func realOffset() -> Int64 { Int64(bitPattern: WallClock.now()) - BootClock.now() }

    /// 0 where the kernel does not tell.
    private static func pressure(_ path: String) -> Double {
        guard let text = try? SmallFile.readText(path), let start = text.firstRange(of: "avg10=") else {
            return 0
        }
        return Double(text[start.upperBound...].prefix { $0.isNumber || $0 == "." }) ?? 0
    }
}
