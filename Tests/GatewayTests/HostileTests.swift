import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport
import Testing

@Suite(
    "Slow and hostile peers", .serialized, .enabled(if: geteuid() == 0, "needs root"),
    .timeLimit(.minutes(40)))
struct HostileTests {
    @Test("Too much, or what is no request, is refused, and others are served")
    func tooMuch() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        let long = String(repeating: "x", count: 20_000)
        let requests: [(String, Set<Int>)] = [
            ("GET / HTTP/1.1\r\nHost: a\r\nX-Long: \(long)\r\n\r\n", [400]),
            ("GET /\(String(repeating: long, count: 5)) HTTP/1.1\r\nHost: a\r\n\r\n", [400, 404, 414]),
            ("GET / HTTP/1.1\r\nHost: a\r\n" + String(repeating: "A: b\r\n", count: 100) + "\r\n", [400]),
            ("\u{16}\u{3}\u{1}garbage\r\n\r\n", [400]),
            ("GET / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", [400]),
            ("GET / HTTP/9.9\r\n\r\n", [400, 505]),
        ]
        for (text, allowed) in requests {
            let peer = try HTTPPeer(port: fixture.port)
            try? peer.send(text)
            if let response = try? peer.head() {
                #expect(allowed.contains(response.status), "\(response.status) for \(text.prefix(40))")
            }
            #expect(try fixture.get("/healthz").status == 200)
        }
        let poster = try HTTPPeer(port: fixture.port)
        try poster.send(
            "POST /v1/clients/a/wake HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \(token)\r\nContent-Length: 100000\r\n\r\n"
        )
        try? poster.send(String(repeating: "x", count: 100_000))
        if let response = try? poster.head() { #expect(response.status == 413) }
        #expect(try fixture.get("/v1/clients", token: token).status == 200)
    }

    @Test("With too few descriptors it says so and ends", arguments: [8, 12, 40])
    func fewDescriptors(limit: Int) throws {
        let directory = try TemporaryDirectory()
        let result = try Program.run(
            "/usr/bin/env",
            [
                "prlimit", "--nofile=\(limit):\(limit)", Program.product("nightbell-gateway"), "--listen",
                "0",
                "--tokens", directory.file("tokens"),
            ])
        #expect(result.code == EX_UNAVAILABLE, "\(result.code): \(result.errors)")
        #expect(result.errors.contains("this process may have only \(limit) descriptors"))
    }

