import EdgeTestSupport
import Glibc
import LinuxSystem
import Nightbell
import ProgramTestSupport
import Testing

@Suite("Lost events", .enabled(if: geteuid() == 0, "needs root"), .timeLimit(.minutes(40)))
struct LostEventTests {
    @Test("Events that the supervisor had to drop are told, and lengthen no time awake")
    func droppedEvents() throws {
        let fixture = try GatewayFixture(daemon: ["--set", "outgoingBytesPerConnection=131072"])
        let token = try fixture.token("test", "read")
        try fixture.isReady()
        // Long names fill the supervisor's queue soon.
        let names = (0..<8).map { "\($0)." + String(repeating: "n", count: 120) }
        let phones = try names.map { try fixture.supervisor.suspended($0) }
        let streams = try ["", "?identifier=\(names[0])"].map { query in
            let peer = try HTTPPeer(port: fixture.port)
            try peer.request("GET", "/v1/events\(query)", token: token)
            _ = try peer.head()
            _ = try peer.streams("retry: ")
            return peer
        }
        fixture.gateway.send(signal: SIGSTOP)
        #expect(eventually { threads(of: fixture.gateway.pid, are: "T") })
        var administration = try Administration(socketPath: fixture.supervisor.socket)
        var slowest: Int64 = 0
        /// Wakes all, and waits until all sleep again.
        func wake(_ round: Int) throws {
            let start = BootClock.now()
            for name in names { try administration.wake(name) }
            let deadline = BootClock.now() + 30_000_000_000
            while try !administration.list().allSatisfy({
                $0.state == .suspended && Int($0.counters["wakes"]) == round
            }) {
                guard BootClock.now() < deadline else {
                    throw Program.Failure(description: try fixture.supervisor.nightbell("list").output)
                }
                usleep(5_000)
            }
            slowest = max(slowest, BootClock.now() - start)
        }
        // Enough events that some are dropped, and long after the first of these.
        let end = BootClock.now() + 9_000_000_000
        var rounds = 0
        while BootClock.now() < end || rounds < 60 {
            rounds += 1
            try wake(rounds)
        }
        fixture.gateway.send(signal: SIGCONT)
        // The supervisor tells of it with the first event for which there is room again.
        var isTold = false
        while !isTold {
            rounds += 1
            try wake(rounds)
            let lines = try #require(try streams[0].chunk()).split(separator: "\n")
            isTold = lines.contains { $0.contains("\"dropped\":") && !$0.contains("\"dropped\":0") }
        }
        _ = try streams[1].streams("event: interrupted")
        // Nothing is counted of clients with a dropped suspension.
        let metrics = try fixture.get("/metrics", token: token).body
        func value(_ sample: String) -> Int? {
            metrics.split(separator: "\n").first { $0.hasPrefix(sample + " ") }
                .flatMap { Int($0.dropFirst(sample.count + 1)) }
        }
        let count = try #require(value("nightbell_wake_duration_seconds_count"))
        let bound: Int64 = [5, 10, 30].first { slowest <= $0 * 1_000_000_000 } ?? 60
        let isCounted = value("nightbell_wake_duration_seconds_bucket{le=\"\(bound)\"}") == count
        #expect(count > 8 && isCounted, "\(slowest) ns: \(metrics)")
        withExtendedLifetime(phones) {}
    }
}
