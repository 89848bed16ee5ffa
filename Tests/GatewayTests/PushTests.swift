import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

/// Messages for clients that sleep, have no process, or do not exist, through real processes.
@Suite("Pushes", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct PushTests {
    private static let name = "org.example.reader"

    /// A client that has an address.
    private func reader(
        _ fixture: GatewayFixture, _ identifier: String = name
    ) throws -> (client: Program, path: String) {
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.supervisor.socket, "--identifier", identifier, "--",
                Program.product("scripted-client"),
            ])
        try client.say("hello \(identifier)")
        return (client, try address(client))
    }

    private func address(_ client: Program) throws -> String {
        try client.say("push-endpoint")
        try client.say("echo asked")
        try client.wrote("ok asked")
        let line = client.output.split(separator: "\n").last { $0.contains("/push/") }
        let url = try #require(line, "\(client.output)").split(separator: " ").last
        let path = try #require(url?.split(separator: "/").last)
        #expect(path.utf8.count == 32)
        return "/push/\(path)"
    }

    private func send(
        _ fixture: GatewayFixture, _ path: String, _ body: String, _ headers: String...
    ) throws -> HTTPPeer.Response {
        try fixture.post(path, headers: ["TTL: 600"] + headers, body: body)
    }

    private func sleep(_ fixture: GatewayFixture, _ client: Program, _ identifier: String = name) throws {
        try client.say("background")
        try fixture.supervisor.reaches("suspended", identifier)
    }

    private func quit(_ fixture: GatewayFixture, _ client: Program) throws {
        #expect(try fixture.supervisor.nightbell("quit", Self.name).code == 0)
        _ = try client.outcome()
    }

    private func observation(_ fixture: GatewayFixture, _ identifier: String = name) throws -> [String: Any] {
        let all = try fixture.supervisor.shown(identifier)["observations"] as? [[String: Any]]
        return try #require(all?.first { $0["subject"] as? String == "pushes" })
    }

    private func wakes(_ fixture: GatewayFixture, _ identifier: String = name) throws -> Int {
        let counters = try fixture.supervisor.shown(identifier)["counters"] as? [String: Any]
        return counters?["wakes_push"] as? Int ?? 0
    }

    // MARK: From a sender to a sleeper

    @Test("A message wakes a sleeping client, which handles it and sleeps again")
    func wakesASleeper() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        let response = try send(fixture, path, "hello")
        #expect(response.status == 201 && response.headers["ttl"] == "600")
        try client.wrote("push budget_ms=30000")
        try client.wrote(" hello\n")
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(try wakes(fixture) == 1)
        #expect(try observation(fixture)["is_told"] as? Bool == true)
        // It is gone: nothing is told again, and the next process finds nothing.
        #expect(try fixture.supervisor.nightbell("wake", Self.name).code == 0)
        #expect(try address(client) == path)
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(client.output.components(separatedBy: " hello\n").count == 2)
    }

    @Test("The name that a sender gets for its message tells nothing of other messages")
    func locations() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try reader(fixture)
        let locations = try (0..<2).map { _ in
            try #require(try send(fixture, path, "x").headers["location"]).split(separator: "/")
        }
        for location in locations {
            #expect(location.count == 2 && location.first == "push-message", "\(location)")
            #expect(location.last?.utf8.count == 32 && Int(location.last ?? "") == nil)
        }
        #expect(locations[0] != locations[1])
        withExtendedLifetime(client) {}
    }

    @Test("A client in the foreground is told at once")
    func inTheForeground() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.perHour=1"], pushes: true)
        let (client, path) = try reader(fixture)
        for index in 1...4 {
            #expect(try send(fixture, path, "m\(index)", "Urgency: low").status == 201)
            try client.wrote(" m\(index)\n")
        }
    }

    @Test("A client without a process is launched for a message")
    func launches() throws {
        let fixture = try GatewayFixture(pushes: true)
        let log = fixture.directory.file("log")
        let example = Program.product("mode-example")
        let client = try Program(
            "nightbell",
            [
                "run", "--socket", fixture.supervisor.socket, "--identifier", Self.name, "--", "/bin/sh",
                "-c",
                "exec \(example) push >>\(log)",
            ])
        func text() -> String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }
        #expect(eventually(within: 30_000) { text().contains("falls asleep") }, "\(client.errors)")
        let token = try #require(
            text().split(separator: "\n").first { $0.contains("/push/") }?.split(separator: "/").last)
        try fixture.supervisor.reaches("suspended", Self.name)
        let process = try #require(try fixture.supervisor.shown(Self.name)["process_id"] as? Int)
        kill(pid_t(process), SIGKILL)
        try fixture.supervisor.reaches("dormant", Self.name)
        #expect(try send(fixture, "/push/\(token)", "come back").status == 201)
        #expect(eventually(within: 30_000) { text().contains(": come back") }, "\(text())")
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(text().components(separatedBy: ": come back").count == 2)
        #expect(text().components(separatedBy: "address ").count == 3)
        // The address is the same.
        #expect(text().components(separatedBy: "/push/\(token)").count == 3)
    }

    @Test(
        "A declared client of which the supervisor knows nothing is launched for a message, unless it was quit"
    )
    func declared() throws {
        let directory = try TemporaryDirectory()
        let (manifests, log) = (directory.file("manifests"), directory.file("log"))
        mkdir(manifests, 0o755)
        let manifest = """
            identifier: \(Self.name)
            modes: []
            command: [/bin/sh, -c, "exec \(Program.product("mode-example")) push >>\(log)"]
            """
        try Data(manifest.utf8).write(to: URL(fileURLWithPath: manifests + "/reader.yaml"))
        let fixture = try GatewayFixture(
            daemon: [
                "--set", "manifestDirectory=\(manifests)", "--set",
                "stateDirectory=\(directory.file("state"))",
            ], pushes: true)
        func text() -> String { (try? String(contentsOfFile: log, encoding: .utf8)) ?? "" }
        #expect(try fixture.supervisor.nightbell("launch", Self.name).code == 0)
        #expect(eventually(within: 30_000) { text().contains("falls asleep") })
        let address = text().split(separator: "\n").first { $0.contains("/push/") }?.split(separator: "/")
            .last
        let path = "/push/" + (try #require(address))
        try fixture.supervisor.reaches("suspended", Self.name)
        try end(fixture)
        try fixture.supervisor.restart()
        #expect(try fixture.supervisor.nightbell("show", Self.name).code != 0)
        #expect(try send(fixture, path, "come back").status == 201)
        #expect(eventually(within: 30_000) { text().contains(": come back") }, "\(text())")
        try fixture.supervisor.reaches("suspended", Self.name)
        #expect(text().components(separatedBy: ": come back").count == 2)

        try end(fixture)
        #expect(try fixture.supervisor.nightbell("quit", Self.name).code == 0)
        try fixture.supervisor.restart()
        #expect(try send(fixture, path, "later").status == 201)
        // It has no record: its user is known by its declaration.
        let file = directory.file("message")
        try Data("later by command".utf8).write(to: URL(fileURLWithPath: file))
        let pushed = try fixture.supervisor.nightbell("push", Self.name, "--content-available", file)
        #expect(pushed.code == 0, "\(pushed)")
        let token = try fixture.token("pushing", "push", "read")
        let response = try fixture.post(
            "/v1/clients/\(Self.name)/push", token: token, headers: ["TTL: 600"], body: "later by HTTP")
        #expect(response.status == 201, "\(response.body)")
        // It is not known by then either, though the message has been reported.
        #expect(try fixture.supervisor.nightbell("status").code == 0)
        #expect(try fixture.supervisor.nightbell("show", Self.name).code != 0)
        #expect(!text().contains(": later"))
        #expect(try fixture.supervisor.nightbell("launch", Self.name).code == 0)
        for body in ["later\n", "later by command\n", "later by HTTP\n"] {
            #expect(eventually(within: 30_000) { text().contains(": \(body)") }, "\(text())")
        }
    }

    /// As a start of the machine ends it.
    private func end(_ fixture: GatewayFixture) throws {
        let process = try #require(try fixture.supervisor.shown(Self.name)["process_id"] as? Int)
        kill(pid_t(process), SIGKILL)
        try fixture.supervisor.reaches("dormant", Self.name)
    }

    @Test("A client that was quit is not launched, and finds its message when its user starts it")
    func quit() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        try quit(fixture, client)
        #expect(try send(fixture, path, "later").status == 201)
        let (again, same) = try reader(fixture)
        #expect(same == path)
        try again.wrote(" later\n")
    }

    // MARK: Deaths

    @Test("A message that was accepted outlives the gateway")
    func gatewayDies() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.retry=200ms"], pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        try quit(fixture, client)
        #expect(try send(fixture, path, "kept").status == 201)
        try fixture.killGateway()
        try fixture.startGateway()
        let (again, same) = try reader(fixture)
        #expect(same == path)
        try again.wrote(" kept\n")
        // This one is told to a client that sleeps, though the gateway dies at once.
        try sleep(fixture, again)
        #expect(try send(fixture, path, "at once").status == 201)
        try fixture.killGateway()
        try fixture.startGateway()
        try again.wrote(" at once\n")
    }

    @Test("A worker that is replaced tells what waits")
    func workerDies() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.perHour=60"], pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        for round in 1...5 {
            let worker = try #require(
                try fixture.get("/v1/status", token: fixture.token("t\(round)", "read")).object["process_id"]
                    as? Int)
            kill(pid_t(worker), SIGKILL)
            #expect(try send(fixture, path, "round \(round)").status == 201)
            try client.wrote(" round \(round)\n")
        }
    }

    // MARK: Moments

    @Test("Beyond the hourly limit messages wait, and are told together")
    func limit() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.perHour=2"], pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        for index in 1...2 {
            #expect(try send(fixture, path, "m\(index)").status == 201)
            try client.wrote(" m\(index)\n")
            try fixture.supervisor.reaches("suspended", Self.name)
        }
        for index in 3...5 { #expect(try send(fixture, path, "m\(index)").status == 201) }
        #expect(
            try eventually(within: 20_000) { try observation(fixture)["waits_for"] as? String == "too-many" })
        #expect(try fixture.supervisor.nightbell("show", Self.name).output.contains("as often as it may be"))
        #expect(try wakes(fixture) == 2)
        // Woken for something else, it is told along.
        _ = try fixture.supervisor.nightbell("wake", Self.name)
        for index in 3...5 { try client.wrote(" m\(index)\n") }
        #expect(try wakes(fixture) == 3)
    }

    @Test("A topic replaces a waiting message")
    func topics() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "push.perHour=1"], pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        #expect(try send(fixture, path, "first").status == 201)
        try client.wrote(" first\n")
        try fixture.supervisor.reaches("suspended", Self.name)
        for score in ["1:0", "2:0", "2:1"] {
            #expect(try send(fixture, path, score, "Topic: score").status == 201)
        }
        #expect(try send(fixture, path, "other").status == 201)
        _ = try fixture.supervisor.nightbell("wake", Self.name)
        try client.wrote(" 2:1\n")
        try client.wrote(" other\n")
        #expect(!client.output.contains("1:0") && !client.output.contains("2:0"))
    }

    @Test("A client that does not complete its pushes is terminated")
    func incomplete() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "budgets.push=500ms"], pushes: true)
        let (client, path) = try reader(fixture)
        try client.say("fetch -")
        try sleep(fixture, client)
        #expect(try send(fixture, path, "unanswered").status == 201)
        try client.wrote("result=-")
        let outcome = try client.outcome()
        #expect(outcome.code != 0)
        #expect(
            try eventually(within: 20_000) {
                try fixture.supervisor.shown(Self.name)["state"] as? String == "dormant"
            })
        #expect(try observation(fixture)["waits_for"] as? String == "failed")
    }

    // MARK: Requests

    @Test("Wrong requests are refused by what is wrong with them")
    func wrongRequests() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try reader(fixture)
        let cases: [(headers: [String], body: String, status: Int)] = [
            ([], "x", 400), (["TTL: soon"], "x", 400), (["TTL: -1"], "x", 400),
            (["TTL: 1", "Urgency: now"], "x", 400), (["TTL: 1", "Topic: a b"], "x", 400),
            (["TTL: 1", "Topic: " + String(repeating: "a", count: 33)], "x", 400),
            (["TTL: 1", "Topic:"], "x", 400),
            (["TTL: 1"], String(repeating: "x", count: 4_097), 413),
            (["TTL: 99999999999999999999"], String(repeating: "x", count: 4_096), 201),
            (["TTL: 0"], "", 201), (["TTL: 1", "Urgency: Very-Low"], "x", 201),
            (["TTL: 1", "urgency: HIGH"], "x", 201),
        ]
        for wrong in cases {
            let response = try fixture.post(path, headers: wrong.headers, body: wrong.body)
            #expect(response.status == wrong.status, "\(wrong.headers) \(response.body)")
        }
        #expect(try fixture.post(path + "x", headers: ["TTL: 1"], body: "x").status == 404)
        #expect(try fixture.post("/push/", headers: ["TTL: 1"], body: "x").status == 404)
        #expect(try fixture.get(path).object["unifiedpush"] as? [String: Int] == ["version": 1])
        let peer = try HTTPPeer(port: fixture.port)
        try peer.request("PUT", path)
        let refused = try peer.response()
        #expect(refused.status == 405 && refused.headers["allow"] == "GET, HEAD, POST")
        try client.say("remove-push-endpoint")
        try client.say("echo removed")
        try client.wrote("ok removed")
        #expect(try fixture.post(path, headers: ["TTL: 1"], body: "x").status == 404)
    }

    @Test("A mailbox that is full refuses more, and takes more when it was emptied")
    func fullMailbox() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        try quit(fixture, client)
        for index in 1...256 { #expect(try send(fixture, path, "m\(index)").status == 201) }
        let refused = try send(fixture, path, "one too many")
        #expect(refused.status == 429 && refused.headers["retry-after"] == "60")
        let (again, _) = try reader(fixture)
        try again.wrote(" m256\n")
        #expect(try eventually(within: 20_000) { try send(fixture, path, "again").status == 201 })
        try again.wrote(" again\n")
        #expect(again.output.components(separatedBy: "\npushed ").count == 258)
    }

    @Test("The command line and the interface for programs leave messages, with the rights for that")
    func otherWays() throws {
        let fixture = try GatewayFixture(pushes: true)
        let (client, _) = try reader(fixture)
        try sleep(fixture, client)
        let file = fixture.directory.file("message")
        try Data("from a file".utf8).write(to: URL(fileURLWithPath: file))
        let outcome = try fixture.supervisor.nightbell("push", Self.name, "--content-available", file)
        #expect(outcome.code == 0, "\(outcome)")
        try client.wrote(" from a file\n")
        let path = "/v1/clients/\(Self.name)/push"
        let reading = try fixture.token("reading", "read")
        #expect(try fixture.post(path, token: reading, headers: ["TTL: 9"], body: "no").status == 403)
        let pushing = try fixture.token("pushing", "push", "read")
        #expect(try fixture.post(path, token: pushing, headers: ["TTL: 9"], body: "by HTTP").status == 201)
        try client.wrote(" by HTTP\n")
        #expect(
            try fixture.post("/v1/clients/nobody/push", token: pushing, headers: ["TTL: 9"]).status == 404)
        try Data(repeating: 0, count: 4_097).write(to: URL(fileURLWithPath: file))
        #expect(try fixture.supervisor.nightbell("push", Self.name, "--content-available", file).code == 65)
        #expect(
            try fixture.supervisor.nightbell("push", Self.name, "--content-available", "/none").code == 66)
    }

    @Test("Without a push service a client is told so")
    func noService() throws {
        let fixture = try GatewayFixture()
        let client = try fixture.supervisor.client(Self.name)
        try client.say("push-endpoint")
        try client.wrote("error pushUnavailable")
        let file = fixture.directory.file("message")
        try Data("x".utf8).write(to: URL(fileURLWithPath: file))
        #expect(try fixture.supervisor.nightbell("push", Self.name, "--content-available", file).code == 1)
    }

    @Test("With the right to read alone, the gateway cannot have clients woken")
    func rights() throws {
        let fixture = try GatewayFixture(rights: "read", pushes: true)
        let (client, path) = try reader(fixture)
        try sleep(fixture, client)
        #expect(try send(fixture, path, "unheard").status == 201)
        #expect(eventually(within: 20_000) { fixture.gateway.errors.contains("does not permit this") })
        #expect(try wakes(fixture) == 0)
    }
}