    @Test("A peer that sends slowly, or nothing, is disconnected")
    func slow() throws {
        let fixture = try GatewayFixture()
        let silent = try HTTPPeer(port: fixture.port)
        let begins = try HTTPPeer(port: fixture.port)
        try begins.send("GET / HTTP/1.1\r\nHost: ")
        let withoutBody = try HTTPPeer(port: fixture.port)
        try withoutBody.send("POST /v1/clients/a/wake HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nx")
        let afterwards = try HTTPPeer(port: fixture.port)
        try afterwards.request("GET", "/healthz")
        #expect(try afterwards.response().status == 200)
        // It is refused before its body has come, and then ends its request.
        let refused = try HTTPPeer(port: fixture.port)
        try refused.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\n")
        #expect(try refused.response().status == 405)
        try refused.send("x")
        // One byte a second does not help.
        let start = BootClock.now()
        var isDribbling = true
        while isDribbling, BootClock.now() - start < 40_000_000_000 {
            do { try begins.send("a") } catch { isDribbling = false }
            if try begins.ends(within: 1_000) { isDribbling = false }
        }
        #expect(!isDribbling && BootClock.now() - start >= 5_000_000_000)
        for peer in [silent, withoutBody, afterwards, refused] { #expect(try peer.ends(within: 30_000)) }
    }

    @Test("A thousand connections are served after one another, and the supervisor wakes clients meanwhile")
    func manyConnections() throws {
        let fixture = try GatewayFixture(gateway: ["--connections", "64", "--streams", "16"])
        let token = try fixture.token("test", "read", "wake")
        let phone = try fixture.supervisor.suspended("org.example.phone")
        var idle: [HTTPPeer] = []
        // Those that are not accepted wait in the kernel's queue, which is full at some time.
        for _ in 0..<120 { idle.append(try HTTPPeer(port: fixture.port)) }
        let start = BootClock.now()
        #expect(try fixture.supervisor.nightbell("wake", "org.example.phone").code == 0)
        #expect(BootClock.now() - start < 5_000_000_000)
        // They are disconnected, and others take their place.
        #expect(try fixture.get("/healthz").status == 200)
        idle = []
        for _ in 0..<1_000 { #expect(try fixture.get("/healthz").status == 200) }

        var streams: [HTTPPeer] = []
        for _ in 0..<16 {
            let stream = try HTTPPeer(port: fixture.port)
            try stream.request("GET", "/v1/events", token: token)
            #expect(try stream.head().status == 200)
            streams.append(stream)
        }
        let refused = try fixture.get("/v1/events", token: token)
        #expect(refused.status == 503 && refused.errorCode == "TOO_MANY_STREAMS")
        streams = []
        #expect(
            try eventually(within: 40_000) {
                let stream = try HTTPPeer(port: fixture.port)
                try stream.request("GET", "/v1/events", token: token)
                return try stream.head().status == 200
            })
        _ = phone
    }

    @Test(
        "Peers that take all connections and ask for nothing, or no more, keep nobody out",
        arguments: [false, true])
    func idlePeers(hasAsked: Bool) throws {
        let fixture = try GatewayFixture(gateway: ["--connections", "24"])
        let token = try fixture.token("test", "read")
        let stream = try HTTPPeer(port: fixture.port)
        try stream.request("GET", "/v1/events", token: token)
        #expect(try stream.head().status == 200)
        let idle = try (0..<100).map { _ in try HTTPPeer(port: fixture.port) }
        // Some are closed by then.
        if hasAsked { for peer in idle { try? peer.request("GET", "/healthz") } }
        let start = BootClock.now()
        #expect(try fixture.get("/v1/clients", token: token).status == 200)
        // Each idle one has fifteen seconds for its request, if there is room.
        #expect(BootClock.now() - start < 8_000_000_000)
        // The connection that is in use has stayed.
        #expect(try !stream.ends(within: 100))
        withExtendedLifetime(idle) {}
    }

    @Test("A peer that asks whether to send its body is told to")
    func expectation() throws {
        let fixture = try GatewayFixture()
        let peer = try HTTPPeer(port: fixture.port)
        let head = "POST /push/unknown HTTP/1.1\r\nHost: a\r\nTTL: 1\r\nContent-Length: 1\r\n"
        for _ in 0..<2 {
            try peer.send(head + "Expect: 100-continue\r\n\r\n")
            #expect(try peer.head().status == 100)
            try peer.send("x")
            #expect(try peer.response().status == 404)
        }
    }

    @Test("A request without a host is refused")
    func hosts() throws {
        let fixture = try GatewayFixture()
        for (text, status) in [("1.1\r\n", 400), ("1.1\r\nHost: a\r\nHost: b\r\n", 400), ("1.0\r\n", 200)] {
            let peer = try HTTPPeer(port: fixture.port)
            try peer.send("GET /healthz HTTP/" + text + "\r\n")
            #expect(try peer.head().status == status)
        }
    }

    @Test("A response to HTTP/1.0 has no chunks, and ends with its connection")
    func oldVersion() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        let authorization = "Authorization: Bearer \(token)\r\n"
        for rest in ["", "Connection: keep-alive\r\n", "Expect: 100-continue\r\n"] {
            for path in ["/healthz", "/v1/clients", "/"] {
                let peer = try HTTPPeer(port: fixture.port)
                try peer.send("GET \(path) HTTP/1.0\r\n\(authorization)\(rest)\r\n")
                let response = try peer.text(until: "no such text")
                #expect(response.hasPrefix("HTTP/1.0 200 "), "\(path) \(rest) \(response.prefix(200))")
                #expect(!response.lowercased().contains("transfer-encoding"), "\(path)")
            }
        }
        // The request before it has its own version.
        let both = try HTTPPeer(port: fixture.port)
        try both.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /healthz HTTP/1.0\r\n\r\n")
        let responses = try both.text(until: "no such text")
        #expect(responses.hasPrefix("HTTP/1.1 200 ") && responses.contains("HTTP/1.0 200 "))
        // Events have no length.
        let peer = try HTTPPeer(port: fixture.port)
        try peer.send("GET /v1/events HTTP/1.0\r\n\(authorization)\r\n")
        let phone = try fixture.supervisor.suspended("org.example.phone")
        let events = try peer.text(until: "org.example.phone")
        #expect(events.hasPrefix("HTTP/1.0 200 ") && !events.lowercased().contains("chunked"))
        _ = phone
    }

