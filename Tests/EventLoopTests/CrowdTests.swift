import EventLoop
import Testing

/// For how long those who come together are waited for.
@Suite struct CrowdTests {
    private static let millisecond: Int64 = 1_000_000
    private let start = 7 * Self.millisecond
    private var crowd = Crowd()

    @Test mutating func nobodyWaitsForACompanionOfALoneOne() {
        crowd.join(known: 1, at: start)
        // It is only looked whether somebody is there already.
        #expect(crowd.wait(at: start) == 0)
        #expect(crowd.wait(at: start + 1) == nil)
    }

    @Test mutating func withoutAnybodyThereIsNothingToWaitFor() {
        #expect(crowd.wait(at: start) == nil)
        crowd.join(known: 100, at: start)
        crowd.disperse()
        #expect(crowd.wait(at: start) == nil)
    }

    @Test(arguments: [(1_999_999, 1), (2_000_000, 0)] as [(Int64, CInt)])
    mutating func whoFollowsSoonIsACrowd(distance: Int64, wait: CInt) {
        crowd.join(known: 1, at: start)
        crowd.disperse()
        crowd.join(known: 1, at: start + distance)
        #expect(crowd.wait(at: start + distance) == wait)
    }

    @Test(arguments: [(7, 0), (8, 1), (400, 3), (1_000, 6)] as [(Int, CInt)])
    mutating func theMoreThereAreTheLongerThePauseThatEndsIt(known: Int, wait: CInt) {
        crowd.join(known: known, at: start)
        #expect(crowd.wait(at: start) == wait)
    }

    /// Something else happens during the wait.
    @Test mutating func aWaitThatWasInterruptedGoesOnForTheRest() {
        crowd.join(known: 400, at: start)
        #expect(crowd.wait(at: start + 2 * Self.millisecond) == 1)
        #expect(crowd.wait(at: start + 4 * Self.millisecond) == nil)
    }

    /// In microseconds from one to the next, and milliseconds until the turn.
    @Test(arguments: [(1_000, 2), (100, 2), (60, 6), (10, 50), (1, 50)] as [(Int64, Int64)])
    mutating func aTurnIsPutOffForAsLongAsItTakesAtMost(distance: Int64, limit: Int64) {
        var now = start
        var known = 0
        crowd.join(known: 8, at: now)
        repeat {
            now += distance * 1_000
            known += 1
            crowd.join(known: max(8, known), at: now)
        } while crowd.wait(at: now) != nil
        #expect(now - start <= limit * Self.millisecond + distance * 1_000)
        #expect(now - start > limit * Self.millisecond / 2)
    }
}
