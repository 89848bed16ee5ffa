import LinuxSystem
import Testing

@Suite struct ClockChangeTests {
    /// The clock of the machine that runs the tests is not set.
    @Test func nothingIsReportedWhileTheClockRunsOn() throws {
        let change = try ClockChangeDescriptor()
        let hasChanged = try change.takeChange()
        #expect(!hasChanged)
        #expect(Poll.wait(change.rawValue, for: .readable, timeoutMilliseconds: 0).isEmpty)
    }

    /// The kernel refuses both flags together on other clocks, and knows them on this one.
    @Test func theKernelWatchesTheClock() throws {
        let change = try ClockChangeDescriptor()
        let info = try SmallFile.readText("/proc/self/fdinfo/\(change.rawValue)")
        // CLOCK_REALTIME, TFD_TIMER_ABSTIME and TFD_TIMER_CANCEL_ON_SET.
        #expect(info.contains("clockid: 0") && info.contains("settime flags: 03"), "\(info)")
    }
}