    @Test("Requests to the supervisor have a rate, and those that a list answers cost it nothing")
    func rate() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read", "wake")
        let phone = try fixture.supervisor.suspended("org.example.phone")
        let peer = try HTTPPeer(port: fixture.port)
        var statuses: [Int: Int] = [:]
        for _ in 0..<20 {
            for _ in 0..<100 { try peer.request("GET", "/v1/clients/org.example.phone", token: token) }
            for _ in 0..<100 { statuses[try peer.response().status, default: 0] += 1 }
        }
        #expect(Set(statuses.keys).isSubset(of: [200, 429]), "\(statuses)")
        for _ in 0..<300 {
            try peer.request("GET", "/v1/clients", token: token)
            #expect(try peer.response().status == 200)
        }
        _ = phone
    }

    @Test("Peers that are refused again and again wait, and others do not")
    func refusals() throws {
        let fixture = try GatewayFixture()
        let peers = try (0..<100).map { _ in try HTTPPeer(port: fixture.port) }
        let request = "POST /push/unknown HTTP/1.1\r\nHost: a\r\nTTL: 1\r\nContent-Length: 0\r\n\r\n"
        let start = BootClock.now()
        for peer in peers { try peer.send(String(repeating: request, count: 30)) }
        var (answers, quickest) = (0, Int64.max)
        while BootClock.now() - start < 2_000_000_000 {
            let asked = BootClock.now()
            #expect(try fixture.get("/healthz").status == 200)
            quickest = min(quickest, BootClock.now() - asked)
            for peer in peers { answers += try peer.answersSoFar() }
        }
        let seconds = Double(BootClock.now() - start) / 1e9
        // On a busy machine some wait for a processor, but none for the pause.
        #expect(quickest < 900_000_000)
        // A burst of 100, 20 a second, and one a second for each connection.
        #expect(answers >= 100 && Double(answers) <= 200 + 120 * seconds, "\(answers) in \(seconds) s")
    }

    @Test(
        "Strangers for whom there is no room to wait are disconnected with their answer, also without a supervisor",
        arguments: [("/nothing", 404), ("/readyz", 503), ("/push/garbage", 503)])
    func crowdOfStrangers(path: String, status: Int) throws {
        let directory = try TemporaryDirectory()
        let gateway = try Program(
            "nightbell-gateway",
            [
                "--listen", "0", "--tokens", directory.file("tokens"), "--socket", directory.file("none"),
                "--push", directory.file("none"), "--push-socket", directory.file("push.sock"),
                "--connections", "13", "--refusals", "1", "--pages", "1",
            ])
        try gateway.wrote("/\n")
        let port = try #require(
            gateway.output.split(separator: ":").last?.split(separator: "/").first.flatMap { Int($0) })
        let first = try HTTPPeer(port: port)
        try first.request("GET", path)
        #expect(try first.response().headers["connection"] == nil)
        // There is room for six of them to wait.
        let crowd = try (0..<11).map { _ in try HTTPPeer(port: port) }
        let requests = 8
        for peer in crowd {
            try peer.send(String(repeating: "GET \(path) HTTP/1.1\r\nHost: a\r\n\r\n", count: requests))
        }
        var closed = 0
        for peer in crowd {
            for _ in 0..<requests {
                let response = try peer.response()
                #expect(response.status == status)
                guard response.headers["connection"] == "close" else { continue }
                closed += 1
                #expect(try peer.ends(within: 10_000))
                break
            }
        }
        #expect(closed >= 1)
    }

    @Test("Pages without a token have a rate, and monitoring does not wait for them")
    func pages() throws {
        let fixture = try GatewayFixture(gateway: ["--pages", "1"])
        let token = try fixture.token("test", "read")
        let paths = ["/", "/dashboard.js", "/v1/openapi.json", "/dashboard.css"].flatMap { [$0, $0, $0] }
        let start = BootClock.now()
        let peer = try HTTPPeer(port: fixture.port)
        for path in paths { try peer.request("GET", path) }
        let health = try HTTPPeer(port: fixture.port)
        try health.request("GET", "/healthz")
        #expect(try health.response().status == 200)
        try health.request("GET", "/v1/status", token: token)
        #expect(try health.response().status == 200)
        var answers = try peer.answersSoFar()
        #expect(answers < paths.count)
        while answers < paths.count, try peer.readMore() { answers += try peer.answersSoFar() }
        #expect(answers == paths.count)
        // Two at once, one a second by their rate, and one a second because it has waited.
        #expect(BootClock.now() - start >= 4_900_000_000)
    }

    private func processorTime(_ pid: pid_t) throws -> Int {
        let text = try String(contentsOfFile: "/proc/\(pid)/stat", encoding: .utf8)
        let fields = try #require(text.split(separator: ")").last).split(separator: " ")
        return try #require(Int(fields[11])) + #require(Int(fields[12]))
    }

    @Test("With no descriptor left it accepts nothing for a while, and goes on")
    func noDescriptorLeft() throws {
        let fixture = try GatewayFixture()
        #expect(try fixture.get("/healthz").status == 200)
        let open = try FileManager.default.contentsOfDirectory(atPath: "/proc/\(fixture.gateway.pid)/fd")
            .count
        let limited = try Program.run(
            "/usr/bin/setpriv",
            [
                "--reuid", GatewayFixture.user, "--regid", "nogroup", "--clear-groups", "/usr/bin/prlimit",
                "--pid", "\(fixture.gateway.pid)", "--nofile=\(open + 8):\(open + 8)",
            ])
        #expect(limited.code == 0, "\(limited)")
        for _ in 0..<3 {
            var crowd = try (0..<40).map { _ in try HTTPPeer(port: fixture.port) }
            for peer in crowd { try peer.request("GET", "/healthz") }
            #expect(try crowd[0].response().status == 200)
            let before = try processorTime(fixture.gateway.pid)
            usleep(1_000_000)
            // In hundredths of a second.
            #expect(try processorTime(fixture.gateway.pid) - before < 50)
            // Those that are waiting are served once others have gone.
            let last = crowd.removeLast()
            crowd = []
            #expect(try last.response().status == 200)
        }
        #expect(try fixture.get("/healthz").status == 200)
    }

    @Test("A peer that asks for much before it has answers is disconnected")
    func pipelines() throws {
        let fixture = try GatewayFixture()
        let request = "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n"
        let many = try HTTPPeer(port: fixture.port)
        try? many.send(String(repeating: request, count: 2_000))
        #expect(try many.ends(within: 20_000))
        #expect(try fixture.get("/healthz").status == 200)
    }

    @Test("A peer that asks for more while it follows events is disconnected")
    func pipelineBehindAStream() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        let start = BootClock.now()
        let peer = try HTTPPeer(port: fixture.port)
        for path in ["/v1/events", "/healthz"] { try peer.request("GET", path, token: token) }
        #expect(try peer.ends(within: 40_000))
        #expect(BootClock.now() - start >= 10_000_000_000)
    }

    @Test("The end of a gateway does not wait for peers that do not end")
    func end() throws {
        let fixture = try GatewayFixture()
        let token = try fixture.token("test", "read")
        let stream = try HTTPPeer(port: fixture.port)
        try stream.request("GET", "/v1/events", token: token)
        #expect(try stream.head().status == 200)
        let half = try HTTPPeer(port: fixture.port)
        try half.send("GET / HTTP/1.1\r\nHost: ")
        // It does not read the answers to what it sends.
        let deaf = try HTTPPeer(port: fixture.port)
        let requests = (0..<200).map { _ in
            "GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer \(token)\r\n\r\n"
        }
        try deaf.send(requests.joined())
        let start = BootClock.now()
        fixture.gateway.send(signal: SIGTERM)
        #expect(try fixture.gateway.outcome().code == 0)
        // Five seconds for last answers.
        #expect(BootClock.now() - start < 12_000_000_000)
        for peer in [stream, half, deaf] { #expect(try peer.ends(within: 5_000)) }
    }

    @Test("The kernel keeps little of what a peer does not read")
    func sendBuffer() throws {
        let fixture = try GatewayFixture()
        let peer = try HTTPPeer(port: fixture.port)
        try peer.request("GET", "/healthz")
        #expect(try peer.response().status == 200)
        let sockets = try Program.run("/usr/bin/ss", ["-tmnH", "sport = :\(fixture.port)"])
        #expect(sockets.output.contains("tb262144,"), "\(sockets.output)")
    }
}
