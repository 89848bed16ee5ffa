import NightbellCore
import Testing

@Suite struct BadgeTests {
    private static let user: UserID = 1_000

    private func badges(_ bench: Bench) -> [UInt32] {
        bench.core.notificationDemand(of: Self.user).badges.map(\.count)
    }

    @Test func itStaysUntilAnotherOneIsSet() throws {
        var bench = Bench()
        // The session of a client with audio is observed for that.
        let client = try bench.register("the.client", modes: [.voip])
        #expect(bench.core.sessionUsers.isEmpty)
        bench.say(.setBadge(3), from: client)
        #expect(bench.answer == .done)
        #expect(badges(bench) == [3] && bench.core.sessionUsers == [Self.user])
        bench.suspend(client)
        bench.turn(.ended(client, .failed))
        #expect(badges(bench) == [3])
        let again = try bench.register("the.client", modes: [.voip])
        bench.say(.setBadge(0), from: again)
        #expect(badges(bench).isEmpty && bench.core.sessionUsers.isEmpty)
    }

    @Test func aNotificationSetsItOnceItIsShown() throws {
        var bench = Bench()
        let client = try bench.register("the.client", isLaunchable: true)
        bench.say(.setBadge(3), from: client)
        for (name, badge) in [("two", 2), ("silent", nil)] as [(String, UInt32?)] {
            let content = NotificationContent(title: name, badge: badge)
            let after = NotificationTrigger.interval(.seconds(100), repeats: false)
            bench.say(.schedule(LocalNotification(name, content, after)), from: client)
        }
        bench.suspend(client)
        #expect(badges(bench) == [3])
        bench.pass(.seconds(100))
        #expect(badges(bench) == [2])
    }

    @Test func oneDemandContainsAnyNumberOfThemUpToALimit() throws {
        var bench = Bench()
        for number in 1...70 {
            let client = try bench.register("client.number\(number)", isLaunchable: true)
            bench.say(.setBadge(UInt32(number)), from: client)
        }
        #expect(badges(bench) == Array(1...64))
    }
}
