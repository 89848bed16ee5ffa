import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Synchronization
import Testing

/// Notifications while workers, monitors and whole supervisors are replaced.
@Suite(.serialized, .timeLimit(.minutes(40))) struct NotificationReplacementTests {
    private static let name = "org.example.tea"

    private let monitor: FakeMonitor

    init() throws { monitor = try FakeMonitor() }

    private func startDaemon(_ flags: String = "") throws -> DaemonProcess {
        try DaemonProcess(
            suspension: "none", "--set monitorProgram='\(monitor.program.path)' \(flags)")
    }

    private func client(_ path: String) throws -> WireClient {
        let client = try WireClient(path: path)
        try client.hello(Self.name)
        try client.enterBackground()
        return client
    }

    private func schedule(_ change: (inout WireLocalNotification) -> Void = { _ in })
        -> WireScheduleNotification
    {
        .with {
            $0.notification.identifier = "tea"
            $0.notification.content.title = "Tea"
            change(&$0.notification)
        }
    }

    /// The monitor connects, and knows the server.
    private func startMonitor(_ connection: String) throws {
        try monitor.start()
        try monitor.report(
            .notificationServer(
                .with {
                    $0.name = "server"
                    $0.connection = connection
                }))
    }

    private func report(_ id: UInt32, _ change: (inout WireMonitorReport.NotificationEvent) -> Void) throws {
        try monitor.report(
            .notification(
                .with {
                    $0.id = id
                    change(&$0)
                }))
    }

    private func show(_ post: WireMonitorDemand.Post, as id: UInt32) throws {
        try report(id) {
            $0.shown = .with {
                $0.number = post.number
                $0.revision = post.revision
                $0.server = "server"
            }
        }
    }

    private func isDone(_ answer: WireSupervisorMessage.OneOf_Body?) -> Bool {
        if case .done? = answer { true } else { false }
    }

    @Test func oneThatWasCancelledIsClosedByTheNextWorker() throws {
        let daemon = try startDaemon()
        let client = try client(daemon.socketPath)
        _ = try client.ask(.scheduleNotification(schedule()))
        try startMonitor(":1.1")
        let post = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        try show(post, as: 3)
        try monitor.demand { $0.posts.isEmpty }
        // Of a second one the server has not said yet where it is.
        _ = try client.ask(.scheduleNotification(schedule { $0.identifier = "cake" }))
        let other = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        _ = try client.ask(.cancelNotifications(.with { $0.all = true }))
        try monitor.demand { $0.closes == [3] && $0.withdrawals == [other.number] }
        try daemon.killWorker()
        try startMonitor(":1.2")
        try monitor.demand {
            $0.closes == [3] && $0.withdrawals == [other.number] && $0.notificationServer == "server"
        }
        try report(3) { $0.closed = .init() }
        try report(0) { $0.closed = .with { $0.withdrawn = other.number } }
        try monitor.demand { $0.sources.isEmpty }
        // It is over, also for those that come then.
        try daemon.killWorker()
        #expect(!monitor.isStarted(within: 500))
    }

    @Test func aRepeatedRequestIsNotCarriedOutAgain() throws {
        let daemon = try startDaemon()
        let client = try client(daemon.socketPath)
        let message = WireClientMessage.OneOf_Body.scheduleNotification(schedule())
        try client.send(message, request: 700)
        try startMonitor(":1.1")
        let post = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        try show(post, as: 3)
        try monitor.demand { $0.posts.isEmpty }
        // A person closes it before the client reads the answer, which it loses with the worker.
        try report(3) { $0.closed = .init() }
        try monitor.demand { $0.sources.isEmpty }
        try daemon.killWorker()
        var isRepeated = false
        while true {
            let heard = try #require(try client.receiveIfAny(within: 30_000))
            if isRepeated, heard.request == 700 { break }
            guard case .supervisorRestarted(let restarted) = heard.body else { continue }
            var again = WireClientMessage()
            again.request = 700
            again.isRepeated = true
            again.body = message
            try client.sendRaw(try again.serializedBytes())
            try client.send(.restartNoted(.with { $0.restart = restarted.restart }))
            isRepeated = true
        }
        guard case .notificationList(let list) = try client.ask(.listNotifications(.init())) else {
            throw TestFailure("no list")
        }
        #expect(list.notifications.isEmpty)
        #expect(!monitor.isStarted(within: 500))
    }

    @Test func aClickThatAnotherMonitorHearsOfReachesTheClient() throws {
        let daemon = try startDaemon()
        let client = try client(daemon.socketPath)
        _ = try client.ask(.scheduleNotification(schedule { $0.content.payload = Data([7]) }))
        try startMonitor(":1.1")
        try show(try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first), as: 3)
        try monitor.demand { $0.posts.isEmpty }
        monitor.end()
        try startMonitor(":1.2")
        // This one has to show it anew, so that the server tells it; meanwhile the click is told already.
        let renewal = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        #expect(renewal.isRenewal && renewal.replaces == 3)
        try report(3) { $0.activated = .with { $0.action = "default" } }
        let wake = try client.wake()
        #expect(wake.notifications.map(\.content.payload) == [Data([7])])
        try client.finish(wake)
        try monitor.demand { $0.posts.isEmpty && $0.closes == [3] }
    }

    @Test func theFileFollowsTheClock() throws {
        let state = try TemporaryDirectory()
        let offset = Mutex(Duration.seconds(1_750_000_000))
        let supervisor = try TestSupervisor {
            $0.monitor = nil
            $0.stateDirectory = state.path
            $0.pretendedClock = { NotificationClock(utc: offset.withLock { $0 }, zone: .zero) }
        }
        let client = try client(supervisor.socketPath)
        _ = try client.ask(.scheduleNotification(schedule { $0.afterMs = 3_600_000 }))
        func file() throws -> UInt64 {
            let attributes = try FileManager.default.attributesOfItem(atPath: state.file("notifications"))
            return (attributes[.systemFileNumber] as? UInt64) ?? 0
        }
        #expect(eventually { (try? file()).map { $0 != 0 } ?? false })
        // Nothing is changed: each turn leaves it as it is.
        let before = try file()
        _ = try WireClient(path: supervisor.socketPath).status()
        #expect(try file() == before)
        // Its elapsed times are stored as times of the day.
        offset.withLock { $0 += .seconds(86_400) }
        let isWritten = try eventually {
            _ = try WireClient(path: supervisor.socketPath).status()
            return try file() != before
        }
        #expect(isWritten)
        try supervisor.stop()
    }

    @Test func aDeclaredClientThatWasQuitIsLaunchedByAClickAfterARestart() throws {
        let (manifests, state, place) = (
            try TemporaryDirectory(), try TemporaryDirectory(), try TemporaryDirectory()
        )
        let socket = place.file("nightbell.sock")
        let actor = try TestClient(Self.name, socketPath: socket)
        let environment = actor.specification.environment.map { "  \($0.key): '\($0.value)'" }
        let text = """
            identifier: \(Self.name)
            command: [\(actor.program)]
            environment:
            \(environment.joined(separator: "\n"))
            """
        try Data(text.utf8).write(to: URL(fileURLWithPath: manifests.file("tea.yaml")))
        chmod(manifests.file("tea.yaml"), 0o644)
        func start() throws -> DaemonProcess {
            try DaemonProcess(
                suspension: "none", directory: place.path, before: "umask 0",
                """
                --set manifestDirectory=\(manifests.path) --set stateDirectory=\(state.path) \
                --set monitorProgram='\(monitor.program.path)'
                """)
        }
        let first = try start()
        let process = try actor.returns("socket=\(socket)")
        try process.command("notify tea Tea payload=table")
        try startMonitor(":1.1")
        try show(try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first), as: 3)
        try monitor.demand { $0.posts.isEmpty }
        let administrator = try WireClient(path: socket)
        #expect(isDone(try administrator.ask(.quitClient(.with { $0.identifier = Self.name }))))
        #expect(eventually { ProcFS.state(process.pid).map { $0 == "Z" } ?? true })
        let handle = try first.child.handle()
        kill(first.child.pid, SIGTERM)
        #expect(!Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 20_000).isEmpty)
        let second = try start()
        try startMonitor(":1.2")
        try monitor.demand { !$0.posts.isEmpty }
        #expect(actor.staysAway(milliseconds: 500))
        // The core learns of it when the turn ends: nothing else happens.
        try report(3) { $0.activated = .with { $0.action = "default" } }
        let launched = try actor.returns("socket=\(socket)")
        #expect(try launched.event("activated") == "activated tea action=default payload=table token=")
        kill(launched.pid, SIGTERM)
        withExtendedLifetime((first, second)) {}
    }
}
