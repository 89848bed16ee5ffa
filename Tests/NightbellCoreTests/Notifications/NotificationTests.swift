import NightbellCore
import Testing

@Suite struct NotificationTests {
    private static let clock = NotificationClock(utc: .seconds(1_750_000_000), zone: .seconds(7_200))

    private func bench(
        _ adjust: (inout Settings) -> Void = { _ in }
    ) throws -> (Bench, ClientID) {
        var bench = Bench(adjust)
        bench.turn(.fact(.clock(Self.clock)))
        let client = try bench.register("the.client", isLaunchable: true)
        return (bench, client)
    }

    private func notification(
        _ identifier: String, _ trigger: NotificationTrigger, payload: [UInt8] = []
    ) -> LocalNotification {
        LocalNotification(identifier, NotificationContent(title: identifier, payload: payload), trigger)
    }

    private func schedule(
        _ identifier: String, _ trigger: NotificationTrigger, _ client: ClientID, _ bench: inout Bench
    ) -> Answer? {
        bench.say(.schedule(notification(identifier, trigger)), from: client)
        return bench.answer
    }

    private func posts(_ bench: Bench) -> [NotificationPost] {
        bench.core.notificationDemand(of: 1_000).posts
    }

    private func show(_ bench: inout Bench) {
        for post in posts(bench) {
            let display = NotificationEntry.Display(id: UInt32(post.number), server: "server")
            bench.turn(
                .fact(
                    .notifications(
                        of: 1_000, .shown(number: post.number, revision: post.revision, display))))
        }
    }

    private func pending(_ bench: Bench) -> [String] {
        bench.core.notificationViews(after: 0, of: nil) { _ in true }.map(\.notification.identifier)
    }

