import EdgeTestSupport
import Glibc
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Clients that are woken or launched because a person has chosen their notification.
@Suite(.timeLimit(.minutes(40))) struct NotificationActivationTests {
    private static let name = "org.example.tea"

    @Test func anActivationLaunchesAClientThatHasEnded() throws {
        let monitor = try FakeMonitor()
        let daemon = try DaemonProcess(
            suspension: "none", "--set monitorProgram='\(monitor.program.path)'")
        let actor = try TestClient(Self.name, socketPath: daemon.socketPath)
        let first = try actor.start("")
        // In the foreground it would be told instead.
        try first.command("background")
        try first.event("did-enter-background")
        try first.command("notify tea Tea payload=table")
        // It is done.
        try first.say("exit 0")
        try monitor.start()
        let post = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        try monitor.report(server: "server")
        try monitor.report(shown: post, as: 2)
        try monitor.demand { $0.posts.isEmpty }
        #expect(
            try eventually {
                try WireClient(path: daemon.socketPath).show(Self.name).state == .dormant
            })
        try monitor.report(activated: 2)
        let second = try actor.returns("")
        #expect(try second.event("activated") == "activated tea action=default payload=table token=")
        try second.say("exit 0")
        #expect(try eventually { try WireClient(path: daemon.socketPath).status().clientsByState.isEmpty })
        #expect(actor.staysAway())
    }

    @Test func aSleeperThatComesToTheForegroundForItsActivationStaysThere() throws {
        let monitor = try FakeMonitor()
        let daemon = try DaemonProcess(
            suspension: "signal", "--set monitorProgram='\(monitor.program.path)'")
        let looker = try WireClient(path: daemon.socketPath)
        let actor = try TestClient(Self.name, socketPath: daemon.socketPath)
        let client = try actor.start("")
        try client.command("foreground-when-activated on")
        // In the foreground it would be told instead, and asleep it could not schedule it.
        try client.command("begin scheduling")
        try client.command("background")
        try client.event("did-enter-background")
        try client.command("notify tea Tea payload=table")
        // It may be asleep before it can answer.
        try client.say("end scheduling")
        try monitor.start()
        let post = try #require(try monitor.demand { !$0.posts.isEmpty }.posts.first)
        try monitor.report(server: "server")
        try monitor.report(shown: post, as: 2)
        try monitor.demand { $0.posts.isEmpty }
        #expect(try eventually { try looker.show(Self.name).state == .suspended })
        try monitor.report(activated: 2, token: "window")
        #expect(
            try client.event("activated") == "activated tea action=default payload=table token=window")
        try client.event("entered-foreground")
        try client.event("ok")
        #expect(try looker.show(Self.name).state == .active)
        // Another one is woken later and asleep again: by then it would be, too.
        let another = try TestClient("org.example.other", socketPath: daemon.socketPath)
        let other = try another.start("")
        try other.command("background")
        func sleeps(_ count: UInt64) throws -> Bool {
            try eventually {
                let shown = try looker.show("org.example.other")
                return shown.state == .suspended && shown.counters["suspensions"] == count
            }
        }
        #expect(try sleeps(1))
        _ = try looker.ask(.wakeClient(.with { $0.identifier = "org.example.other" }))
        #expect(try sleeps(2))
        let shown = try looker.show(Self.name)
        #expect(shown.state == .active && shown.counters["suspensions"] == 1)
        #expect(try client.command("echo awake") == "awake")
        withExtendedLifetime((daemon, actor, another, other)) {}
    }
}
