import NightbellSupervisor
import Testing

/// How long a turn waits for the end of a wake burst.
@Suite struct WakeBurstTests {
    private static let millisecond: Int64 = 1_000_000
    private let start = 7 * Self.millisecond
    private var burst = WakeBurst()

    @Test mutating func aLoneWakeIsNotDelayed() {
        burst.update(pending: 1, at: start)
        // The set is only checked for another event.
        #expect(burst.wait(at: start) == 0)
        #expect(burst.wait(at: start + 1) == nil)
    }

    @Test mutating func withoutAWakeThereIsNothingToWaitFor() {
        #expect(burst.wait(at: start) == nil)
        burst.update(pending: 100, at: start)
        burst.reset()
        #expect(burst.wait(at: start) == nil)
    }

    @Test(arguments: [(1_999_999, 1), (2_000_000, 0)] as [(Int64, CInt)])
    mutating func wakesInQuickSuccessionFormABurst(distance: Int64, wait: CInt) {
        burst.update(pending: 1, at: start)
        burst.reset()
        burst.update(pending: 1, at: start + distance)
        #expect(burst.wait(at: start + distance) == wait)
    }

    @Test(arguments: [(7, 0), (8, 1), (400, 3), (1_000, 6)] as [(Int, CInt)])
    mutating func moreWakesNeedALongerPauseToEndTheBurst(known: Int, wait: CInt) {
        burst.update(pending: known, at: start)
        #expect(burst.wait(at: start) == wait)
    }

    /// Another event interrupts the wait.
    @Test mutating func aWaitThatWasInterruptedGoesOnForTheRest() {
        burst.update(pending: 400, at: start)
        #expect(burst.wait(at: start + 2 * Self.millisecond) == 1)
        #expect(burst.wait(at: start + 4 * Self.millisecond) == nil)
    }

    /// Microseconds from one wake to the next, and milliseconds until the turn.
    @Test(arguments: [(1_000, 2), (100, 2), (60, 6), (10, 50), (1, 50)] as [(Int64, Int64)])
    mutating func aTurnIsDelayedForALimitedTime(distance: Int64, limit: Int64) {
        var now = start
        var known = 0
        burst.update(pending: 8, at: now)
        repeat {
            now += distance * 1_000
            known += 1
            burst.update(pending: max(8, known), at: now)
        } while burst.wait(at: now) != nil
        #expect(now - start <= limit * Self.millisecond + distance * 1_000)
        #expect(now - start > limit * Self.millisecond / 2)
    }
}
