import NightbellCore
import Testing

@Suite("Habits")
struct HabitTests {
    private let day = Duration.seconds(86_400)
    private let start = Instant(nanoseconds: 0)
    /// 20 days after the beginning of 1970, a Wednesday.
    private let clock = WallClock(offset: .seconds(20 * 86_400))

    /// A scheduler that has seen one client opened at this second of each day.
    private func scheduler(openedAt second: Int, days: Int) -> FetchScheduler {
        var scheduler = FetchScheduler(Settings.Fetch())
        scheduler.change(clock, at: start)
        scheduler.setInterval(.minimum, at: 0, isWaiting: true, at: start)
        for number in 0..<days {
            let opening = start + day * number + .seconds(second)
            scheduler.noteOpening(of: 0, at: opening)
            scheduler.noteLeaving(of: 0, at: opening + .seconds(60))
            scheduler.setWaiting(true, at: 0, at: opening + .seconds(60))
        }
        return scheduler
    }

    /// Completes every fetch that begins before an instant; returns when the last one began.
    private func lastFetch(before end: Instant, _ scheduler: inout FetchScheduler) throws -> Instant {
        var last: Instant?
        while let deadline = scheduler.nextDeadline, deadline < end {
            _ = scheduler.popReady(at: deadline)
            scheduler.begin(0, of: 1_000, at: deadline)
            scheduler.end(0, of: 1_000, .newData, took: .seconds(1), budget: .seconds(30))
            scheduler.setWaiting(true, at: 0, at: deadline)
            last = deadline
        }
        return try #require(last)
    }

    @Test func afterThreeDaysTheFetchComesShortlyBeforeTheUsualHour() throws {
        var scheduler = scheduler(openedAt: 8 * 3_600, days: 5)
        let opening = start + day * 5 + .seconds(8 * 3_600)
        #expect(opening.since(try lastFetch(before: opening, &scheduler)) <= .seconds(1_800))
        #expect(scheduler.state(at: 0)?.habit.usualHours(on: 25, atMost: 3).contains(8) == true)
    }

    /// With a clock that is put forward the usual hour comes earlier, and as much later with one that is put
    /// back.
    @Test(arguments: [1, -1, 3]) func aChangeOfTheClockMovesTheFetchWithTheHabit(_ hours: Int) throws {
        var scheduler = scheduler(openedAt: 8 * 3_600, days: 5)
        var unmoved = scheduler
        let usual = try lastFetch(before: start + day * 5 + .seconds(8 * 3_600), &unmoved)
        scheduler.change(
            WallClock(offset: clock.offset + .seconds(hours * 3_600)),
            at: start + day * 4 + .seconds(9 * 3_600))
        let opening = start + day * 5 + .seconds((8 - hours) * 3_600)
        let fetch = try lastFetch(before: opening, &scheduler)
        #expect(opening.since(fetch) <= .seconds(1_800))
        // By the clock it is at the same time as before, to the step of a plan or two.
        let moved = usual.since(fetch) - .seconds(hours * 3_600)
        #expect(abs(moved.nanoseconds) <= 600_000_000_000, "\(moved)")
    }

    @Test func aClockThatWasInTheFutureDoesNotEndLearning() throws {
        var scheduler = FetchScheduler(Settings.Fetch())
        scheduler.setInterval(.minimum, at: 0, isWaiting: true, at: start)
        let future = WallClock(offset: clock.offset + .seconds(47_000 * 86_400))
        scheduler.change(future, at: start)
        scheduler.noteOpening(of: 0, at: start + .seconds(3 * 3_600))
        scheduler.noteLeaving(of: 0, at: start + .seconds(3 * 3_600 + 60))
        scheduler.change(clock, at: start + day)
        for number in 1...90 {
            let opening = start + day * number + .seconds(8 * 3_600)
            scheduler.noteOpening(of: 0, at: opening)
            scheduler.noteLeaving(of: 0, at: opening + .seconds(60))
        }
        let habit = try #require(scheduler.state(at: 0)?.habit)
        #expect(habit.observedDays == 89)
        #expect(habit.usualHours(on: 20 + 91, atMost: 3).first == 8)
    }

    @Test func aClockThatGoesBackADayCountsNoDayTwice() throws {
        var scheduler = scheduler(openedAt: 8 * 3_600, days: 5)
        let before = try #require(scheduler.state(at: 0)?.habit.observedDays)
        let back = WallClock(offset: clock.offset - .seconds(86_400))
        for turn in 0..<6 {
            let now = start + day * 4 + .seconds(9 * 3_600 + turn * 1_800)
            scheduler.change(turn.isMultiple(of: 2) ? back : clock, at: now)
            scheduler.noteOpening(of: 0, at: now)
        }
        #expect(scheduler.state(at: 0)?.habit.observedDays == before)
    }

    @Test func itSurvivesAsBytes() throws {
        let habit = try #require(scheduler(openedAt: 30_000, days: 6).state(at: 0)?.habit)
        #expect(Habit(bytes: habit.bytes) == habit)
        #expect(Habit(bytes: Array(habit.bytes.dropLast())) == nil)
        #expect(habit != Habit())
    }

    @Test func aClientThatDoesNotFetchHasNoState() {
        var scheduler = FetchScheduler(Settings.Fetch())
        scheduler.setInterval(.never, at: 7, isWaiting: true, at: start)
        #expect(scheduler.isEmpty && scheduler.nextDeadline == nil)
    }
}
