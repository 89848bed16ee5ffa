import NightbellCore
import Testing

/// Times of day, clocks that are set, and daylight-saving time.
@Suite struct NotificationClockTests {
    private static let day = 86_400
    /// 2026-03-28 00:00:00 UTC.
    private static let midnight = 1_774_656_000

    /// Berlin at the end of March: an hour is skipped on the 29th at 01:00 UTC.
    private static func berlin(at time: Int, _ bench: Bench) -> NotificationClock {
        NotificationClock(
            utc: .seconds(time) - .nanoseconds(bench.now.nanoseconds), zone: .seconds(3_600),
            change: .init(at: Int64(midnight + day + 3_600) * 1_000_000_000, zone: .seconds(7_200)))
    }

    private func bench(at time: Int, _ calendar: CalendarTime, repeats: Bool = true) throws -> Bench {
        var bench = Bench()
        bench.turn(.fact(.clock(Self.berlin(at: time, bench))))
        let client = try bench.register()
        bench.suspend(client)
        let notification = LocalNotification(
            "a", NotificationContent(title: "a"), .calendar(calendar, repeats: repeats))
        bench.say(.schedule(notification), from: client)
        bench.suspend(client)
        bench.turn(.fact(.notifications(of: 1_000, .server("server"))))
        return bench
    }

    /// Lets time pass until it is to be shown.
    private func wait(_ bench: inout Bench, atMost seconds: Int = 4_000_000) -> Int? {
        let start = bench.now
        while bench.now.since(start) < .seconds(seconds) {
            guard let next = bench.core.nextDeadline else { return nil }
            bench.pass(max(.zero, next.since(bench.now)))
            guard let post = bench.core.notificationDemand(of: 1_000).posts.first else { continue }
            bench.turn(
                .fact(
                    .notifications(
                        of: 1_000,
                        .shown(number: post.number, revision: post.revision, .init(id: 1, server: "server"))))
            )
            return Int((bench.now.since(start) / .seconds(1)).rounded())
        }
        return nil
    }

    @Test func aTimeOfDayFollowsDaylightSavingTime() throws {
        // Seven in the morning: 06:00 UTC in winter, 05:00 UTC in summer.
        var bench = try bench(at: Self.midnight, CalendarTime(secondOfDay: 7 * 3_600))
        #expect(wait(&bench) == 6 * 3_600)
        #expect(wait(&bench) == 23 * 3_600)
        #expect(wait(&bench) == 24 * 3_600)
    }

    @Test func aTimeThatIsSkippedComesWhenTheHourIsOver() throws {
        // Half past two does not exist on the 29th.
        var bench = try bench(at: Self.midnight + 12 * 3_600, CalendarTime(secondOfDay: 9_000))
        #expect(wait(&bench) == 13 * 3_600)
        #expect(wait(&bench) == 23 * 3_600 + 1_800)
    }

    @Test func aTimeThatComesTwiceIsOnce() throws {
        // The end of summer time: half past two comes at 00:30 UTC, and again at 01:30 UTC.
        var bench = Bench()
        let change = NotificationClock.ZoneChange(
            at: Int64(Self.midnight + 3_600) * 1_000_000_000, zone: .seconds(3_600))
        let utc = Duration.seconds(Self.midnight) - .nanoseconds(bench.now.nanoseconds)
        bench.turn(.fact(.clock(NotificationClock(utc: utc, zone: .seconds(7_200), change: change))))
        let client = try bench.register()
        bench.suspend(client)
        bench.say(
            .schedule(
                LocalNotification(
                    "a", NotificationContent(title: "a"),
                    .calendar(CalendarTime(secondOfDay: 9_000), repeats: true))), from: client)
        bench.suspend(client)
        bench.turn(.fact(.notifications(of: 1_000, .server("server"))))
        #expect(wait(&bench) == 1_800)
        // The edge reads the new offset some time later.
        bench.pass(.seconds(2_400))
        bench.turn(.fact(.clock(NotificationClock(utc: utc, zone: .seconds(3_600)))))
        #expect(wait(&bench) == 25 * 3_600 - 2_400)
    }

