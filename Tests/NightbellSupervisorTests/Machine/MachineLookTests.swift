import Glibc
import NightbellSupervisor
import Testing

@Suite struct MachineLookTests {
    @Test func aChangeOfTheTimeZoneIsNoticed() async {
        // The time zone is the whole process's.
        await #expect(processExitsWith: .success) {
            func offset() -> Int64 { MachineLook(processorLimit: 101, memoryLimit: 101).wallClockOffset }
            setenv("TZ", "UTC0", 1)
            let before = offset()
            setenv("TZ", "EAST-3", 1)
            let moved = offset() - before
            #expect(abs(moved - 3 * 3_600_000_000_000) < 60_000_000_000)
        }
    }
}
