import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// Faults of the push service, and processes that mean it harm.
@Suite("Faults of the push service", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct PushFaultTests {
    private static let name = GatewayFixture.pushedName

    @Test("A name that the store would cut harms nobody else")
    func namesWithZero() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        for name in ["a\u{0}b", "a\u{0}c"] {
            try client.say("push-endpoint \(name)")
            #expect(try fixture.supervisor.nightbell("wake", Self.name).code == 0)
            try client.wrote("control characters")
        }
        #expect(try fixture.push(path, "after") == 201)
        try client.wrote(" after\n")
    }

    @Test("After its store was lost, a client is told of what arrives at its new address")
    func lostStore() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        #expect(try fixture.push(path, "before") == 201)
        try client.wrote(" before\n")
        try fixture.killGateway()
        fixture.loseStore()
        try fixture.startGateway()
        #expect(try fixture.push(path, "nowhere") == 404)
        #expect(try fixture.supervisor.nightbell("wake", Self.name).code == 0)
        let new = try fixture.pushPath(client)
        #expect(new != path)
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(try fixture.push(new, "after") == 201)
        try client.wrote(" after\n")
    }

    @Test("While there is no push service, a client is not woken in vain")
    func absentService() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.retry=100ms"], pushes: true)
        let (client, path) = try fixture.sleeper()
        try client.say("fetch failed")
        _ = try fixture.supervisor.nightbell("wake", Self.name)
        try client.wrote("ok\n")
        #expect(try fixture.push(path, "unhandled") == 201)
        try client.wrote("result=failed")
        try fixture.killGateway()
        // One that is under way when the service ends may still fail.
        try fixture.supervisor.reaches("suspended", Self.name)
        let forgotten = try eventually(within: 20_000) {
            let all = try fixture.supervisor.shown(Self.name)["observations"] as? [[String: Any]]
            return all?.first?["waits_for"] is NSNull
        }
        #expect(forgotten)
        let wakes = try fixture.supervisor.wakes(Self.name)
        // Several pauses after a failure.
        usleep(600_000)
        #expect(try fixture.supervisor.wakes(Self.name) == wakes)
        try fixture.startGateway()
        #expect(try eventually(within: 20_000) { try fixture.supervisor.wakes(Self.name) > wakes })
    }

    @Test("A client is not told more often because it asks anew")
    func limitOfAnObserver() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.perHour=1"], pushes: true)
        let (client, path) = try fixture.sleeper()
        #expect(try fixture.push(path, "first") == 201)
        try client.wrote(" first\n")
        try fixture.supervisor.reaches("suspended", Self.name)
        _ = try fixture.supervisor.nightbell("wake", Self.name)
        try client.say("stop-observing nightbell.pushes")
        #expect(try fixture.pushPath(client) == path)
        try client.say("observe another pushes")
        try client.say("echo observed")
        try client.wrote("ok observed")
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(try fixture.push(path, "second") == 201)
        let isHeld = try eventually(within: 20_000) {
            let all = try fixture.supervisor.shown(Self.name)["observations"] as? [[String: Any]]
            return all?.count == 1 && all?.first?["waits_for"] as? String == "too-many"
        }
        #expect(isHeld)
    }

    /// Gives the store a file system of its own.
    private func mount(_ size: String, _ fixture: GatewayFixture) throws {
        try fixture.killGateway()
        let own = fixture.pushStore
        let copy = own + ".copy"
        #expect(try Program("/bin/cp", ["-a", own, copy]).outcome().code == 0)
        let mounted = try Program(
            "/bin/mount", ["-t", "tmpfs", "-o", "size=\(size),mode=755", "tmpfs", own]
        ).outcome()
        try #require(mounted.code == 0, "\(mounted)")
        #expect(try Program("/bin/cp", ["-a", copy + "/.", own]).outcome().code == 0)
        let user = try #require(getpwnam(GatewayFixture.user)).pointee.pw_uid
        chown(own, user, gid_t.max)
        try fixture.startGateway()
    }

    private func unmount(_ fixture: GatewayFixture) {
        _ = try? Program("/bin/umount", ["-l", fixture.pushStore]).outcome()
    }

    @Test(
        "A store that was full takes messages again once those before are handled, or too old",
        arguments: ["handled", "old"])
    func fullStore(end: String) throws {
        let fixture = try GatewayFixture(
            daemon: ["--set", "push.retry=200ms", "--set", "push.perHour=1000"], pushes: true)
        let (client, path) = try fixture.sleeper()
        try mount("1m", fixture)
        defer { unmount(fixture) }
        let body = String(repeating: "x", count: 4_000)
        func send() throws -> Int {
            try fixture.post(path, headers: ["TTL: \(end == "old" ? 20 : 600)"], body: body).status
        }
        try client.say("fetch failed")
        _ = try fixture.supervisor.nightbell("wake", Self.name)
        try client.wrote("ok\n")
        var statuses: [Int] = []
        for _ in 0..<255 where !statuses.contains(503) { statuses.append(try send()) }
        #expect(statuses.count > 100 && statuses.last == 503, "\(statuses)")
        if end == "handled" { try client.say("fetch newData") }
        #expect(try eventually(within: 60_000) { try send() == 201 }, "\(fixture.gateway.errors)")
        // There is as much room as before.
        try client.say("fetch newData")
        for _ in 0..<100 { #expect(try eventually(within: 20_000) { try send() == 201 }) }
    }

    @Test("Messages that are handled while the disk is full are not handed over again")
    func handledOnAFullDisk() throws {
        let fixture = try GatewayFixture(
            daemon: ["--set", "push.retry=200ms", "--set", "push.perHour=1000"], pushes: true)
        let (client, path) = try fixture.sleeper()
        try mount("4m", fixture)
        defer { unmount(fixture) }
        try client.say("fetch failed")
        _ = try fixture.supervisor.nightbell("wake", Self.name)
        try client.wrote("ok\n")
        #expect(try fixture.push(path, "first") == 201)
        try client.wrote(" first\n")
        // Another program takes all of the disk.
        let filler = fixture.pushStore + "/filler"
        _ = try Program("/bin/dd", ["if=/dev/zero", "of=\(filler)", "bs=4k"]).outcome()
        try client.say("fetch newData")
        let isHandled = try eventually(within: 20_000) {
            let all = try fixture.supervisor.shown(Self.name)["observations"] as? [[String: Any]]
            return client.output.contains("result=newData") && all?.first?["waits_for"] is NSNull
        }
        #expect(isHandled, "\(client.output)")
        try fixture.supervisor.reaches("suspended", Self.name)
        let wakes = try fixture.supervisor.wakes(Self.name)
        // Several pauses after a failure.
        usleep(3_000_000)
        #expect(try fixture.supervisor.wakes(Self.name) == wakes)
        unlink(filler)
        // It is removed for good once there is room.
        #expect(try eventually(within: 20_000) { try fixture.push(path, "second") == 201 })
        try client.wrote(" second\n")
        try fixture.supervisor.reaches("suspended", Self.name)
        let code = """
            import sqlite3, sys
            print(sqlite3.connect(sys.argv[1], 20).execute("SELECT count(*) FROM message").fetchone()[0])
            """
        let isRemoved = try eventually(within: 20_000) {
            try Program("/usr/bin/python3", ["-c", code, fixture.pushStore + "/pushes.sqlite"])
                .outcome().output == "0\n"
        }
        #expect(isRemoved)
    }

    @Test("On a full disk messages are refused, and everything else is served")
    func fullDisk() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        let own = fixture.pushStore
        try mount("400k", fixture)
        defer { unmount(fixture) }
        try client.say("fetch failed")
        var statuses: [Int] = []
        let body = String(repeating: "x", count: 4_096)
        for _ in 0..<100 where !statuses.contains(503) { statuses.append(try fixture.push(path, body)) }
        #expect(statuses.first == 201 && statuses.last == 503, "\(statuses)")
        #expect(try fixture.get("/healthz").status == 200)
        #expect(fixture.gateway.errors.contains("the store of pushes failed"))
        // The supervisor and its clients do not notice: nothing is told again for that.
        try fixture.supervisor.reaches("suspended", Self.name)
        let wakes = try fixture.supervisor.wakes(Self.name)
        // With each failure all of the store is read again.
        func failures() -> Int {
            fixture.gateway.errors.components(separatedBy: "store of pushes failed").count
        }
        let (before, start) = (failures(), BootClock.now())
        for _ in 0..<40 { #expect(try fixture.push(path, body) == 503) }
        let more = failures() - before
        #expect(Int64(more) <= 2 + (BootClock.now() - start) / 1_000_000_000, "\(more)")
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(try fixture.supervisor.wakes(Self.name) == wakes)
        let other = try Program(
            "nightbell", ["list"], environment: ["NIGHTBELL_SOCKET": fixture.supervisor.socket]
        ).outcome()
        #expect(other.code == 0)
        let remounted = try Program("/bin/mount", ["-o", "remount,size=4m", own]).outcome()
        #expect(remounted.code == 0, "\(remounted)")
        #expect(try eventually { try fixture.push(path, "there is room") == 201 })
    }

    @Test("While the store can be neither written nor read, nothing is taken for stored")
    func unreadableStore() throws {
        let fixture = try GatewayFixture(pushes: true)
        let client = try fixture.supervisor.client(Self.name)
        let path = try fixture.pushPath(client)
        func rename(_ table: String, _ name: String) throws {
            let code = """
                import sqlite3, sys
                with sqlite3.connect(sys.argv[1], 20) as database:
                    database.execute("ALTER TABLE \(table) RENAME TO \(name)")
                """
            let outcome = try Program(
                "/usr/bin/python3", ["-c", code, fixture.pushStore + "/pushes.sqlite"]
            ).outcome()
            #expect(outcome.code == 0, "\(outcome)")
        }
        try rename("number", "lost")
        // The second time, the first one must not have left an address behind.
        for count in 1...2 {
            try client.say("push-endpoint second")
            let isRefused = eventually(within: 20_000) {
                client.output.components(separatedBy: "\nerror ").count == count + 1
            }
            #expect(isRefused, "\(client.output)")
        }
        #expect(client.output.components(separatedBy: "/push/").count == 2, "\(client.output)")
        #expect(try fixture.push(path, "nowhere") == 503)
        try rename("lost", "number")
        let isStored = try eventually(within: 60_000) { try fixture.push(path, "to the first") == 201 }
        #expect(isStored, "\(fixture.gateway.errors)")
        #expect(try fixture.push(try fixture.pushPath(client, named: "second"), "to the second") == 201)
        for name in ["first", "second"] { try client.wrote(" to the \(name)\n") }
    }

    @Test("No other user can read the store, and a second gateway does not touch it")
    func privateStore() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        #expect(try fixture.push(path, "secret") == 201)
        try client.wrote(" secret\n")
        for name in try FileManager.default.contentsOfDirectory(atPath: fixture.pushStore)
        where name.hasPrefix("pushes") || name == "lock" {
            let attributes = try FileManager.default.attributesOfItem(atPath: fixture.pushStore + "/" + name)
            #expect((attributes[.posixPermissions] as? Int).map { $0 & 0o077 } == 0, "\(name)")
        }
        let second = try Program(
            "/usr/bin/setpriv",
            [
                "--reuid", GatewayFixture.user, "--regid", "nogroup", "--clear-groups",
                Program.product("nightbell-gateway"), "--listen", "0", "--tokens",
                fixture.directory.file("tokens"), "--socket", fixture.supervisor.socket, "--push",
                fixture.pushStore, "--push-socket", fixture.pushStore + "/other.sock",
            ])
        #expect(eventually(within: 20_000) { second.errors.contains("another process has") })
        // Nothing waits there for a store: its sender would send it again.
        let token = try fixture.token("sender", "push")
        try second.wrote("/\n")
        let port = try #require(
            second.output.split(separator: ":").last?.split(separator: "/").first.flatMap { Int($0) })
        let sender = try HTTPPeer(port: port)
        try sender.request(
            "POST", "/v1/clients/\(Self.name)/push", token: token, headers: ["TTL: 600"], body: "lost")
        #expect(try sender.response().status == 503)
        second.send(signal: SIGTERM)
        #expect(try fixture.push(path, "still there") == 201)
        try client.wrote(" still there\n")
    }

    /// Connects to the push service as another user, and does this with each of `sockets`.
    private func stranger(_ fixture: GatewayFixture, _ body: String) throws -> Program {
        let program = """
            import os, socket, sys, time
            os.setgroups([]); os.setgid(65533); os.setuid(65533)
            path = sys.argv[1]
            def connect():
                one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                one.connect(path)
                return one
            \(body)
            """
        return try Program("/usr/bin/python3", ["-c", program, fixture.pushStore + "/push.sock"])
    }

    @Test("A stranger cannot take messages, and its nonsense ends only its own connection")
    func nonsense() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try fixture.sleeper()
        // Take for uid 0: client "org.example.reader"; it is about the stranger's own client of that name. A
        // request that names another uid is refused.
        let hex = "08011212" + Self.name.utf8.map { String(format: "%02x", $0) }.joined()
        let outcome = try stranger(
            fixture,
            """
            one = connect()
            one.send(bytes.fromhex("\(hex)3200"))
            print("own", one.recv(4096).hex())
            one.send(bytes.fromhex("\(hex)18e807" + "3200"))
            print("other", one.recv(4096).hex())
            for packet in [b"\\xff" * 100, b"\\x08\\x00", os.urandom(60000), b"\\x08\\x01"]:
                one = connect()
                one.send(packet)
                print("end", len(one.recv(4096)))
            """
        ).outcome()
        #expect(outcome.code == 0, "\(outcome)")
        let lines = outcome.output.split(separator: "\n").map(String.init)
        // An empty portion, and a refusal with the reason 2.
        #expect(lines.first == "own 08012a00" || lines.first?.hasPrefix("own 0801") == true)
        #expect(lines.dropFirst().first?.contains("other 08011a") == true, "\(lines)")
        #expect(lines.filter { $0 == "end 0" }.count == 4, "\(lines)")
        #expect(try fixture.push(path, "undisturbed") == 201)
        try client.wrote(" undisturbed\n")
    }
}