    @Test func itIsShownWhenItsTimeComesAndNotBefore() throws {
        var (bench, client) = try bench()
        #expect(
            schedule("tea", .interval(.seconds(100), repeats: false), client, &bench)
                == .scheduled(dropped: nil))
        bench.suspend(client)
        bench.pass(.seconds(100) - .nanoseconds(1))
        #expect(posts(bench).isEmpty && bench.core.state(of: client) == .suspended)
        bench.pass(.nanoseconds(1))
        #expect(posts(bench).map(\.content.title) == ["tea"])
        // It waits for a server, and its client sleeps on.
        bench.pass(.seconds(100_000))
        #expect(posts(bench).count == 1 && bench.core.state(of: client) == .suspended)
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        show(&bench)
        #expect(posts(bench).isEmpty)
    }

    @Test func inTheForegroundTheClientIsToldInstead() throws {
        var (bench, client) = try bench()
        _ = schedule("tea", .interval(.seconds(100), repeats: false), client, &bench)
        let wakes = bench.pass(.seconds(100)).wakes
        #expect(wakes.map(\.reasons) == [.notification])
        #expect(bench.core.counters[.wakesNotification] == 1)
        #expect(posts(bench).isEmpty)
        #expect(pending(bench).isEmpty)
        // A process that ends without having finished has perhaps not seen it.
        bench.turn(.ended(client, .failed))
        #expect(posts(bench).map(\.content.title) == ["tea"])
    }

    @Test func aFinishedDeliveryIsOver() throws {
        var (bench, client) = try bench()
        _ = schedule("tea", .now, client, &bench)
        bench.say(.wakeDone(wakeID: bench.lastWakeID), from: client)
        bench.turn(.ended(client, .failed))
        #expect(posts(bench).isEmpty)
    }

    @Test func aProcessThatEndsWithSuccessHasSeenIt() throws {
        var (bench, client) = try bench()
        _ = schedule("tea", .now, client, &bench)
        bench.turn(.ended(client, .succeeded))
        #expect(posts(bench).isEmpty)
    }

    @Test func aDeliveryThatIsCancelledIsNotShownAfterAll() throws {
        var (bench, client) = try bench()
        for name in ["tea", "cake"] { _ = schedule(name, .now, client, &bench) }
        bench.say(.cancelNotifications(["tea"]), from: client)
        bench.turn(.ended(client, .failed))
        #expect(posts(bench).map(\.content.title) == ["cake"])
    }

    @Test func allThatComeDueInTheForegroundTogetherAreToldOrShown() throws {
        var (bench, client) = try bench()
        for number in 1...128 {
            _ = schedule("\(number)", .interval(.seconds(100), repeats: false), client, &bench)
        }
        bench.pass(.seconds(100))
        bench.turn(.ended(client, .failed))
        #expect(Set(posts(bench).map(\.content.title)).count == 128 || pending(bench).count == 128)
    }

    @Test func oneThatIsReplacedBeforeTheServerAnswersIsClosed() throws {
        var (bench, client) = try bench()
        bench.suspend(client)
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.say(.enterForeground, from: client)
        bench.say(.enterBackground, from: client)
        _ = schedule("tea", .now, client, &bench)
        let first = try #require(posts(bench).first)
        _ = schedule("tea", .now, client, &bench)
        let second = try #require(posts(bench).first)
        for (post, id) in [(first, 5), (second, 6)] as [(NotificationPost, UInt32)] {
            let display = NotificationEntry.Display(id: id, server: "server")
            bench.turn(
                .fact(
                    .notifications(of: 1_000, .shown(number: post.number, revision: post.revision, display)))
            )
        }
        #expect(bench.core.notificationDemand(of: 1_000).closes == [5])
    }

    @Test func theSoonestAreKeptAndARepeatingOneCountsOnce() throws {
        var (bench, client) = try bench()
        for number in 1...127 {
            let answer = schedule(
                "\(number)", .interval(.seconds(1_000 + number), repeats: false), client, &bench)
            #expect(answer == .scheduled(dropped: nil))
        }
        #expect(
            schedule("often", .interval(.seconds(60), repeats: true), client, &bench)
                == .scheduled(dropped: nil))
        #expect(
            schedule("late", .interval(.seconds(5_000), repeats: false), client, &bench)
                == .scheduled(dropped: "late"))
        #expect(
            schedule("soon", .interval(.seconds(5), repeats: false), client, &bench)
                == .scheduled(dropped: "127"))
        #expect(pending(bench).count == 128)
        // Replacing one is no further one.
        #expect(schedule("soon", .now, client, &bench) == .scheduled(dropped: nil))
    }

    @Test func aUserHasALimitOverAllClients() throws {
        var (bench, client) = try bench { $0.quotas.notificationsPerUser = 2 }
        let other = try bench.register("the.other")
        _ = schedule("a", .time(.max), client, &bench)
        _ = schedule("b", .time(.max), client, &bench)
        #expect(schedule("c", .time(.max), other, &bench) == .refused(.tooManyNotifications))
        #expect(schedule("b", .time(0), client, &bench) == .scheduled(dropped: nil))
    }

    @Test func cancelledOnesDoNotComeAndShownOnesAreClosed() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        _ = schedule("a", .interval(.seconds(100), repeats: false), client, &bench)
        _ = schedule("b", .interval(.seconds(10), repeats: false), client, &bench)
        bench.suspend(client)
        bench.pass(.seconds(10))
        show(&bench)
        bench.say(.cancelNotifications(["b", "nothing"]), from: client)
        #expect(bench.core.notificationDemand(of: 1_000).closes.count == 1)
        bench.say(.cancelNotifications(nil), from: client)
        bench.suspend(client)
        bench.pass(.seconds(1_000))
        #expect(posts(bench).isEmpty && pending(bench).isEmpty)
    }

    @Test func oneThatIsShownAfterItWasCancelledIsClosed() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.suspend(client)
        bench.say(.schedule(notification("a", .now)), from: client)
        let post = try #require(posts(bench).first)
        bench.say(.cancelNotifications(["a"]), from: client)
        let display = NotificationEntry.Display(id: 9, server: "server")
        bench.turn(
            .fact(.notifications(of: 1_000, .shown(number: post.number, revision: 1, display))))
        #expect(bench.core.notificationDemand(of: 1_000).closes == [9])
        bench.turn(.fact(.notifications(of: 1_000, .closed(9))))
        #expect(bench.core.notificationDemand(of: 1_000).closes.isEmpty)
    }

    @Test func aRepeatingOneComesAgainAndMissedTimesOnce() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        _ = schedule("hourly", .interval(.seconds(3_600), repeats: true), client, &bench)
        bench.suspend(client)
        for _ in 1...3 {
            bench.pass(.seconds(3_600))
            #expect(posts(bench).count == 1)
            show(&bench)
        }
        // The machine sleeps for ten hours.
        bench.turn(.machineSlept(total: .seconds(36_000)), .timer)
        #expect(posts(bench).count == 1)
        show(&bench)
        bench.pass(.seconds(3_600) - .nanoseconds(1))
        #expect(posts(bench).isEmpty)
        bench.pass(.nanoseconds(1))
        // The same one is replaced on the screen.
        #expect(posts(bench).first?.replaces != 0)
    }

    @Test func activationWakesWithThePayload() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.say(.enterBackground, from: client)
        bench.say(.schedule(notification("a", .now, payload: [1, 2])), from: client)
        bench.suspend(client)
        show(&bench)
        let id = UInt32(
            try #require(bench.core.notificationViews(after: 0, of: nil) { _ in true }.first).number)
        let wakes = bench.turn(
            .fact(.notifications(of: 1_000, .activated(id, action: "default", token: "t")))
        ).wakes
        #expect(wakes.map(\.reasons) == [.notification])
        #expect(bench.actions.notified.map(\.content.payload) == [[1, 2]])
        #expect(bench.actions.notified.map(\.kind) == [.activated(action: "default", token: "t")])
        // It is over once the client has finished.
        bench.turn(.fact(.notifications(of: 1_000, .closed(id))))
        #expect(pending(bench).isEmpty)
    }

    @Test(arguments: [Ending.succeeded, .failed]) func aClientThatHasEndedIsLaunchedByActivation(
        _ ending: Ending
    ) throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.say(.enterBackground, from: client)
        bench.say(.schedule(notification("a", .now)), from: client)
        show(&bench)
        if ending == .succeeded {
            bench.turn(.ended(client, ending))
        } else {
            bench.command(.quit, client)
            bench.turn(.ended(client, ending))
        }
        #expect(bench.core.state(of: client) == .dormant)
        let id = UInt32(
            try #require(bench.core.notificationViews(after: 0, of: nil) { _ in true }.first).number)
        let actions = bench.turn(
            .fact(.notifications(of: 1_000, .activated(id, action: "reply", token: ""))))
        #expect(actions.contains(.launch(client)))
    }

    @Test func aClientIsForgottenAfterTheLastOfItsNotifications() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.say(.enterBackground, from: client)
        bench.say(.schedule(notification("a", .now)), from: client)
        show(&bench)
        bench.turn(.ended(client, .succeeded))
        let id = UInt32(
            try #require(bench.core.notificationViews(after: 0, of: nil) { _ in true }.first).number)
        bench.turn(.fact(.notifications(of: 1_000, .closed(id))))
        #expect(bench.core.state(of: client) == .notRunning)
    }

    @Test func aServerThatRefusesIsTriedAgain() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.suspend(client)
        bench.say(.schedule(notification("a", .now)), from: client)
        for pause in [10, 20, 40] {
            let post = try #require(posts(bench).first)
            bench.turn(
                .fact(.notifications(of: 1_000, .refused(number: post.number, revision: post.revision))))
            #expect(posts(bench).isEmpty)
            bench.pass(.seconds(pause) - .nanoseconds(1))
            #expect(posts(bench).isEmpty)
            bench.pass(.nanoseconds(1))
        }
        let post = try #require(posts(bench).first)
        bench.turn(.fact(.notifications(of: 1_000, .refused(number: post.number, revision: post.revision))))
        bench.turn(.fact(.notifications(of: 1_000, .server("another"))))
        #expect(posts(bench).count == 1)
    }

    @Test func anotherConnectionHasTheShownOnesShownInTheirPlaces() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.suspend(client)
        bench.say(.schedule(notification("a", .now)), from: client)
        show(&bench)
        // The same one reports again.
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        #expect(posts(bench).isEmpty)
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.2"))))
        let post = try #require(posts(bench).first)
        #expect(post.isRenewal && post.replaces != 0)
        show(&bench)
        #expect(posts(bench).isEmpty)
        // Another server shows none of them.
        bench.turn(.fact(.notifications(of: 1_000, .server("another", listener: ":1.2"))))
        #expect(posts(bench).isEmpty && pending(bench).isEmpty)
    }

    @Test func anotherUsersReportsMeanNothing() throws {
        var (bench, client) = try bench()
        bench.turn(.fact(.notifications(of: 1_000, .server("server", listener: ":1.1"))))
        bench.turn(.fact(.notifications(of: 1_001, .server("server", listener: ":1.1"))))
        bench.suspend(client)
        bench.say(.schedule(notification("a", .now)), from: client)
        let number = try #require(posts(bench).first).number
        let display = NotificationEntry.Display(id: 7, server: "server")
        bench.turn(.fact(.notifications(of: 1_001, .shown(number: number, revision: 1, display))))
        #expect(posts(bench).count == 1)
        show(&bench)
        let wakes = bench.turn(
            .fact(.notifications(of: 1_001, .activated(UInt32(number), action: "default", token: "")))
        ).wakes
        #expect(wakes.isEmpty)
    }
}
