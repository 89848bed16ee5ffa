import EdgeTestSupport
import LinuxSystem
import NightbellCore
import NightbellSupervisor
import NightbellWire
import Testing

/// More sockets fire at once than one turn reports to the core: some clients then run that it takes for
/// asleep.
@Suite(.serialized) struct LargeBurstTests {
    private static let phone = "org.example.phone"

    /// Puts many clients to sleep that share a socket with a phone. Its own event comes last.
    private func sleep(
        _ phone: WireClient, _ shared: borrowing Pair, beside count: Int, _ supervisor: TestSupervisor
    ) throws -> [WireClient] {
        let crowd = try (0..<count).map { number in
            let client = try WireClient(supervisor, "org.example.crowd-\(number)")
            _ = try client.handOver(shared.near)
            return client
        }
        try phone.goToSleep()
        try phone.wait(for: Self.phone, toBe: .suspended, supervisor)
        for client in crowd { try client.goToSleep() }
        for (number, client) in crowd.enumerated() {
            try client.wait(for: "org.example.crowd-\(number)", toBe: .suspended, supervisor)
        }
        return crowd
    }

    @Test(arguments: [20, 150]) func aKeepAliveThatRunsAlongDoesNotHideTheSocket(count: Int) throws {
        for _ in 0..<2 {
            let supervisor = try TestSupervisor { $0.settings.keepAlive.tolerance = 1 }
            let shared = try Pair.udp(connected: false)
            let phone = try WireClient(supervisor)
            _ = try phone.helloForWakeWord(Self.phone)
            let token = try phone.handOver(shared.near)
            var timeout = WireSetKeepAliveTimeout()
            timeout.timeoutMs = 600_000
            _ = try phone.ask(.setKeepAliveTimeout(timeout))
            let crowd = try sleep(phone, shared, beside: count, supervisor)
            try shared.send("INVITE")
            let wake = try phone.wake()
            #expect(wake.sockets.map(\.token) == [token])
            try withExtendedLifetime(crowd) { try supervisor.stop() }
        }
    }
}
