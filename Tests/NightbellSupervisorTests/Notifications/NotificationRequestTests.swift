import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Synchronization
import Testing

/// Notifications of clients that speak the bare protocol, and a session's monitor that the test speaks for.
@Suite(.timeLimit(.minutes(40))) struct NotificationRequestTests {
    private static let name = "org.example.tea"

    private func notification(
        _ identifier: String, _ change: (inout WireLocalNotification) -> Void = { _ in }
    ) -> WireLocalNotification {
        var notification = WireLocalNotification()
        notification.identifier = identifier
        notification.content.title = "Title of \(identifier)"
        change(&notification)
        return notification
    }

    @discardableResult
    private func schedule(
        _ client: WireClient, _ identifier: String, _ change: (inout WireLocalNotification) -> Void = { _ in }
    ) throws -> String {
        let message = WireScheduleNotification.with { $0.notification = notification(identifier, change) }
        switch try client.ask(.scheduleNotification(message)) {
        case .notificationScheduled(let answer): return answer.dropped
        case .error(let error): throw error
        case let other: throw TestFailure("\(other)")
        }
    }

    private func list(_ client: WireClient) throws -> [WireNotificationInfo] {
        var all: [WireNotificationInfo] = []
        while true {
            let message = WireListNotifications.with { $0.after = all.last?.number ?? 0 }
            guard case .notificationList(let list) = try client.ask(.listNotifications(message)) else {
                throw TestFailure("no list")
            }
            all += list.notifications
            guard list.hasMore_p else { return all }
        }
    }

    @Test func valuesOutOfTheirRangeAreRefusedWithAReason() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, Self.name)
        let mistakes: [(String, (inout WireLocalNotification) -> Void)] = [
            ("identifier", { $0.identifier = "" }),
            ("identifier", { $0.identifier = String(repeating: "x", count: 65) }),
            ("title", { $0.content.title = "" }),
            ("title", { $0.content.title = String(repeating: "x", count: 257) }),
            ("NUL", { $0.content.title = "a\0b" }),
            ("body", { $0.content.body = String(repeating: "x", count: 1_025) }),
            ("payload", { $0.content.payload = Data(count: 2_049) }),
            ("sound", { $0.content.sound = String(repeating: "x", count: 65) }),
            (
                "actions",
                {
                    $0.content.actions = (0..<5).map { number in
                        .with {
                            $0.key = "\(number)"; $0.label = "x"
                        }
                    }
                }
            ),
            (
                "actions",
                {
                    $0.content.actions = [
                        .with {
                            $0.key = "default"; $0.label = "x"
                        }
                    ]
                }
            ),
            ("label", { $0.content.actions = [.with { $0.key = "a" }] }),
            ("urgency", { $0.content.urgency = .UNRECOGNIZED(9) }),
            ("repeat", { $0.repeats = true }),
            (
                "repeats",
                {
                    $0.atUnixMs = 1; $0.repeats = true
                }
            ),
            ("range", { $0.atUnixMs = .max }),
            (
                "interval",
                {
                    $0.afterMs = 59_999; $0.repeats = true
                }
            ),
            ("interval", { $0.afterMs = 367 * 86_400_000 }),
            ("calendar", { $0.calendar.secondOfDay = 86_400 }),
            ("calendar", { $0.calendar.weekday = 8 }),
            ("calendar", { $0.calendar.dayOfMonth = 0 }),
        ]
        for (index, (words, mistake)) in mistakes.enumerated() {
            let error = #expect(throws: WireError.self, "mistake \(index)") {
                try schedule(client, "a", mistake)
            }
            #expect(
                error?.code == .invalidArgument && error?.message.contains(words) == true,
                "\(index): \(error?.message ?? "")")
        }
        let many = WireCancelNotifications.with { $0.identifiers = (0...128).map { "\($0)" } }
        guard case .error(let error) = try client.ask(.cancelNotifications(many)) else {
            throw TestFailure("too many identifiers are accepted")
        }
        #expect(error.code == .invalidArgument)
        #expect(try list(client).isEmpty)
        // The longest that is permitted.
        try schedule(client, String(repeating: "i", count: 64)) {
            $0.content.title = String(repeating: "t", count: 256)
            $0.content.body = String(repeating: "b", count: 1_024)
            $0.content.payload = Data(count: 2_048)
            $0.afterMs = 366 * 86_400_000
        }
        #expect(try list(client).map(\.notification.content.payload.count) == [2_048])
        try supervisor.stop()
    }

    @Test func aLongListComesInParts() throws {
        let supervisor = try TestSupervisor()
        let client = try WireClient(supervisor, Self.name)
        for number in 0..<128 {
            let dropped = try schedule(client, "\(number)") {
                $0.content.body = String(repeating: "b", count: 1_024)
                $0.content.payload = Data(count: 2_048)
                $0.afterMs = UInt64(3_600_000 + number)
            }
            #expect(dropped.isEmpty)
        }
        #expect(try schedule(client, "latest") { $0.afterMs = 7_200_000 } == "latest")
        #expect(try schedule(client, "soonest") { $0.afterMs = 1_000_000 } == "127")
        let all = try list(client)
        #expect(all.map(\.notification.identifier) == (0..<127).map { "\($0)" } + ["soonest"])
        #expect(all.allSatisfy { $0.state == .pending && $0.hasDueInMs })
        #expect(try WireClient(supervisor).show(Self.name).pendingNotifications == 128)
        // Others do not see the payload.
        let message = WireShowNotifications.with { $0.identifier = Self.name }
        guard case .notificationList(let shown) = try WireClient(supervisor).ask(.showNotifications(message))
        else { throw TestFailure("no list") }
        #expect(shown.hasMore_p && shown.notifications.allSatisfy { $0.notification.content.payload.isEmpty })
        guard case .done = try client.ask(.cancelNotifications(.with { $0.all = true })) else {
            throw TestFailure("not cancelled")
        }
        #expect(try list(client).isEmpty)
        try supervisor.stop()
    }

    @Test func aNotificationIsAskedOfTheMonitorUntilItIsShown() throws {
        let monitor = try FakeMonitor()
        let supervisor = try TestSupervisor { $0.monitor = monitor.program }
        let client = try WireClient(supervisor, Self.name)
        try client.enterBackground()
        try schedule(client, "tea") {
            $0.content.payload = Data([7])
            $0.content.badge = 4
        }
        try monitor.start()
        let post = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        #expect(
            post.title == "Title of tea" && post.client == Self.name && post.replaces == 0)
        #expect(try list(client).map(\.state) == [.waiting])
        // The monitor ends: the next one is asked the same.
        monitor.end()
        try monitor.start()
        #expect(try monitor.demand { !$0.posts.isEmpty }.posts == [post])
        try monitor.report(server: "server")
        try monitor.report(shown: post, as: 9)
        try monitor.demand { $0.posts.isEmpty && $0.sources == [.notifications] }
        #expect(try list(client).map(\.state) == [.shown])
        #expect(
            try WireClient(supervisor).status().sources.contains {
                $0.name.hasPrefix("notifications of uid") && $0.isAvailable
            })
        // A report about another notification, or of too many words, means nothing.
        try monitor.report(
            .notification(
                .with {
                    $0.id = 8; $0.activated = .with { $0.action = "default" }
                }))
        try monitor.report(
            .notification(
                .with {
                    $0.id = 9
                    $0.activated = .with { $0.action = String(repeating: "x", count: 1_000) }
                }))
        try monitor.report(
            .notification(
                .with {
                    $0.id = 9;
                    $0.activated = .with {
                        $0.action = "reply"; $0.token = "t"
                    }
                }))
        let wake = try client.wake()
        #expect(wake.reasons.contains(.notification) && wake.notifications.count == 1)
        let event = try #require(wake.notifications.first)
        #expect(event.identifier == "tea" && event.content.payload == Data([7]))
        #expect(event.activated.action == "reply" && event.activated.token == "t")
        try client.finish(wake)
        try monitor.demand { $0.closes == [9] }
        try monitor.report(
            .notification(
                .with {
                    $0.id = 9
                    $0.closed = .init()
                }))
        // Nothing is left but its badge, and without that the monitor is not needed any more.
        let badge = try #require(try monitor.demand { $0.closes.isEmpty }.badges.first)
        #expect(badge.client == Self.name && badge.count == 4)
        _ = try client.ask(.setBadge(.init()))
        try monitor.demand { $0.sources.isEmpty }
        try supervisor.stop()
    }

    @Test func aBadgeIsToldWithoutANotification() throws {
        let state = try TemporaryDirectory()
        let monitor = try FakeMonitor()
        let flags = "--set stateDirectory=\(state.path) --set monitorProgram='\(monitor.program.path)'"
        func badges(_ count: UInt32?) throws {
            let demand = try monitor.demand { $0.badges.map(\.count) == (count.map { [$0] } ?? []) }
            #expect(demand.posts.isEmpty && demand.badges.allSatisfy { $0.client == Self.name })
        }
        do {
            let daemon = try DaemonProcess(suspension: "none", flags)
            let client = try WireClient(path: daemon.socketPath)
            // It is in the foreground.
            try client.hello(Self.name)
            guard case .done = try client.ask(.setBadge(.with { $0.count = 3 })) else {
                throw TestFailure("refused")
            }
            try monitor.start()
            try badges(3)
            _ = try client.ask(.setBadge(.with { $0.count = 5 }))
            try badges(5)
            // It outlives the worker, and its monitor.
            try daemon.killWorker()
            try monitor.start()
            try badges(5)
        }
        // The supervisor as well.
        let daemon = try DaemonProcess(suspension: "none", flags)
        try monitor.start()
        try badges(5)
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(Self.name)
        _ = try client.ask(.setBadge(.init()))
        #expect(try monitor.demand { $0.badges.isEmpty }.sources.isEmpty)
    }

    @Test func cancellingClosesTheShownOne() throws {
        let monitor = try FakeMonitor()
        let supervisor = try TestSupervisor { $0.monitor = monitor.program }
        let client = try WireClient(supervisor, Self.name)
        try client.enterBackground()
        try schedule(client, "tea")
        try monitor.start()
        let post = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        try monitor.report(server: "server")
        try monitor.report(shown: post, as: 3)
        try monitor.demand { $0.posts.isEmpty }
        _ = try client.ask(.cancelNotifications(.with { $0.identifiers = ["tea"] }))
        try monitor.demand { $0.closes == [3] }
        try monitor.report(
            .notification(
                .with {
                    $0.id = 3; $0.closed = .init()
                }))
        try monitor.demand { $0.sources.isEmpty }
        try supervisor.stop()
    }

    @Test func theClockOfTheMachineCounts() throws {
        let offset = Mutex(Duration.seconds(1_750_000_000))
        let monitor = try FakeMonitor()
        let supervisor = try TestSupervisor {
            $0.monitor = monitor.program
            $0.pretendedClock = { NotificationClock(utc: offset.withLock { $0 }, zone: .zero) }
        }
        let client = try WireClient(supervisor, Self.name)
        try client.enterBackground()
        let now = 1_750_000_000_000 + BootClock.now() / 1_000_000
        try schedule(client, "tea") { $0.atUnixMs = now + 3_600_000 }
        let due = try #require(try list(client).first).dueInMs
        #expect((3_590_000...3_600_000).contains(due))
        // The clock is set: the next turn knows.
        offset.withLock { $0 += .seconds(3_000) }
        #expect(try eventually { (590_000...600_000).contains(try list(client).first?.dueInMs ?? 0) })
        offset.withLock { $0 += .seconds(3_000) }
        #expect(try eventually { try list(client).map(\.state) == [.waiting] })
        try monitor.start()
        #expect(try monitor.demand { !$0.posts.isEmpty }.posts.count == 1)
        try supervisor.stop()
    }

    /// It sleeps, and so does its client: nothing but the change makes a turn.
    @Test func anotherTimeZoneIsNoticedAtOnce() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("localtime")
        let zone = Mutex(Duration.zero)
        let monitor = try FakeMonitor()
        let supervisor = try TestSupervisor {
            $0.monitor = monitor.program
            $0.pretendedClock = { NotificationClock(utc: .seconds(43_200), zone: zone.withLock { $0 }) }
            $0.zoneFile = file
        }
        let client = try WireClient(supervisor, Self.name)
        let now = 43_200 + BootClock.now() / 1_000_000_000
        try schedule(client, "alarm") { $0.calendar.secondOfDay = UInt32((now + 3_600) % 86_400) }
        try client.goToSleep()
        try client.wait(for: Self.name, toBe: .suspended, supervisor)
        zone.withLock { $0 = .seconds(7_200) }
        // As timedated does.
        symlink("/usr/share/zoneinfo/Asia/Tokyo", file + ".new")
        rename(file + ".new", file)
        try monitor.start()
        #expect(try monitor.demand { !$0.posts.isEmpty }.posts.map(\.title) == ["Title of alarm"])
        try supervisor.stop()
    }

    /// It sleeps, and so does its client: nothing but the clock makes a turn.
    @Test func aClockThatIsSetOnIsNoticedAtOnce() throws {
        let clock = try PretendedClock()
        let monitor = try FakeMonitor()
        let variables = clock.environment.map { "export \($0.key)='\($0.value)'" }.joined(separator: "; ")
        let daemon = try DaemonProcess(
            suspension: "none", before: variables, "--set monitorProgram='\(monitor.program.path)'")
        let client = try WireClient(path: daemon.socketPath)
        try client.hello(Self.name)
        let now = Int64(Date().timeIntervalSince1970 * 1_000)
        try schedule(client, "tea") { $0.atUnixMs = now + 3_600_000 }
        try client.goToSleep()
        try client.wait(for: Self.name, toBe: .suspended, path: daemon.socketPath)
        try clock.set(by: 3_700)
        try monitor.start()
        #expect(try monitor.demand { !$0.posts.isEmpty }.posts.map(\.title) == ["Title of tea"])
    }

    @Test func withoutAMonitorItWaits() throws {
        let supervisor = try TestSupervisor { $0.monitor = nil }
        let client = try WireClient(supervisor, Self.name)
        try client.enterBackground()
        try schedule(client, "tea")
        #expect(try list(client).map(\.state) == [.waiting])
        let source = try WireClient(supervisor).status().sources.first { $0.name.hasPrefix("notifications") }
        #expect(source?.isAvailable == false && source?.reason.contains("wait") == true)
        try supervisor.stop()
    }

    @Test func theForegroundIsToldUntilItHasFinished() throws {
        let monitor = try FakeMonitor()
        let supervisor = try TestSupervisor { $0.monitor = monitor.program }
        do {
            let client = try WireClient(supervisor, Self.name)
            try schedule(client, "tea") { $0.afterMs = 1 }
            let wake = try client.wake()
            #expect(wake.notifications.map(\.identifier) == ["tea"])
            guard case .delivered? = wake.notifications.first?.kind else {
                throw TestFailure("not delivered")
            }
            // It ends without having finished.
        }
        try monitor.start()
        #expect(try monitor.demand { !$0.posts.isEmpty }.posts.first?.title == "Title of tea")
        try supervisor.stop()
    }

    @Test func theyOutliveTheSupervisorAndItsKeeper() throws {
        let state = NSTemporaryDirectory() + "nightbell-notifications-\(UUID().uuidString)"
        defer { try? FileManager.default.removeItem(atPath: state) }
        let flags = "--set stateDirectory=\(state) --set monitor=off"
        do {
            let daemon = try DaemonProcess(suspension: "none", flags)
            let client = try WireClient(path: daemon.socketPath)
            try client.hello(Self.name)
            try client.enterBackground()
            try schedule(client, "later") { $0.afterMs = 3_600_000 }
            try schedule(client, "daily") {
                $0.calendar.secondOfDay = 100
                $0.repeats = true
            }
            try schedule(client, "due")
            try schedule(client, "gone") { $0.afterMs = 3_600_000 }
            _ = try client.ask(.cancelNotifications(.with { $0.identifiers = ["gone"] }))
        }
        let daemon = try DaemonProcess(suspension: "none", flags)
        let message = WireShowNotifications()
        guard
            case .notificationList(let list) = try WireClient(path: daemon.socketPath).ask(
                .showNotifications(message))
        else { throw TestFailure("no list") }
        #expect(list.notifications.map(\.notification.identifier) == ["later", "daily", "due"])
        #expect(list.notifications.map(\.state) == [.pending, .pending, .waiting])
        let due = try #require(list.notifications.first).dueInMs
        #expect((3_500_000...3_600_000).contains(due))
        #expect(list.notifications[1].hasDueInMs && list.notifications[1].dueInMs <= 86_400_000)
    }

    @Test(
        "One that cannot be written is written when there is room, or at the end", arguments: [false, true])
    func unwritable(atEnd: Bool) throws {
        let state = try TemporaryDirectory()
        // In the place of the new file.
        let obstacle = state.file("notifications.new")
        mkdir(obstacle, 0o700)
        let supervisor = try TestSupervisor {
            $0.monitor = nil
            $0.stateDirectory = state.path
        }
        let client = try WireClient(supervisor, Self.name)
        try schedule(client, "later") { $0.afterMs = 3_600_000 }
        let isReported = try eventually {
            try WireClient(path: supervisor.socketPath).status().warnings.contains {
                $0.hasPrefix("notifications cannot be written")
            }
        }
        #expect(isReported)
        #expect(access(state.file("notifications"), F_OK) != 0)
        rmdir(obstacle)
        if !atEnd { #expect(eventually { access(state.file("notifications"), F_OK) == 0 }) }
        try supervisor.stop()
        #expect(access(state.file("notifications"), F_OK) == 0)
    }
}
