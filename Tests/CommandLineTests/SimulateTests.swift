import EdgeTestSupport
import Foundation
import ProgramTestSupport
import Testing

/// Events of the machine on request, with a real supervisor and real clients.
@Suite("nightbell simulate", .serialized)
struct SimulateTests {
    private static let name = "org.example.mail"

    /// A client that is suspended, and would fetch if it were told to.
    private func sleeper(_ fixture: Fixture, _ words: String) throws -> Program {
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.socket, "--identifier", Self.name, "--",
                Program.product("scripted-client"),
            ])
        try client.say("hello \(Self.name) \(words)")
        if words.contains("fetch") { try client.say("fetch-interval 3600000") }
        try client.say("background")
        try fixture.reaches("suspended", Self.name)
        return client
    }

    @Test("A fetch wakes the client, and its result is shown")
    func fetch() throws {
        let fixture = try Fixture()
        let client = try sleeper(fixture, "fetch")
        let done = try fixture.nightbell("simulate", "fetch", Self.name)
        #expect(done.code == 0, "\(done.output) \(done.errors)")
        try client.wrote("fetch budget_ms=30000 result=newData")
        try fixture.reaches("suspended", Self.name)
        // It has a process already.
        #expect(try fixture.nightbell("simulate", "fetch", "--launch", Self.name).code != 0)
    }

    @Test("With --launch a client without a process is launched for it")
    func launch() throws {
        let fixture = try Fixture(["--set", "launches.retry=10ms", "--set", "launches.retryMaximum=10ms"])
        let client = try sleeper(fixture, "fetch")
        // It reads this once it is woken, and asks for its end instead of sleeping on.
        try client.say("hibernate")
        #expect(try fixture.nightbell("wake", Self.name).code == 0)
        try fixture.reaches("dormant", Self.name)
        #expect(try fixture.nightbell("simulate", "fetch", Self.name).code != 0)
        #expect(try fixture.nightbell("simulate", "fetch", "--launch", Self.name).code == 0)
        let isLaunched = try eventually(within: 30_000) {
            try !fixture.nightbell("show", Self.name, "--json").output.contains("\"state\":\"dormant\"")
        }
        #expect(isLaunched)
    }

    @Test("A location and a device are those of an observation, which is shown with what has happened")
    func observations() throws {
        let fixture = try Fixture()
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.socket, "--identifier", Self.name, "--",
                Program.product("scripted-client"),
            ])
        try client.say("hello \(Self.name) location external-accessory bluetooth-central")
        try client.say("observe far significant")
        try client.say("observe home region 52 13 100")
        try client.say("observe reader accessory /dev/serial/by-id/reader")
        try client.say("observe heart characteristic /org/bluez/hci0/heart")
        try client.say("background")
        try fixture.reaches("suspended", Self.name)
        for (words, observed) in [
            ("location --observation far --moved 52.5,-13.25", "far moved 52.5 -13.25"),
            ("location --observation home --entered", "home entered"),
            ("location --observation home --exited", "home exited"),
            ("device --observation reader --connected", "reader connected"),
            ("device --observation reader --disconnected", "reader disconnected"),
            ("device --observation heart --value 0aff", "heart value [10, 255]"),
        ] {
            let arguments = ["simulate"] + words.split(separator: " ").map(String.init) + [Self.name]
            let done = try Program.run(
                "nightbell", arguments, environment: ["NIGHTBELL_SOCKET": fixture.socket])
            #expect(done.code == 0, "\(words): \(done.errors)")
            try client.wrote("observed \(observed) simulated")
        }
        let shown = try fixture.nightbell("show", Self.name).output
        #expect(
            shown.contains("reader: accessory /dev/serial/by-id/reader, disconnected (simulated)"), "\(shown)"
        )
        let json = try fixture.nightbell("show", Self.name, "--json").output
        #expect(json.contains("\"latest\":\"a value of 2 bytes\""), "\(json)")
        for words in [
            "location --observation far --entered", "location --observation none --moved 1,2",
            "location --observation far", "location --moved 1,2", "location --observation far --connected",
            "device --observation heart --value 0", "fetch --observation far",
            "device --observation home --entered",
        ] {
            let arguments = ["simulate"] + words.split(separator: " ").map(String.init) + [Self.name]
            let refused = try Program.run(
                "nightbell", arguments, environment: ["NIGHTBELL_SOCKET": fixture.socket])
            #expect(refused.code != 0, "\(words)")
        }
    }

    @Test("Another network is told to a client that asks, and refused for one that does not")
    func networkChange() throws {
        let fixture = try Fixture()
        let client = try sleeper(fixture, "voip network-changes")
        #expect(try fixture.nightbell("simulate", "network-change", Self.name).code == 0)
        try client.wrote("network-changed lost=-")
        _ = try fixture.suspended("org.example.other")
        let refused = try fixture.nightbell("simulate", "network-change", "org.example.other")
        #expect(refused.code != 0 && refused.errors.contains("not asked to be told"))
    }

    @Test(
        "Sleep, unlock and another network happen to a client that can be told, and are watched as simulated")
    func succeeds() throws {
        let fixture = try Fixture(["--set", "launches.retry=10ms", "--set", "launches.retryMaximum=10ms"])
        let watch = try watch(fixture)
        let client = try sleeper(fixture, "voip network-changes")
        try client.say("keepalive 600000")
        #expect(try fixture.nightbell("wake", Self.name).code == 0)
        let isSet = try eventually(within: 30_000) {
            try fixture.nightbell("show", Self.name, "--json").output
                .contains("\"keep_alive_timeout_ms\":600000")
        }
        #expect(isSet)
        try fixture.reaches("suspended", Self.name)
        let sleep = try fixture.nightbell("simulate", "sleep", Self.name)
        #expect(sleep.code == 0, "\(sleep.errors)")
        try client.wrote("keepalive")
        try isWatched("sleep of the machine", watch)
        try fixture.reaches("suspended", Self.name)
        #expect(try fixture.nightbell("simulate", "network-change", Self.name).code == 0)
        try client.wrote("network-changed lost=-")
        try isWatched("network change", watch)
    }

    /// A watch that is connected: it misses nothing from now on.
    private func watch(_ fixture: Fixture) throws -> Program {
        func connections() throws -> Int {
            let status = try fixture.nightbell("status", "--json").output
            return try #require(status.firstMatch(of: #/"connections":(\d+)/#).flatMap { Int($0.1) })
        }
        let before = try connections()
        let watch = try Program("nightbell", ["watch", "--socket", fixture.socket])
        #expect(try eventually(within: 30_000) { try connections() > before })
        return watch
    }

    private func isWatched(_ event: String, _ watch: Program) throws {
        let isWatched = eventually(within: 30_000) {
            watch.output.split(separator: "\n").contains { line in
                line.contains("\(Self.name)  simulated  ") && line.hasSuffix(event)
            }
        }
        #expect(isWatched, "\(watch.output)")
    }

    @Test("A client that waits for its user is launched on request")
    func unlocks() throws {
        let directory = try TemporaryDirectory()
        let clients = directory.file("clients")
        try FileManager.default.createDirectory(atPath: clients, withIntermediateDirectories: true)
        let manifest = """
            identifier: \(Self.name)
            command: [/bin/sleep, '1000']
            modes: [voip]
            waitsForUnlock: true
            """
        try manifest.write(toFile: clients + "/mail.yaml", atomically: true, encoding: .utf8)
        // It is started as another user.
        chmod(directory.path, 0o755)
        // A monitor that says nothing: whether a user is unlocked is not known.
        let monitor = directory.file("monitor")
        try "#!/bin/sh\nexec sleep 1000\n".write(toFile: monitor, atomically: true, encoding: .utf8)
        chmod(monitor, 0o755)
        let fixture = try Fixture([
            "--set", "manifestDirectory=\(clients)", "--set", "monitorProgram=\(monitor)",
        ])
        let watch = try watch(fixture)
        let isWaiting = try eventually(within: 30_000) {
            try fixture.nightbell("show", Self.name).output.contains("once its user is unlocked")
        }
        #expect(isWaiting)
        let unlock = try fixture.nightbell("simulate", "unlock", Self.name)
        #expect(unlock.code == 0, "\(unlock.errors)")
        try isWatched("unlock", watch)
        try fixture.reaches("launching", Self.name)
    }

    @Test("The handler of a keep-alive runs as before a sleep; what cannot happen is refused")
    func sleep() throws {
        let fixture = try Fixture()
        _ = try sleeper(fixture, "voip")
        #expect(try fixture.nightbell("simulate", "sleep", Self.name).errors.contains("no keep-alive"))
        #expect(try fixture.nightbell("simulate", "unlock", Self.name).code != 0)
        #expect(try fixture.nightbell("simulate", "thunder", Self.name).errors.contains("thunder"))
        #expect(try fixture.nightbell("simulate", "sleep", "--launch", Self.name).code != 0)
    }
}
