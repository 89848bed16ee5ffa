import NightbellCore
import Testing

/// Notifications that are to be shown no more, and those that a later one has replaced.
@Suite struct NotificationCloseTests {
    private static let user: UserID = 1_000

    private var bench: Bench
    private let client: ClientID

    init() throws {
        bench = Bench()
        client = try bench.register("the.client", isLaunchable: true)
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
    }

    private mutating func serve(_ server: String?) {
        bench.turn(.fact(.notifications(of: Self.user, .server(server, listener: ":1.1"))))
    }

    private mutating func schedule(
        _ identifier: String, _ title: String, _ trigger: NotificationTrigger = .now
    ) {
        bench.say(
            .schedule(LocalNotification(identifier, NotificationContent(title: title), trigger)), from: client
        )
    }

    private mutating func report(_ post: NotificationPost, as id: UInt32) {
        let display = NotificationEntry.Display(id: id, server: "server")
        bench.turn(
            .fact(
                .notifications(
                    of: Self.user, .shown(number: post.number, revision: post.revision, display))))
    }

    private var demand: NotificationDemand { bench.core.notificationDemand(of: Self.user) }

    @Test mutating func oneThatIsCancelledWithoutItsServerIsClosedOnceThatIsBack() throws {
        serve("server")
        schedule("tea", "Tea")
        report(try #require(demand.posts.first), as: 5)
        serve(nil)
        bench.say(.cancelNotifications(nil), from: client)
        #expect(demand.closes.isEmpty && bench.core.needsNotifications(of: Self.user))
        serve("server")
        #expect(demand.closes == [5] && demand.server == "server")
        // Another server shows nothing of it.
        serve("another")
        #expect(demand.closes.isEmpty && !bench.core.needsNotifications(of: Self.user))
    }

    @Test mutating func oneThatAServerWasGivenIsWithdrawn() throws {
        serve("server")
        schedule("tea", "Tea")
        let post = try #require(demand.posts.first)
        bench.say(.cancelNotifications(["tea"]), from: client)
        #expect(demand.posts.isEmpty && demand.withdrawals == [post.number])
        bench.turn(.fact(.notifications(of: Self.user, .withdrawn(post.number))))
        #expect(demand.withdrawals.isEmpty && !bench.core.needsNotifications(of: Self.user))
        // Without a server there is none that has it.
        schedule("cake", "Cake")
        bench.say(.cancelNotifications(["cake"]), from: client)
        #expect(demand.withdrawals.count == 1)
        serve(nil)
        #expect(demand.withdrawals.isEmpty)
        schedule("pie", "Pie")
        bench.say(.cancelNotifications(["pie"]), from: client)
        #expect(!bench.core.needsNotifications(of: Self.user))
    }

    /// The supervisor may die before a slow server has said where it shows the one that it was given.
    @Test mutating func oneThatAServerWasGivenIsWithdrawnWhenItsClientIsTold() throws {
        serve("server")
        schedule("tea", "Tea", .interval(.seconds(100), repeats: true))
        bench.pass(.seconds(100))
        let post = try #require(demand.posts.first)
        bench.say(.enterForeground, from: client)
        bench.pass(.seconds(100))
        #expect(demand.posts.isEmpty && demand.withdrawals == [post.number])
        // The next one takes its place.
        bench.say(.enterBackground, from: client)
        bench.say(.backgroundEntered, from: client)
        bench.pass(.seconds(100))
        #expect(demand.posts.map(\.number) == [post.number] && demand.withdrawals.isEmpty)
        bench.say(.cancelNotifications(nil), from: client)
        #expect(demand.posts.isEmpty && demand.withdrawals == [post.number])
    }

    @Test mutating func onesThatAreLeftToBeClosedAreLimited() throws {
        serve("server")
        for id in 1...300 as ClosedRange<UInt32> {
            schedule("tea", "Tea")
            report(try #require(demand.posts.first), as: id)
            bench.say(.cancelNotifications(nil), from: client)
        }
        #expect(demand.closes == Array(45...300))
    }

    @Test mutating func aDeliveryThatALaterOneHasReplacedIsNotShown() throws {
        bench.say(.enterForeground, from: client)
        schedule("tea", "first")
        #expect(bench.actions.actions.wakes.map(\.reasons) == [.notification])
        bench.say(.enterBackground, from: client)
        schedule("tea", "second")
        #expect(demand.posts.map(\.content.title) == ["second"])
        bench.turn(.ended(client, .failed))
        #expect(demand.posts.map(\.content.title) == ["second"])
    }

    @Test mutating func aDeliveryIsShownAlthoughALaterOneIsScheduled() throws {
        bench.say(.enterForeground, from: client)
        schedule("tea", "first")
        schedule("tea", "second", .interval(.seconds(100), repeats: false))
        bench.turn(.ended(client, .failed))
        #expect(demand.posts.map(\.content.title) == ["first"])
        bench.pass(.seconds(100))
        #expect(demand.posts.map(\.content.title) == ["second"])
    }

    @Test mutating func eachShowingHasItsOwnRevision() throws {
        serve("server")
        schedule("tea", "Tea", .interval(.seconds(100), repeats: true))
        bench.suspend(client)
        var revisions: Set<UInt64> = []
        for id in 1...3 as ClosedRange<UInt32> {
            bench.pass(.seconds(100))
            let post = try #require(demand.posts.first)
            #expect(revisions.insert(post.revision).inserted)
            report(post, as: id)
            // A person closes it: nothing of it is left to be replaced.
            bench.turn(.fact(.notifications(of: Self.user, .closed(id))))
        }
    }
}
