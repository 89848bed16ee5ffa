import MachineMonitor
import Testing

@Suite("The limits of reports and of time") struct LimitTests {
    @Test("A burst is allowed at once, and then one in each interval")
    func pace() {
        var pace = Pace(0, burst: 3, milliseconds: 100)
        for _ in 0..<3 {
            #expect(pace.instant(after: 0) == nil)
            pace.spend()
        }
        #expect(pace.instant(after: 0) == 100_000_000)
        #expect(pace.instant(after: 99_999_999) == 100_000_000)
        #expect(pace.instant(after: 100_000_000) == nil)
        pace.spend()
        #expect(pace.instant(after: 150_000_000) == 200_000_000)
    }

    @Test("A pause fills the burst and no more")
    func longPause() {
        var pace = Pace(0, burst: 3, milliseconds: 100)
        for _ in 0..<3 { pace.spend() }
        for _ in 0..<3 {
            #expect(pace.instant(after: 10_000_000_000) == nil)
            pace.spend()
        }
        #expect(pace.instant(after: 10_000_000_000) == 10_100_000_000)
    }

    @Test("Time within the share causes no pause, in each window anew")
    func share() {
        var share = TimeShare()
        for window in 1...3 {
            let start = Int64(window) * TimeShare.window
            #expect(share.spend(TimeShare.most / 2, at: start) == nil)
            #expect(share.spend(TimeShare.most / 2 - 1, at: start + 1) == nil)
        }
    }

    @Test("An excess is taken from the following windows, but a pause has an end")
    func excess() {
        var share = TimeShare()
        let start = TimeShare.window * 5
        #expect(share.spend(TimeShare.most, at: start) == start + TimeShare.window)
        #expect(share.spend(TimeShare.most * 2, at: start + 1) == start + 3 * TimeShare.window)
        #expect(share.spend(.max / 4, at: start + 2) == start + 20 * TimeShare.window)
        #expect(share.spend(1, at: start + 20 * TimeShare.window) == nil)
    }

    @Test("The age of a series of pauses is known, until some windows pass without one")
    func series() {
        var share = TimeShare()
        let start = TimeShare.window * 5
        for window in 0..<10 {
            #expect(share.spend(TimeShare.most, at: start + Int64(window) * TimeShare.window) != nil)
            #expect(share.excessSince == start)
        }
        // The last pause has ended late.
        let late = start + 50 * TimeShare.window
        share.resume(at: late)
        #expect(share.spend(1, at: late) == nil)
        #expect(share.spend(TimeShare.most, at: late + TimeShare.window) != nil)
        #expect(share.excessSince == start)
        let quiet = late + 2 * TimeShare.window + TimeShare.longestGap
        #expect(share.spend(TimeShare.most, at: quiet) != nil)
        #expect(share.excessSince == quiet)
    }
}
