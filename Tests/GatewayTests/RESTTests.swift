import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite("The interface for programs", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct RESTTests {
    @Test("Clients are listed and shown by the names of the wire schema")
    func clients() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        let phone = try fixture.supervisor.suspended("org.example.phone")
        let chat = try fixture.supervisor.client("org.example.chat")
        #expect(
            try eventually(within: 20_000) {
                let list = try fixture.get("/v1/clients", token: token).object
                let clients = list["clients"] as? [[String: Any]] ?? []
                return clients.map { $0["identifier"] as? String } == [
                    "org.example.chat", "org.example.phone",
                ]
                    && clients.map { $0["state"] as? String } == ["inactive", "suspended"]
                    && list["total"] as? Int == 2 && list["next"] is NSNull
            })
        let shown = try fixture.get("/v1/clients/org.example.phone", token: token)
        #expect(shown.status == 200 && shown.headers["content-type"] == "application/json")
        #expect((shown.object["sockets"] as? [Any])?.count == 1)
        #expect(shown.object["uid"] as? Int == 0)

        let page = try fixture.get("/v1/clients?limit=1", token: token).object
        #expect(page["next"] as? String == "org.example.chat")
        let rest = try fixture.get("/v1/clients?limit=1&after=org.example.chat", token: token).object
        #expect((rest["clients"] as? [[String: Any]])?.first?["identifier"] as? String == "org.example.phone")
        let asleep = try fixture.get("/v1/clients?state=suspended&search=phone", token: token).object
        #expect(asleep["total"] as? Int == 1)
        let recent = try fixture.get("/v1/clients?order=recent", token: token).object
        #expect(
            (recent["clients"] as? [[String: Any]])?.first?["identifier"] as? String == "org.example.chat")
        for query in ["state=sleepy", "limit=0", "limit=1001", "limit=x", "order=up"] {
            let refused = try fixture.get("/v1/clients?\(query)", token: token)
            #expect(refused.status == 400 && refused.errorCode == "INVALID_ARGUMENT", "\(query)")
        }
        #expect(
            try eventually(within: 20_000) {
                let status = try fixture.get("/v1/status", token: token).object
                return (status["clients_by_state"] as? [String: Int])?["suspended"] == 1
            })
        _ = (phone, chat)
    }

    @Test("A client is woken, suspended, quit and launched")
    func actions() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        let phone = try fixture.supervisor.suspended("org.example.phone")
        try phone.say("task-in-wake 60")
        #expect(try fixture.post("/v1/clients/org.example.phone/wake", token: token).status == 204)
        #expect(
            try eventually(within: 20_000) {
                let counters =
                    try fixture.get("/v1/clients/org.example.phone", token: token).object["counters"]
                    as? [String: Int]
                return counters?["wakes_request"] == 1
            })
        try fixture.supervisor.reaches("suspended", "org.example.phone")
        let running = try fixture.supervisor.client("org.example.chat")
        let refused = try fixture.post("/v1/clients/org.example.chat/suspend", token: token)
        #expect(refused.status == 409 && refused.errorCode == "ILLEGAL_STATE", "it is in the foreground")
        #expect(try fixture.post("/v1/clients/org.example.phone/launch", token: token).status == 204)
        #expect(try fixture.post("/v1/clients/org.example.phone/quit", token: token).status == 204)
        #expect(
            try eventually(within: 20_000) {
                try fixture.get("/v1/clients/org.example.phone", token: token).status == 404
            })
        let gone = try fixture.post("/v1/clients/org.example.phone/wake", token: token)
        #expect(gone.status == 404 && gone.errorCode == "NO_SUCH_CLIENT")
        _ = running
    }

    /// A supervisor that ends the connection with the first request of this kind, without an answer. It knows every
    /// client until it has read that one is to be quit, or none.
    private static let forgetful = """
        import os, socket, sys, threading
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(sys.argv[1])
        listener.listen()
        tags = {bytes([(field << 3) % 128 | 130, field >> 4]): name
            for field, name in ((34, "show"), (36, "wake"), (38, "quit"))}
        known, lost = sys.argv[2] == "known", sys.argv[3]
        def serve(one):
            global known, lost
            while packet := one.recv(65536):
                request = tags.get(packet[2:4])
                if not request: continue
                if request == lost:
                    lost = ""
                    if request == "quit": known = False
                    break
                # The number of the request, and ClientInfo or an error: NO_SUCH_CLIENT.
                one.send(packet[:2] + bytes([0x8a, 2, 0] if known and request == "show" else [0x1a, 2, 8, 46]))
            one.close()
        print("listens", flush=True)
        while True:
            one, _ = listener.accept()
            threading.Thread(target=serve, args=[one], daemon=True).start()
        """

    @Test(
        "A client that was quit when the supervisor died has been quit; one that was not known is not",
        arguments: [
            ("known", "quit", [("quit", 204), ("quit", 404)]), ("unknown", "quit", [("quit", 404)]),
            ("unknown", "show", [("quit", 404)]), ("unknown", "wake", [("wake", 404), ("wake", 404)]),
        ])
    func repeatedQuit(clients: String, lost: String, requests: [(String, Int)]) throws {
        let directory = try TemporaryDirectory()
        let socket = directory.file("nightbell.sock")
        let supervisor = try Program("/usr/bin/python3", ["-c", Self.forgetful, socket, clients, lost])
        try supervisor.wrote("listens")
        let made = try Program.run(
            "nightbell-gateway",
            ["token", "create", "test", "--tokens", directory.file("tokens"), "--scope", "wake"])
        let token = made.output.trimmingCharacters(in: .whitespacesAndNewlines)
        let gateway = try Program(
            "nightbell-gateway",
            ["--listen", "0", "--tokens", directory.file("tokens"), "--socket", socket])
        try gateway.wrote("/\n")
        let port = try #require(
            gateway.output.split(separator: ":").last?.split(separator: "/").first.flatMap { Int($0) })
        let peer = try HTTPPeer(port: port)
        for (action, status) in requests {
            try peer.request("POST", "/v1/clients/a/\(action)", token: token)
            #expect(try peer.response().status == status, "\(action)")
        }
    }

    @Test("Tokens are made one after another, and all can read their file whatever the umask is")
    func tokenFile() throws {
        let directory = try TemporaryDirectory()
        let file = directory.file("tokens")
        let makers = try (0..<8).map { number in
            try Program(
                "/bin/sh",
                [
                    "-c", "umask 077; exec \"$@\"", "sh", Program.product("nightbell-gateway"), "token",
                    "create", "t\(number)", "--tokens", file, "--scope", "read",
                ])
        }
        for maker in makers { #expect(try maker.outcome().code == 0) }
        let listed = try Program.run("nightbell-gateway", ["token", "list", "--tokens", file])
        #expect(listed.output.split(separator: "\n").count == 8, "\(listed.output)")
        let attributes = try FileManager.default.attributesOfItem(atPath: file)
        #expect(attributes[.posixPermissions] as? Int == 0o644)
    }

    @Test("Without a token of the right scope there is nothing but health and the page")
    func scopes() throws {
        let fixture = try GatewayFixture(pushes: true)
        let phone = try fixture.supervisor.client("org.example.phone")
        _ = try fixture.pushPath(phone)
        try phone.say("background")
        try fixture.supervisor.reaches("suspended", "org.example.phone")
        let reader = try fixture.token("reader", "read")
        let pusher = try fixture.token("pusher", "push")
        let waker = try fixture.token("waker", "wake")
        let reading = [
            "/v1/clients", "/v1/clients/org.example.phone", "/v1/status", "/v1/events", "/metrics",
        ]
        for path in reading {
            for token in [nil, "", "x", reader + "0", String(reader.dropLast()), "nbgw_"] {
                let refused = try fixture.get(path, token: token)
                #expect(refused.status == 401 && refused.errorCode == "UNAUTHENTICATED", "\(path)")
                #expect(refused.headers["www-authenticate"] == "Bearer")
            }
            for token in [pusher, waker] {
                let refused = try fixture.get(path, token: token)
                #expect(refused.status == 403 && refused.errorCode == "SCOPE_REQUIRED", "\(path)")
            }
        }
        for action in ["wake", "suspend", "quit", "launch", "push"] {
            let path = "/v1/clients/org.example.phone/\(action)"
            let refused = try fixture.post(path, headers: ["TTL: 60"])
            #expect(refused.status == 401 && refused.errorCode == "UNAUTHENTICATED", "\(action)")
            for token in [reader, action == "push" ? waker : pusher] {
                let refused = try fixture.post(path, token: token, headers: ["TTL: 60"])
                #expect(refused.status == 403 && refused.errorCode == "SCOPE_REQUIRED", "\(action)")
            }
            #expect(try fixture.get(path, token: waker).status == 405)
        }
        #expect(try fixture.state("org.example.phone", token: reader) == "suspended")
        let pushed = try fixture.post(
            "/v1/clients/org.example.phone/push", token: pusher, headers: ["TTL: 60"], body: "hello")
        #expect(pushed.status == 201)
        try phone.wrote(" hello\n")
        for path in ["/", "/dashboard.js", "/dashboard.css", "/healthz", "/v1/openapi.json"] {
            #expect(try fixture.get(path).status == 200, "\(path)")
        }
        #expect(try fixture.get("/nothing").errorCode == "NOT_FOUND")
        for path in ["/", "/nothing"] {
            let policy = try fixture.get(path).headers["content-security-policy"] ?? ""
            let rules = policy.components(separatedBy: "; ")
            #expect(rules.contains("default-src 'none'") && rules.contains("script-src 'self'"), "\(policy)")
        }
        // With a port alone, other machines do not reach it.
        let listening = try Program.run(
            "/usr/bin/env",
            ["ss", "--tcp", "--listening", "--numeric", "--no-header", "sport = :\(fixture.port)"],
            environment: ["PATH": "/usr/bin:/bin:/usr/sbin:/sbin"])
        let local = listening.output.split(separator: "\n").map { $0.split(separator: " ")[3] }
        #expect(local == ["127.0.0.1:\(fixture.port)"], "\(listening)")

        // Neither tokens nor what was guessed is in the log or the file.
        let written = try String(contentsOfFile: fixture.tokenFile, encoding: .utf8) + fixture.gateway.errors
        for token in [reader, pusher, waker] { #expect(!written.contains(token.dropFirst(5).prefix(16))) }

        let revoked = try Program.run(
            "nightbell-gateway", ["token", "revoke", "reader", "--tokens", fixture.tokenFile])
        #expect(revoked.code == 0)
        #expect(try eventually(within: 10_000) { try fixture.get("/v1/status", token: reader).status == 401 })
        #expect(try fixture.get("/v1/status", token: waker).status == 403)
        _ = phone
    }

    @Test("The supervisor decides by the gateway's user, whatever its tokens permit")
    func rights() throws {
        let readOnly = try GatewayFixture(rights: "read")
        let token = try readOnly.token("test", "read", "wake")
        let phone = try readOnly.supervisor.suspended("org.example.phone")
        let refused = try readOnly.post("/v1/clients/org.example.phone/wake", token: token)
        #expect(refused.status == 403 && refused.errorCode == "PERMISSION_DENIED")
        #expect(try readOnly.state("org.example.phone", token: token) == "suspended")

        // A user without an account.
        let numbered = try GatewayFixture(user: "54321", rights: "read")
        _ = try numbered.supervisor.suspended("org.example.phone")
        let list = try numbered.get("/v1/clients", token: try numbered.token("test", "read"))
        #expect(list.status == 200 && list.body.contains("org.example.phone"), "\(list)")

        let without = try GatewayFixture(rights: nil)
        let other = try without.token("test", "read", "wake")
        let chat = try without.supervisor.suspended("org.example.chat")
        #expect(try without.get("/v1/clients/org.example.chat", token: other).status == 404)
        #expect(try without.get("/v1/clients", token: other).object["total"] as? Int == 0)
        _ = (phone, chat)
    }

    @Test("Events are streamed, after the last one that is known")
    func events() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        try fixture.isReady()
        let stream = try HTTPPeer(port: fixture.port)
        try stream.request("GET", "/v1/events", token: token)
        #expect(try stream.head().headers["content-type"] == "text/event-stream")
        _ = try stream.streams("retry: ")
        let phone = try fixture.supervisor.suspended("org.example.phone")
        let text = try stream.streams("\"state\":\"suspended\"")
        #expect(text.contains("\"kind\":\"registered\""))
        let first = try #require(text.split(separator: "\n").first { $0.hasPrefix("id: ") })

        let later = try HTTPPeer(port: fixture.port)
        try later.request(
            "GET", "/v1/events?identifier=org.example.phone", token: token,
            headers: ["Last-Event-ID: \(first.dropFirst(4))"])
        _ = try later.head()
        let replayed = try later.streams("\"state\":\"suspended\"")
        #expect(!replayed.contains("\(first)\n") && !replayed.contains("interrupted"))
        // The id of another gateway's event, however small or large.
        for id in ["1", "18000000000000000000"] {
            let stranger = try HTTPPeer(port: fixture.port)
            try stranger.request("GET", "/v1/events", token: token, headers: ["Last-Event-ID: \(id)"])
            _ = try stranger.head()
            let text = try stranger.streams("\"state\":\"suspended\"")
            #expect(text.contains("event: interrupted\n") && text.contains("\(first)\n"), "\(id)")
        }
        let fresh = try HTTPPeer(port: fixture.port)
        try fresh.request("GET", "/v1/events?after=0", token: token)
        _ = try fresh.head()
        #expect(try !fresh.streams("\"state\":\"suspended\"").contains("interrupted"))
        _ = try fixture.post("/v1/clients/org.example.phone/wake", token: token)
        #expect(try later.streams("\"kind\":\"wake\"").contains("\"detail\":\"request\""))

        // A revoked token's streams end.
        _ = try Program.run("nightbell-gateway", ["token", "revoke", "test", "--tokens", fixture.tokenFile])
        #expect(try later.ends(within: 40_000))
        #expect(try stream.ends(within: 40_000))
        _ = phone
    }

    @Test("Beside a supervisor that hangs, requests do not wait for each other")
    func hanging() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        let status = try fixture.get("/v1/status", token: token).object
        let worker = pid_t(try #require(status["process_id"] as? Int))
        #expect(stop(worker))
        defer { kill(worker, SIGCONT) }
        let start = BootClock.now()
        let peers = try (0..<12).map { _ in try HTTPPeer(port: fixture.port) }
        for peer in peers { try peer.request("POST", "/v1/clients/a/wake", token: token) }
        for peer in peers {
            let response = try peer.response()
            #expect(response.status == 503, "\(response)")
        }
        // The first one waits for five seconds.
        #expect(BootClock.now() - start < 25_000_000_000)
        kill(worker, SIGCONT)
        #expect(try eventually(within: 20_000) { try fixture.get("/v1/status", token: token).status == 200 })
    }

    @Test("The gateway goes on with a supervisor that was replaced, and ends in order")
    func replaced() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        try fixture.isReady()
        let phone = try fixture.supervisor.suspended("org.example.phone")
        let stream = try HTTPPeer(port: fixture.port)
        try stream.request("GET", "/v1/events", token: token)
        _ = try stream.head()
        let status = try fixture.get("/v1/status", token: token).object
        let worker = try #require(status["process_id"] as? Int)
        #expect(kill(pid_t(worker), SIGKILL) == 0)
        _ = try stream.streams("event: interrupted")
        #expect(
            try eventually(within: 20_000) {
                try fixture.get("/v1/status", token: token).object["restarts"] as? Int == 1
            })
        try fixture.isReady()
        #expect(try fixture.post("/v1/clients/org.example.phone/wake", token: token).status == 204)
        _ = try stream.streams("\"kind\":\"wake\"")

        func metric(_ name: String) throws -> Double? {
            try fixture.get("/metrics", token: token).body.split(separator: "\n")
                .first { $0.hasPrefix(name + " ") }.flatMap { Double($0.dropFirst(name.count + 1)) }
        }
        #expect(try eventually(within: 20_000) { try metric("nightbell_recoveries_total") == 1 })
        let limit = try #require(try metric("nightbell_descriptors_limit"))
        let open = try #require(try metric("nightbell_descriptors_open"))
        #expect(open >= 3 && open < limit, "\(open) of \(limit)")
        #expect(try metric("nightbell_memory_reclaimed_bytes_total") == 0)
        try fixture.supervisor.reaches("suspended", "org.example.phone")
        #expect(try fixture.supervisor.nightbell("relieve").code == 0)
        var reclaimed: Double = 0
        #expect(
            try eventually(within: 20_000) {
                reclaimed = try metric("nightbell_memory_reclaimed_bytes_total") ?? 0
                return reclaimed > 0
            })
        #expect(reclaimed > 100_000 && reclaimed < 1e9, "\(reclaimed)")

        let idle = try HTTPPeer(port: fixture.port)
        fixture.gateway.send(signal: SIGTERM)
        let outcome = try fixture.gateway.outcome()
        #expect(outcome.code == 0)
        #expect(outcome.errors.contains("the gateway has ended as it was asked to"), "\(outcome.errors)")
        #expect(try stream.ends(within: 1_000) && idle.ends(within: 1_000))
        _ = phone
    }
}
