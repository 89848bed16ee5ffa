import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellWire
import SwiftProtobuf
import Testing

/// The monitor of a session, and a notification server of python-dbusmock on a private bus.
@Suite("Notifications", .serialized, .timeLimit(.minutes(40)))
struct NotificationTests {
    static let name = "org.freedesktop.Notifications"
    static let path = "/org/freedesktop/Notifications"

    private let bus: PrivateBus
    private let monitor: MonitorProcess

    init() throws {
        bus = try PrivateBus()
        monitor = try MonitorProcess(["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
    }

    static func startServer(
        _ bus: PrivateBus, capabilities: String = "body body-markup actions"
    ) throws -> MockService {
        try MockService(
            bus, template: "notification_daemon", name: name, path: path,
            parameters: "{\"capabilities\": \"\(capabilities)\"}")
    }

    /// The arguments of the server's calls of Notify, as text.
    static func shown(_ bus: PrivateBus) throws -> String {
        try bus.answer(name, path, MockService.control + ".GetMethodCalls", "Notify")
    }

    private func post(
        _ number: UInt64, revision: UInt64 = 1, _ change: (inout WireMonitorDemand.Post) -> Void = { _ in }
    ) -> WireMonitorDemand.Post {
        var post = WireMonitorDemand.Post()
        post.number = number
        post.revision = revision
        post.client = "org.example.tea"
        post.title = "Tea \(number)"
        post.urgency = 1
        change(&post)
        return post
    }

    private func demand(
        _ posts: [WireMonitorDemand.Post], closes: [UInt32] = [], of server: String = "", number: UInt64 = 1
    ) throws {
        try monitor.demand([.notifications]) {
            $0.posts = posts
            $0.closes = closes
            $0.notificationServer = server
            $0.number = number
        }
    }

    private func serverName() throws -> String {
        try monitor.first { fact in
            if case .notificationServer(let server) = fact { server.name } else { nil }
        }
    }

    private func event<Answer>(
        _ body: (UInt32, WireMonitorReport.NotificationEvent.OneOf_Event) -> Answer?
    ) throws -> Answer {
        try monitor.first { fact in
            guard case .notification(let report) = fact, let event = report.event else { return nil }
            return body(report.id, event)
        }
    }

    private func isShown(_ number: UInt64) throws -> UInt32 {
        try event { id, event in
            if case .shown(let shown) = event, shown.number == number { id } else { nil }
        }
    }

    @Test("A badge is told without a notification or a server, and on each connection to the bus")
    func badge() throws {
        let record = try BusRecord(bus, interface: "com.canonical.Unity.LauncherEntry")
        func demand(_ counts: [(String, UInt32)], of monitor: MonitorProcess) throws {
            try monitor.demand([.notifications]) {
                $0.badges = counts.map { client, count in
                    .with {
                        $0.client = client
                        $0.count = count
                    }
                }
                $0.number = 1
            }
        }
        func isTold(_ client: String, _ count: Int, times: Int = 1) throws {
            func told() throws -> Int {
                let signals = try record.text().split(separator: "signal ")
                return signals.count {
                    $0.contains("application://\(client).desktop") && $0.contains("int64 \(count)\n")
                        && $0.contains("boolean \(count > 0)")
                }
            }
            let isTold = try eventually(within: 30_000) { try told() == times }
            let text = try record.text()
            #expect(isTold, "\(text)")
        }
        try demand([("org.example.tea", 3), ("org.example.chat", 7)], of: monitor)
        try isTold("org.example.tea", 3)
        try isTold("org.example.chat", 7)
        try demand([("org.example.tea", 4), ("org.example.chat", 7)], of: monitor)
        try isTold("org.example.tea", 4)
        try demand([("org.example.tea", 4)], of: monitor)
        try isTold("org.example.chat", 0)
        let another = try MonitorProcess(
            ["--session"], environment: ["DBUS_SESSION_BUS_ADDRESS": bus.address])
        try demand([("org.example.tea", 4)], of: another)
        try isTold("org.example.tea", 4, times: 2)
        try isTold("org.example.chat", 7)
        // With the source it goes.
        try another.demand([]) { $0.number = 2 }
        try isTold("org.example.tea", 0)
    }

    @Test("A notification is shown with all its parts, once")
    func show() throws {
        let server = try Self.startServer(bus)
        let whole = post(7) {
            $0.body = "Water is <hot> & ready, <\u{338}b>&\u{301}"
            $0.sound = "alarm-clock-elapsed"
            $0.urgency = 2
            $0.actions = [
                .with {
                    $0.key = "snooze"; $0.label = "Later"
                }
            ]
        }
        try demand([whole])
        let id = try isShown(7)
        #expect(id == 1)
        // The same demand again, and another one with it: it is given to the server once.
        try demand([whole, post(8)], number: 2)
        #expect(try isShown(8) == 2)
        let calls = try Self.shown(bus)
        #expect(calls.components(of: "'Tea 7'") == 1 && calls.components(of: "'Tea 8'") == 1)
        // Other characters than those of ASCII are printed as question marks.
        for part in [
            "'org.example.tea'", "Water is &lt;hot&gt; &amp; ready, &lt;?b&gt;&amp;?",
            "'default'", "'snooze'", "'Later'",
            "'urgency': <byte 0x02>", "'sound-name': <'alarm-clock-elapsed'>",
            "'desktop-entry': <'org.example.tea'>",
        ] {
            #expect(calls.contains(part), "\(part) is not in \(calls)")
        }
        server.end()
    }

    @Test("It is replaced by another revision, and closed")
    func replaceAndClose() throws {
        let server = try Self.startServer(bus)
        try demand([post(1)])
        let name = try serverName()
        let id = try isShown(1)
        try demand([post(1, revision: 2) { $0.replaces = id }], of: name)
        #expect(try isShown(1) == id)
        try demand([], closes: [id], of: name)
        let closed: UInt32 = try event { id, event in if case .closed = event { id } else { nil } }
        #expect(closed == id)
        let calls = try bus.answer(
            Self.name, Self.path, MockService.control + ".GetMethodCalls", "CloseNotification")
        #expect(calls.contains("<\(id)>"))
        server.end()
    }

    @Test("It is shown once on the screen, though its report was lost with the supervisor")
    func lostReport() throws {
        let server = try Self.startServer(bus)
        let directory = try TemporaryDirectory()
        let environment = ["DBUS_SESSION_BUS_ADDRESS": bus.address, "XDG_RUNTIME_DIR": directory.path]
        func show() throws -> UInt32 {
            let monitor = try MonitorProcess(["--session"], environment: environment)
            try monitor.demand([.notifications]) {
                $0.posts = [post(7, revision: 2)]
                $0.number = 1
            }
            return try monitor.first { fact in
                guard case .notification(let event) = fact, case .shown? = event.event else { return nil }
                return event.id
            }
        }
        let first = try show()
        // The worker ends before it has recorded that; the next one has the same asked.
        #expect(try show() == first)
        let calls = try Self.shown(bus)
        #expect(calls.components(of: "'Tea 7'") == 2 && calls.components(of: "<uint32 \(first)>") == 1)
        // Another one of this client is no replacement.
        try demand([post(8)])
        #expect(try isShown(8) == first + 1)
        server.end()
    }

    @Test("Activations are reported with their token, and only the server's")
    func activation() throws {
        let server = try Self.startServer(bus)
        try demand([post(1)])
        let id = try isShown(1)
        // A peer that is not the server.
        let stranger = try MockService(
            bus, name: "org.example.stranger", path: Self.path, interface: Self.name)
        try stranger.emit(Self.name, "ActionInvoked", "us", "[<uint32 \(id)>, <'evil'>]")
        try server.emit(Self.name, "ActivationToken", "us", "[<uint32 \(id)>, <'token-5'>]")
        try server.emit(Self.name, "ActionInvoked", "us", "[<uint32 \(id)>, <'snooze'>]")
        let activated: (UInt32, WireMonitorReport.NotificationEvent.Activated) = try event { id, event in
            if case .activated(let activated) = event { (id, activated) } else { nil }
        }
        #expect(activated.0 == id && activated.1.action == "snooze" && activated.1.token == "token-5")
        // The next one has no token.
        try server.emit(Self.name, "ActionInvoked", "us", "[<uint32 \(id)>, <'default'>]")
        let token: String = try event { _, event in
            if case .activated(let activated) = event { activated.token } else { nil }
        }
        #expect(token.isEmpty)
        try server.emit(Self.name, "NotificationClosed", "uu", "[<uint32 \(id)>, <uint32 2>]")
        let closed: UInt32 = try event { id, event in if case .closed = event { id } else { nil } }
        #expect(closed == id)
        stranger.end()
        server.end()
    }

    @Test("Without a server it waits; each server that comes has another name, and gets what is demanded")
    func servers() throws {
        try demand([post(1)])
        let reason = try monitor.availability(of: .notifications, is: false)
        #expect(reason.contains("Notifications"))
        var names: Set<String> = []
        for _ in 1...3 {
            let server = try Self.startServer(bus)
            let name = try serverName()
            #expect(name.utf8.count > 32 && names.insert(name).inserted)
            let shownBy: String = try event { _, event in
                if case .shown(let shown) = event { shown.server } else { nil }
            }
            #expect(shownBy == name)
            server.end()
            _ = try monitor.availability(of: .notifications, is: false)
        }
    }

    @Test("A server that refuses is reported, and one that hangs shows what it was given when it goes on")
    func refusing() throws {
        let refusing = try MockService(bus, name: Self.name, path: Self.path, interface: Self.name)
        try refusing.tell("AddMethod", Self.name, "GetCapabilities", "", "as", "ret = ['body']")
        try refusing.tell(
            "AddMethod", Self.name, "Notify", "susssasa{sv}i", "u",
            "raise dbus.exceptions.DBusException('full', name='org.example.Full')")
        try demand([post(4)])
        let reason: String = try event { _, event in
            if case .refused(let refused) = event, refused.number == 4 { refused.reason } else { nil }
        }
        #expect(reason.contains("full"))
        refusing.end()
        _ = try monitor.availability(of: .notifications, is: false)
        let server = try Self.startServer(bus)
        #expect(try isShown(4) == 1)
        kill(server.pid, SIGSTOP)
        try demand([post(5)], number: 2)
        // The monitor goes on.
        try monitor.demand([.notifications, .power]) {
            $0.posts = [post(5)]
            $0.number = 3
        }
        _ = try monitor.availability(of: .power, is: false)
        kill(server.pid, SIGCONT)
        #expect(try isShown(5) == 2)
        let calls = try Self.shown(bus)
        #expect(calls.components(of: "'Tea 5'") == 1)
        server.end()
    }

    @Test("A server that floods with signals hides no answer")
    func flood() throws {
        let server = try FloodingServer(bus)
        try demand([post(1)])
        #expect(try isShown(1) == 1)
        try demand([post(1), post(2)], number: 2)
        #expect(try isShown(2) == 2)
        // The supervisor can count on a rate.
        var count = 0
        let end = BootClock.now() + 1_000_000_000
        while BootClock.now() < end, try monitor.next(within: 100) != nil { count += 1 }
        #expect(count < 600)
        server.end()
    }
}

extension String {
    func components(of part: String) -> Int { ranges(of: part).count }
}
