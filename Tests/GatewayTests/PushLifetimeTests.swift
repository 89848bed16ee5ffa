import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// Messages that are still there when their time is over. The shortest time is 5 s.
@Suite("Pushes that are too old", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct PushLifetimeTests {
    private static let name = GatewayFixture.pushedName

    private func leave(_ fixture: GatewayFixture, _ path: String, _ body: String, seconds: Int) throws {
        let response = try fixture.post(path, headers: ["TTL: \(seconds)"], body: body)
        #expect(response.status == 201 && response.headers["ttl"] == "\(seconds)", "\(body)")
    }

    private func quit(_ fixture: GatewayFixture, _ client: Program) throws {
        #expect(try fixture.supervisor.nightbell("quit", Self.name).code == 0)
        _ = try client.outcome()
    }

    /// The next process of the client gets all that is left for it.
    private func expectOnly(_ body: String, _ fixture: GatewayFixture) throws {
        let (client, _) = try fixture.sleeper()
        try client.wrote(" \(body)\n")
        #expect(client.output.components(separatedBy: "\npushed ").count == 2, "\(client.output)")
    }

    /// The bodies of the messages in the store, with the time of `BootClock` in seconds at which each goes.
    private func stored(_ fixture: GatewayFixture) throws -> [String: Double] {
        // A connection that may write would leave files of root's behind.
        let code = """
            import json, sqlite3, sys
            database = sqlite3.connect("file:" + sys.argv[1] + "?mode=ro", 20, uri=True)
            ends = "SELECT CAST(body AS TEXT), expires - elapsed + uptime FROM message, number"
            print(json.dumps(dict(database.execute(ends))))
            """
        let outcome = try Program(
            "/usr/bin/python3", ["-c", code, fixture.pushStore + "/pushes.sqlite"]
        ).outcome()
        let rows = try? JSONSerialization.jsonObject(with: Data(outcome.output.utf8))
        return try #require(rows as? [String: Double], "\(outcome)")
    }

    private func becomes(_ bodies: Set<String>, _ fixture: GatewayFixture) throws -> Bool {
        try eventually(within: 30_000) { try Set(stored(fixture).keys) == bodies }
    }

    @Test("A message for a client that was quit waits until its time is over, and no longer")
    func quitClient() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        try quit(fixture, client)
        try leave(fixture, path, "kept", seconds: 600)
        try leave(fixture, path, "short", seconds: 1)
        #expect(try becomes(["kept"], fixture))
        try expectOnly("kept", fixture)
    }

    @Test("A client is not told of a message that was held back until its time was over")
    func heldMessage() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.perHour=1"], pushes: true)
        let (client, path) = try fixture.sleeper()
        func obstacle() throws -> String? {
            let all = try fixture.supervisor.shown(Self.name)["observations"] as? [[String: Any]]
            return all?.first?["waits_for"] as? String
        }
        func wakes() throws -> Int? {
            let counters = try fixture.supervisor.shown(Self.name)["counters"] as? [String: Any]
            return counters?["wakes_push"] as? Int
        }
        try leave(fixture, path, "first", seconds: 600)
        try client.wrote(" first\n")
        try fixture.supervisor.reaches("suspended", Self.name)
        try leave(fixture, path, "second", seconds: 10)
        #expect(try eventually(within: 20_000) { try obstacle() == "too-many" })
        #expect(try eventually(within: 30_000) { try obstacle() == nil })
        // One that still waits would be told along with this.
        #expect(try fixture.supervisor.nightbell("wake", Self.name).code == 0)
        let isWoken = eventually(within: 30_000) {
            client.output.components(separatedBy: "wake id=").count == 3
        }
        #expect(isWoken, "\(client.output)")
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(try wakes() == 1 && !client.output.contains(" second\n"))
        #expect(try becomes([], fixture))
    }

    @Test("A message outlives steps of the clock, whichever gateway has it by then")
    func setClock() throws {
        let clock = try PretendedClock()
        let fixture = try GatewayFixture(pushes: true, environment: clock.environment)
        let (client, path) = try fixture.sleeper()
        try quit(fixture, client)
        // As after a start of a machine without a battery, until the network tells the time.
        try clock.set(by: -86_400)
        try leave(fixture, path, "early", seconds: 600)
        try clock.set(by: 0)
        // Its turn ends with a look at what is too old.
        try leave(fixture, path, "late", seconds: 600)
        #expect(try becomes(["early", "late"], fixture))
        // The next one starts while the clock is ahead.
        try fixture.killGateway()
        try clock.set(by: 86_400)
        try fixture.startGateway()
        let (again, _) = try fixture.sleeper()
        for body in ["early", "late"] { try again.wrote(" \(body)\n") }
    }

    @Test("In a store of an earlier version, with times of the clock, those of messages begin anew")
    func earlierStore() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        try quit(fixture, client)
        try leave(fixture, path, "kept", seconds: 600)
        try fixture.killGateway()
        let code = """
            import sqlite3, sys
            with sqlite3.connect(sys.argv[1]) as database:
                database.execute("DELETE FROM grdb_migrations WHERE identifier = '2'")
                for column in "boot", "uptime", "elapsed":
                    database.execute(f"ALTER TABLE number DROP COLUMN {column}")
                database.execute("UPDATE message SET expires = accepted / 1000 + 600")
            """
        // Files that this one makes are to be the gateway's.
        let outcome = try Program(
            "/usr/bin/setpriv",
            [
                "--reuid", GatewayFixture.user, "--regid", "nogroup", "--clear-groups", "/usr/bin/python3",
                "-c", code, fixture.pushStore + "/pushes.sqlite",
            ]
        ).outcome()
        #expect(outcome.code == 0, "\(outcome)")
        let start = Double(BootClock.now()) / 1e9
        try fixture.startGateway()
        // With the first turn it notes the time.
        try leave(fixture, path, "more", seconds: 600)
        let end = try #require(try stored(fixture)["kept"])
        #expect(end > start + 598 && end < Double(BootClock.now()) / 1e9 + 601)
        let (again, _) = try fixture.sleeper()
        for body in ["kept", "more"] { try again.wrote(" \(body)\n") }
    }

    @Test("A message whose time was over while there was no gateway is gone when there is one")
    func replacedGateway() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        try quit(fixture, client)
        try leave(fixture, path, "kept", seconds: 600)
        try leave(fixture, path, "short", seconds: 8)
        try fixture.killGateway()
        let rows = try stored(fixture)
        #expect(Set(rows.keys) == ["kept", "short"])
        let end = try #require(rows["short"])
        #expect(eventually(within: 30_000) { Double(BootClock.now()) / 1e9 > end })
        try fixture.startGateway()
        // Nothing else removes it from the store: nothing is asked of this gateway.
        #expect(try becomes(["kept"], fixture))
        try expectOnly("kept", fixture)
    }
}
