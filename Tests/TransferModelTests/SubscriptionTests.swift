import Testing
import TransferModel

/// When issues are begun, by a clock that the test sets.
@Suite("Subscriptions")
struct SubscriptionTests {
    private static let day: Int64 = 86_400
    private static let start: Int64 = 1_790_000_000

    private func subscription(_ interval: Int64 = day) throws -> Subscription {
        Subscription(try #require(TransferURL("https://example.org/issue")), interval: interval)
    }

    /// A month of a machine that looks at these moments.
    private func issues(_ plan: inout SubscriptionPlan, at moments: [Int64]) -> [Int64] {
        moments.filter { now in
            guard plan.due(at: now) == ["a"] else { return false }
            plan.begin("a", at: now)
            return true
        }
    }

    @Test("The first issue is due at once, and each one an interval after the last")
    func daily() throws {
        var plan = SubscriptionPlan()
        #expect(plan.nextDue == nil && plan.due(at: Self.start).isEmpty)
        plan.replace(with: ["a": try subscription()])
        let hours = (0..<(24 * 30)).map { Self.start + $0 * 3_600 }
        #expect(issues(&plan, at: hours) == (0..<30).map { Self.start + $0 * Self.day })
        #expect(plan.nextDue == Self.start + 30 * Self.day)
    }

    @Test("A machine that is off at night has an issue each day, and makes none good")
    func nights() throws {
        var plan = SubscriptionPlan()
        plan.replace(with: ["a": try subscription()])
        // On from 8 to 18 o'clock, and off on weekends.
        let days = (0..<28 as Range<Int64>).filter { $0 % 7 < 5 }
        let moments = days.flatMap { day in
            (8..<18 as Range<Int64>).map { hour in Self.start + day * Self.day + hour * 3_600 }
        }
        #expect(issues(&plan, at: moments).count == 20)
    }

    @Test("A clock that is set back delays an issue by an interval at most; one that is set on brings one")
    func clock() throws {
        var plan = SubscriptionPlan(begun: ["a": Self.start])
        plan.replace(with: ["a": try subscription()])
        let back = Self.start - 100 * Self.day
        #expect(plan.follow(back) == ["a"] && plan.follow(back).isEmpty)
        #expect(plan.due(at: back).isEmpty)
        #expect(plan.nextDue == back + Self.day)
        #expect(plan.due(at: back + Self.day - 1).isEmpty)
        #expect(plan.due(at: back + Self.day) == ["a"])
        #expect(plan.due(at: Self.start + 1_000 * Self.day) == ["a"])
    }

    @Test("A subscription that is taken up again begins nothing early, and another interval counts at once")
    func changes() throws {
        var plan = SubscriptionPlan()
        plan.replace(with: ["a": try subscription(), "b": try subscription(3_600)])
        #expect(plan.due(at: Self.start) == ["a", "b"])
        plan.begin("a", at: Self.start)
        plan.begin("b", at: Self.start)
        plan.replace(with: [:])
        #expect(plan.nextDue == nil)
        plan.replace(with: ["a": try subscription()])
        #expect(plan.due(at: Self.start + 3_600).isEmpty)
        plan.replace(with: ["a": try subscription(600)])
        #expect(plan.due(at: Self.start + 3_600) == ["a"])
    }

    @Test("An issue that cannot be begun is due again after a pause, also if the clock is set back")
    func postponed() throws {
        var plan = SubscriptionPlan()
        plan.replace(with: ["a": try subscription()])
        plan.postpone("a", at: Self.start)
        let pause = SubscriptionPlan.firstRetryPause
        #expect(plan.nextDue == Self.start + pause && plan.due(at: Self.start).isEmpty)
        let back = Self.start - 100 * Self.day
        #expect(plan.follow(back).isEmpty)
        #expect(plan.due(at: back + pause) == ["a"])
        plan.begin("a", at: back + pause)
        #expect(plan.nextDue == back + pause + Self.day)
    }

    @Test(
        "The pauses of an issue that cannot be begun double up to an hour, and are short again once it was begun"
    )
    func backsOff() throws {
        var plan = SubscriptionPlan()
        plan.replace(with: ["a": try subscription()])
        func pauses(from start: Int64) -> [Int64] {
            var now = start
            return (0..<6).map { _ in
                plan.postpone("a", at: now)
                let due = plan.nextDue ?? now
                defer { now = due }
                return due - now
            }
        }
        #expect(pauses(from: Self.start) == [300, 600, 1_200, 2_400, 3_600, 3_600])
        let next = Self.start + Self.day
        plan.begin("a", at: next)
        #expect(pauses(from: next + Self.day).prefix(2) == [300, 600])
    }
}
