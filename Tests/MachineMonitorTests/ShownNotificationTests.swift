import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// A session's monitor knows shown notifications, also those of the monitors before it.
@Suite("Shown notifications", .serialized, .timeLimit(.minutes(40)))
struct ShownNotificationTests {
    private typealias Report = WireMonitorReport.NotificationEvent
    private typealias Event = WireMonitorReport.NotificationEvent.OneOf_Event

    private let bus: PrivateBus
    private let directory: TemporaryDirectory
    private let server: MockService

    init() throws {
        bus = try PrivateBus()
        directory = try TemporaryDirectory()
        server = try NotificationTests.startServer(bus)
    }

    private func startMonitor() throws -> MonitorProcess {
        try MonitorProcess(
            ["--session"],
            environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address, "XDG_RUNTIME_DIR": directory.path])
    }

    private func post(
        _ number: UInt64, revision: UInt64 = 1, replaces: UInt32 = 0, isRenewal: Bool = false
    ) -> WireMonitorDemand.Post {
        .with {
            $0.number = number
            $0.revision = revision
            $0.replaces = replaces
            $0.isRenewal = isRenewal
            $0.client = "org.example.tea"
            $0.title = "Tea \(number).\(revision)"
        }
    }

    private func demand(
        _ monitor: MonitorProcess, _ number: UInt64, _ posts: [WireMonitorDemand.Post],
        _ change: (inout WireMonitorDemand) -> Void = { _ in }
    ) throws {
        try monitor.demand([.notifications]) {
            $0.posts = posts
            $0.number = number
            change(&$0)
        }
    }

    private func serverName(_ monitor: MonitorProcess) throws -> String {
        try monitor.first { fact in
            if case .notificationServer(let server) = fact { server.name } else { nil }
        }
    }

    private func event(_ monitor: MonitorProcess) throws -> (id: UInt32, event: Event) {
        try monitor.first { fact in
            guard case .notification(let report) = fact, let event = report.event else { return nil }
            return (report.id, event)
        }
    }

    private func shown(_ monitor: MonitorProcess) throws -> UInt32 {
        let (id, event) = try event(monitor)
        guard case .shown = event else { throw SupportError(text: "not shown, but \(event)") }
        return id
    }

    private func calls(_ member: String) throws -> String {
        try bus.answer(
            NotificationTests.name, NotificationTests.path, MockService.control + ".GetMethodCalls", member)
    }

    @Test("A later one waits for the number of the one before it, and replaces it")
    func oneAfterTheOther() throws {
        let monitor = try startMonitor()
        try demand(monitor, 1, [])
        _ = try serverName(monitor)
        kill(server.pid, SIGSTOP)
        try monitor.demand([.notifications, .power]) {
            $0.posts = [post(1)]
            $0.number = 2
        }
        // The monitor has read that.
        _ = try monitor.availability(of: .power, is: false)
        // Another one does not wait for it.
        try demand(monitor, 3, [post(1, revision: 2), post(2)])
        kill(server.pid, SIGCONT)
        #expect(try [shown(monitor), shown(monitor), shown(monitor)] == [1, 2, 1])
        let calls = try calls("Notify")
        #expect(calls.components(of: "'Tea 1.2'") == 1 && calls.components(of: "<uint32 1>") == 1)
        server.end()
    }

    @Test(
        "A click or a close that no supervisor has recorded is told the next one, and nothing is shown again")
    func ends() throws {
        let first = try startMonitor()
        try demand(first, 1, [post(1), post(2), post(3)])
        let name = try serverName(first)
        #expect(try [shown(first), shown(first), shown(first)] == [1, 2, 3])
        try server.emit(NotificationTests.name, "ActionInvoked", "us", "[<uint32 1>, <'snooze'>]")
        try server.emit(NotificationTests.name, "NotificationClosed", "uu", "[<uint32 1>, <uint32 2>]")
        try server.emit(NotificationTests.name, "NotificationClosed", "uu", "[<uint32 2>, <uint32 2>]")
        for _ in 1...3 { _ = try event(first) }
        // The worker has died with that; the next one knows the first, and has heard of no other.
        let second = try startMonitor()
        try demand(second, 1, [post(1, revision: 9, replaces: 1, isRenewal: true), post(2), post(3)]) {
            $0.notificationServer = name
        }
        let click = try event(second)
        guard case .activated(let activated) = click.event else { throw SupportError(text: "\(click)") }
        #expect(click.id == 1 && activated.action == "snooze")
        #expect(try shown(second) == 2)
        let close = try event(second)
        guard case .closed = close.event else { throw SupportError(text: "\(close)") }
        #expect(close.id == 2)
        // The third one is still there, and this connection has to hear of it: without a sound.
        #expect(try shown(second) == 3)
        let calls = try calls("Notify")
        #expect(calls.components(of: "'Tea 1.9'") == 0 && calls.components(of: "'Tea 2.1'") == 1)
        #expect(calls.components(of: "'Tea 3.1'") == 2 && calls.components(of: "suppress-sound") == 1)
        server.end()
    }

    @Test("One that is withdrawn is closed by the number that an earlier monitor has noted, or is not there")
    func withdrawn() throws {
        let first = try startMonitor()
        try demand(first, 1, [post(7)])
        #expect(try shown(first) == 1)
        let second = try startMonitor()
        try demand(second, 1, []) { $0.withdrawals = [7, 8] }
        var numbers: Set<UInt64> = []
        while numbers.count < 2 {
            // The server's own word comes as well.
            guard case .closed(let closed) = try event(second).event, closed.withdrawn != 0 else { continue }
            numbers.insert(closed.withdrawn)
        }
        #expect(numbers == [7, 8])
        #expect(try calls("CloseNotification").components(of: "<1>") == 1)
        server.end()
    }

    @Test("The numbers of another server are not used")
    func anotherServer() throws {
        let monitor = try startMonitor()
        try demand(monitor, 1, [post(1, replaces: 5), post(2)]) {
            $0.closes = [6]
            $0.notificationServer = "another"
        }
        let name = try serverName(monitor)
        #expect(try shown(monitor) == 1)
        #expect(try !calls("Notify").contains("'Tea 1.1'"))
        #expect(try !calls("CloseNotification").contains("<6>"))
        // Now the supervisor knows it.
        try demand(monitor, 2, [post(1)]) { $0.notificationServer = name }
        #expect(try shown(monitor) == 2)
        server.end()
    }
}
