import EdgeTestSupport
import Foundation
import Launching
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import SwiftProtobuf
import Testing

/// Launch settings shared by many clients are stored once, for as long as one of the clients is there.
@Suite(.serialized, .timeLimit(.minutes(40))) struct LaunchSettingTests {
    private func setting(_ level: Int, directory: String = "/") -> LaunchSetting {
        LaunchSetting(
            .init(
                isRecorded: true, program: "/bin/phone", directory: directory,
                environment: ["LEVEL": "\(level)", "HOME": "/home/alice"],
                limits: [ResourceLimit(.openFiles, soft: 10, hard: 20)], fileModeMask: 0o22,
                identity: ProcessIdentity(user: 7, group: 8, otherGroups: [9, 10])))
    }

    // MARK: The table

    @Test func equalSettingsAreShared() {
        var settings = LaunchSettings()
        let (one, isNew) = settings.share(setting(1))
        #expect(isNew && one.number == 1)
        let (same, isNewAgain) = settings.share(setting(1))
        #expect(!isNewAgain && same === one)
        #expect(settings.share(setting(2)).0.number == 2)
        #expect(settings.share(setting(1, directory: "/tmp")).0.number == 3)
        let content = one.content
        #expect(content == setting(1).content && content.environment["LEVEL"] == "1")
        #expect(content.identity?.otherGroups == [9, 10] && content.limits.first?.hard == 20)
    }

    @Test func anUnusedSettingIsForgottenOnceAndItsNumberIsNotReused() {
        var settings = LaunchSettings()
        let one = settings.share(setting(1)).0
        for _ in 0..<3 { settings.enter(one) }
        for _ in 0..<2 { settings.leave(one) }
        #expect(settings.takeUnused() == [])
        settings.leave(one)
        // Another client comes in the same turn.
        settings.enter(settings.share(setting(1)).0)
        settings.leave(one)
        settings.enter(one)
        #expect(settings.takeUnused() == [])
        settings.leave(one)
        #expect(settings.takeUnused() == [1] && settings.takeUnused() == [])
        let (next, isNew) = settings.share(setting(1))
        #expect(isNew && next !== one && next.number == 2)
    }

    @Test func orphansOfAWorkerThatDiedAreForgotten() {
        var last = LaunchSettings()
        let settings = (1...3).map { last.share(setting($0)).0 }
        var next = LaunchSettings()
        next.inherit(settings)
        next.enter(settings[1])
        let (known, isNew) = next.share(setting(2))
        #expect(known === settings[1] && !isNew)
        #expect(next.takeUnused() == [1, 3])
        #expect(next.share(setting(4)).0.number == 4)
        next.leave(settings[1])
        #expect(next.takeUnused() == [2])
    }

    // MARK: With processes

    /// Each client with a small difference is launched as it said, also after the worker has died.
    @Test func differencesAreEachClientsOwn() throws {
        let daemon = try DaemonProcess(suspension: "none")
        func launch(_ number: Int) -> WireLaunchSpecification {
            .with {
                $0.arguments = ["/bin/true"]
                $0.directory = number % 3 == 0 ? "/tmp" : "/"
                $0.environment = ["NUMBER": "\(number)", "TEXT": String(repeating: "x", count: 15_000)]
                if number % 5 == 0 { $0.environment["OTHER"] = "" }
                if number % 7 == 0 { $0.environment["NUMBER"] = nil }
            }
        }
        let clients = try (0..<100).map { number in
            let client = try WireClient(path: daemon.socketPath)
            let hello = WireHello.with {
                $0.version = 1
                $0.identifier = "org.example.crowd\(number)"
                $0.launch = launch(number)
            }
            guard case .welcome = try client.ask(.hello(hello)) else { throw TestFailure("no welcome") }
            return client
        }
        for _ in 1...2 {
            for number in 0..<100 {
                let info = try WireClient(path: daemon.socketPath).show("org.example.crowd\(number)")
                #expect(info.canLaunch && info.launch == launch(number))
            }
            try daemon.killWorker()
        }
        #expect(clients.count == 100)
    }

    /// A hundred clients with the same 15 KB of environment, before and after the worker dies.
    @Test(.disabled(if: isSanitized, "a sanitizer keeps what was freed"))
    func keptOnce() throws {
        let daemon = try DaemonProcess(suspension: "none")
        func bytes() throws -> Int {
            let keeper = try #require(ProcFS.residentBytes(daemon.child.pid))
            return try keeper + #require(ProcFS.residentBytes(daemon.worker()))
        }
        func hello(_ number: Int) throws -> WireClient {
            let client = try WireClient(path: daemon.socketPath)
            let launch = WireLaunchSpecification.with {
                $0.arguments = ["/bin/true", "\(number)"]
                $0.directory = "/"
                $0.environment = ["TEXT": String(repeating: "x", count: 15_000)]
            }
            let answer = try client.ask(
                .hello(
                    .with {
                        $0.version = 1
                        $0.identifier = "org.example.crowd\(number)"
                        $0.launch = launch
                    }))
            guard case .welcome = answer else { throw TestFailure("no welcome: \(answer)") }
            return client
        }
        var clients = try (0..<10).map(hello)
        let before = try bytes()
        clients += try (10..<110).map(hello)
        #expect(try bytes() - before < 100 * 15_000 / 2)
        for _ in 1...2 {
            try daemon.killWorker()
            let info = try WireClient(path: daemon.socketPath).show("org.example.crowd42")
            #expect(info.canLaunch && info.launch.arguments == ["/bin/true", "42"])
            #expect(info.launch.environment["TEXT"]?.count == 15_000)
        }
        #expect(clients.count == 110)
    }

    /// The keeper dies, and with it everything known of the client. Its process was launched, not started by
    /// `nightbell run`: it still tells the next supervisor how to launch it.
    @Test func aLaunchedProcessCanBeLaunchedByTheNextSupervisor() throws {
        let name = "org.example.phone"
        let daemon = try DaemonProcess(suspension: "none")
        let actor = try TestClient(name, socketPath: daemon.socketPath, environment: ["LEVEL": "3"])
        let first = try actor.start()
        let peer = try first.park("registration")
        defer { close(peer) }
        let launch = try WireClient(path: daemon.socketPath).show(name).launch
        #expect(launch == actor.specification)
        kill(first.pid, SIGKILL)
        let second = try actor.returns()
        kill(daemon.child.pid, SIGKILL)
        try second.event("lost")
        let next = try DaemonProcess(suspension: "none", directory: daemon.directory)
        try second.event("reconnected")
        let info = try WireClient(path: next.socketPath).show(name)
        #expect(info.canLaunch && info.launch == launch && info.processID == UInt32(second.pid))
        kill(second.pid, SIGKILL)
        let third = try actor.returns()
        #expect(try third.event("restored").contains("sockets=registration:3 "))
        try third.say("exit 0")
        #expect(actor.staysAway(milliseconds: 100))
        withExtendedLifetime(daemon) {}
    }
}