    @Test(arguments: [
        (CalendarTime.Day.weekday(1), [2, 7, 7]), (.weekday(6), [0, 7, 7]),
        (.dayOfMonth(31), [3, 30, 31]), (.dayOfMonth(1), [4, 30, 31]),
    ]) func weekdaysAndDaysOfTheMonth(day: CalendarTime.Day, days: [Int]) throws {
        // 2026-03-28 is a Saturday. Noon local time is 11:00 UTC then, and 10:00 UTC from the 29th on.
        var bench = try bench(at: Self.midnight, CalendarTime(secondOfDay: 12 * 3_600, day: day))
        // The hour that is skipped is in the first interval that is longer than a day.
        var isSkipped = false
        for (index, count) in days.enumerated() {
            let waited = try #require(wait(&bench))
            let expected = count * Self.day + (index == 0 ? 11 * 3_600 : 0)
            let isShort = count > 0 && !isSkipped
            isSkipped = isSkipped || isShort
            #expect(waited == expected - (isShort ? 3_600 : 0))
        }
    }

    @Test func aClockThatIsSetForwardPastItBringsItAtOnce() throws {
        var bench = try bench(at: Self.midnight, CalendarTime(secondOfDay: 7 * 3_600), repeats: false)
        bench.turn(.fact(.clock(Self.berlin(at: Self.midnight + 10 * 3_600, bench))))
        #expect(bench.core.notificationDemand(of: 1_000).posts.count == 1)
    }

    @Test func aClockThatIsSetBackPutsItOff() throws {
        var bench = try bench(at: Self.midnight, CalendarTime(secondOfDay: 7 * 3_600), repeats: false)
        bench.turn(.fact(.clock(Self.berlin(at: Self.midnight - 10 * 3_600, bench))))
        #expect(wait(&bench) == 16 * 3_600)
    }

    @Test func aSmallStepBackRepeatsNothingAndALargeOneDoes() throws {
        var bench = try bench(at: Self.midnight, CalendarTime(secondOfDay: 7 * 3_600))
        #expect(wait(&bench) == 6 * 3_600)
        bench.turn(.fact(.clock(Self.berlin(at: Self.midnight + 5 * 3_600, bench))))
        #expect(wait(&bench) == 24 * 3_600)
        bench.turn(.fact(.clock(Self.berlin(at: Self.midnight, bench))))
        #expect(wait(&bench) == 6 * 3_600)
    }

    @Test func anAbsoluteTimeFollowsTheClock() throws {
        var bench = Bench()
        bench.turn(.fact(.clock(Self.berlin(at: Self.midnight, bench))))
        let client = try bench.register()
        bench.suspend(client)
        let time = Int64(Self.midnight + 1_000) * 1_000_000_000
        bench.say(
            .schedule(LocalNotification("a", NotificationContent(title: "a"), .time(time))), from: client)
        bench.turn(.fact(.clock(Self.berlin(at: Self.midnight + 900, bench))))
        bench.pass(.seconds(99))
        #expect(bench.core.notificationDemand(of: 1_000).posts.isEmpty)
        bench.pass(.seconds(1))
        #expect(bench.core.notificationDemand(of: 1_000).posts.count == 1)
    }

    @Test func aTimeThatComesTwiceIsTheSecondOneOnceTheFirstIsOver() {
        let before = NotificationClock(
            utc: .zero, zone: .seconds(7_200), change: .init(at: 36_000_000_000_000, zone: .seconds(3_600)))
        // Half an hour after the end of daylight-saving time it is half past eleven once more.
        let now = Instant(nanoseconds: 37_800_000_000_000)
        let settled = before.settled(at: now)
        #expect(settled.change == nil && settled.local(at: now) == before.local(at: now))
        let later = LocalTime(nanoseconds: settled.local(at: now).nanoseconds + 600_000_000_000)
        #expect(before.elapsed(at: later) < now)
        #expect(settled.elapsed(at: later) == now + .seconds(600))
        #expect(before.settled(at: Instant(nanoseconds: 35_999_999_999_999)) == before)
    }
}
