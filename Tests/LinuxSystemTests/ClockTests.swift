import LinuxSystem
import Testing

@Suite("Clocks")
struct ClockTests {
    @Test("Running time and the time asleep add up to the time since the boot")
    func pair() {
        var clocks = ClockPair()
        var slept: Set<Int64> = []
        for _ in 0..<10_000 {
            let running = RunningClock.now()
            let now = clocks.read()
            #expect(now >= running && now <= RunningClock.now())
            // Readings are not simultaneous, and this process may have to wait between them.
            let difference = BootClock.now() - RunningClock.now()
            #expect(abs(clocks.nanosecondsSlept - difference) < 1_000_000_000)
            slept.insert(clocks.nanosecondsSlept)
        }
        // Its value does not follow the jitter of the readings.
        #expect(slept.count < 20)
    }
}
