import EdgeTestSupport
import Foundation
import Glibc
import Nightbell
import ProgramTestSupport
import Testing

@Suite("Metrics", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct MetricsTests {
    private static let promtool = "/usr/bin/promtool"

    @Test("Prometheus' own tool accepts the page, and it has the numbers")
    func page() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        try fixture.isReady()
        let phone = try fixture.supervisor.suspended("org.example.phone")
        _ = try fixture.post("/v1/clients/org.example.phone/wake", token: token)
        #expect(
            try eventually(within: 20_000) {
                let text = try fixture.get("/metrics", token: token).body
                return [
                    "nightbell_up 1\n", "nightbell_clients{state=\"suspended\"} 1\n",
                    "nightbell_wakes_total{reason=\"request\"} 1\n",
                    "nightbell_wake_duration_seconds_count 1\n",
                    "nightbell_awake_because{cause=\"lingering\"} 0\n",
                ].allSatisfy { text.contains($0) }
            })
        for query in ["", "?clients=1"] {
            let response = try fixture.get("/metrics\(query)", token: token)
            #expect(response.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8")
            #expect(response.body.contains("{client=\"org.example.phone\"}") == !query.isEmpty)
            let tool = try Program(Self.promtool, ["check", "metrics"])
            try tool.say(response.body)
            tool.endInput()
            let outcome = try tool.outcome()
            #expect(outcome.code == 0 && outcome.errors.isEmpty, "\(outcome.errors)")
        }
        _ = phone
    }

    @Test("Pings have the name of their profile, and the dashboard for Grafana can show everything")
    func pings() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        let phone = try fixture.supervisor.client("org.example.phone")
        try phone.say("unix-pair flow")
        try phone.say("handover flow voip profile=lines interval=1000")
        try phone.say("background")
        try fixture.supervisor.reaches("suspended", "org.example.phone")
        #expect(
            try eventually(within: 20_000) {
                let text = try fixture.get("/metrics", token: token).body
                func value(_ sample: String) -> Int? {
                    text.split(separator: "\n").first { $0.hasPrefix(sample + " ") }
                        .flatMap { Int($0.dropFirst(sample.count + 1)) }
                }
                let sent = value(#"nightbell_pings_total{profile="bytes",kind="sent"}"#) ?? 0
                return sent > 1
                    && value(#"nightbell_wakes_avoided_total{profile="bytes",kind="ping"}"#) == sent
                    && value(#"nightbell_wakes_avoided_total{profile="bytes",kind="noise"}"#) == 0
                    && !text.contains(#"profile="irc""#)
            })

        #expect(
            try eventually(within: 20_000) {
                // It may be awake for a moment, because its pings have no answer.
                _ = try fixture.post("/v1/clients/org.example.phone/wake", token: token)
                let text = try fixture.get("/metrics", token: token).body
                return text.contains("nightbell_wakes_total{reason=\"request\"} ")
            })
        let file = try GrafanaFile()
        for query in ["", "?clients=1"] {
            let page = try fixture.get("/metrics\(query)", token: token).body
            for name in file.names {
                #expect(page.contains("\n\(name){") || page.contains("\n\(name) "), "\(name)")
            }
            let asleep = try #require(file.queries.first { $0.contains("asleep_seconds") })
            let states = ClientInfo.State.allCases.count - 1
            let outcome = try file.evaluated(with: page, [("round(\(asleep) * \(states), 0.001)", 1)])
            #expect(outcome.code == 0, "\(outcome.output) \(outcome.errors)")
        }
    }

    @Test("A client that handles messages is awake because of a push")
    func push() throws {
        let fixture = try GatewayFixture(pushes: true)
        let token = try fixture.token("test", "read")
        let (client, path) = try fixture.sleeper()
        try client.say("fetch -")
        _ = try fixture.supervisor.nightbell("wake", GatewayFixture.pushedName)
        try client.wrote("ok\n")
        try fixture.supervisor.reaches("suspended", GatewayFixture.pushedName)
        #expect(try fixture.push(path, "unanswered") == 201)
        #expect(
            try eventually(within: 20_000) {
                let shown = try fixture.get("/v1/clients/\(GatewayFixture.pushedName)", token: token).object
                // The names of its observations are its own.
                return shown["awake_causes"] as? [String] == ["push"]
                    && (shown["observations"] as? [Any])?.isEmpty == true
            })
        #expect(
            try eventually(within: 20_000) {
                let text = try fixture.get("/metrics", token: token).body
                return text.contains("nightbell_awake_because{cause=\"push\"} 1\n")
                    && text.contains("nightbell_awake_because{cause=\"other\"} 0\n")
            })
    }

    @Test("The gateway counts its own requests, with few labels whatever its peers say")
    func requests() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        for _ in 0..<3 { _ = try fixture.get("/nothing/\(UInt64.random(in: 0 ... .max))") }
        for method in ["PROPFIND", "DELETE", "REPORT"] {
            let peer = try HTTPPeer(port: fixture.port)
            try peer.request(method, "/healthz")
            _ = try peer.response()
        }
        let text = try fixture.get("/metrics", token: token).body
        let lines = text.split(separator: "\n").filter { $0.hasPrefix("nightbell_gateway_requests_total{") }
        #expect(lines.contains(#"nightbell_gateway_requests_total{method="GET",status="404"} 3"#), "\(lines)")
        #expect(lines.contains { $0.hasPrefix(#"nightbell_gateway_requests_total{method="other","#) })
        #expect(!text.contains("PROPFIND") && !text.contains("/nothing"))
        let count = lines.compactMap { $0.split(separator: " ").last.flatMap { Int($0) } }.reduce(0, +)
        #expect(
            text.contains("\nnightbell_gateway_request_duration_seconds_bucket{le=\"+Inf\"} \(count)\n"),
            "\(text)")
    }

    /// A supervisor with this many clients.
    private static let crowded = """
        import socket, sys, threading
        def number(value):
            return (bytes([value & 127 | 128]) + number(value >> 7)) if value > 127 else bytes([value])
        def field(tag, content):
            return number(tag << 3 | 2) + number(len(content)) + content
        clients = b"".join(field(1, field(1, b"c%d" % index)) for index in range(int(sys.argv[2])))
        # Status and List; the others are Watch.
        answers = {32: [field(32, b"")], 33: [field(35, clients), field(2, b"")]}
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(sys.argv[1])
        listener.listen()
        def serve(one):
            while packet := one.recv(65536):
                start = 2
                while packet[start - 1] & 128: start += 1
                tag = (packet[start] & 127 | packet[start + 1] << 7) >> 3
                for answer in answers.get(tag, [field(2, b"")]): one.send(packet[:start] + answer)
        print("listens", flush=True)
        while True:
            threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
        """

    @Test("Of a thousand clients each is named, and of more none", arguments: [(1_000, 1_000), (1_001, 0)])
    func crowd(clients: Int, named: Int) throws {
        let directory = try TemporaryDirectory()
        let (socket, tokens) = (directory.file("nightbell.sock"), directory.file("tokens"))
        let supervisor = try Program("/usr/bin/python3", ["-c", Self.crowded, socket, "\(clients)"])
        try supervisor.wrote("listens")
        let made = try Program.run(
            "nightbell-gateway", ["token", "create", "test", "--tokens", tokens, "--scope", "read"])
        let gateway = try Program(
            "nightbell-gateway", ["--listen", "0", "--tokens", tokens, "--socket", socket])
        try gateway.wrote("/\n")
        let port = try #require(
            gateway.output.split(separator: ":").last?.split(separator: "/").first.flatMap { Int($0) })
        let peer = try HTTPPeer(port: port)
        try peer.request(
            "GET", "/metrics?clients=1", token: made.output.trimmingCharacters(in: .whitespacesAndNewlines))
        let page = try peer.response().body
        let asleep = page.split(separator: "\n").filter {
            $0.hasPrefix("nightbell_client_asleep_seconds_total")
        }
        #expect(asleep.count { $0.contains("{client=\"c") } == named)
        #expect(asleep.count == max(named, 1))
        #expect(page.contains("nightbell_up 1\n"))
    }

    @Test("Without a supervisor the page says so")
    func noSupervisor() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        fixture.supervisor.daemon.send(signal: SIGTERM)
        _ = try fixture.supervisor.daemon.outcome()
        #expect(
            try eventually(within: 20_000) {
                try fixture.get("/metrics", token: token).body.contains("nightbell_up 0\n")
            })
        #expect(try fixture.get("/readyz").status == 503)
        #expect(try fixture.get("/healthz").status == 200)
        #expect(try fixture.get("/v1/clients", token: token).errorCode == "SUPERVISOR_UNAVAILABLE")
    }
}
