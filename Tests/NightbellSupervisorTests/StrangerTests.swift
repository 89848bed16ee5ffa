import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import Testing

/// Connections that send nothing.
@Suite struct StrangerTests {
    @Test func aSilentConnectionIsClosed() throws {
        let supervisor = try TestSupervisor { $0.helloTimeout = .milliseconds(150) }
        let start = BootClock.now()
        let strangers = try (0..<5).map { _ in try WireClient(supervisor) }
        for stranger in strangers { #expect(try stranger.end()?.code == .helloRequired) }
        #expect(BootClock.now() - start >= 150_000_000)
        #expect(try WireClient(supervisor).status().connections == 1)
        try supervisor.stop()
    }

    @Test func aConnectionThatHasSentSomethingStays() throws {
        let supervisor = try TestSupervisor { $0.helloTimeout = .milliseconds(150) }
        let first = try WireClient(supervisor)
        let administrator = try WireClient(supervisor)
        _ = try administrator.status()
        let client = try WireClient(supervisor, "org.example.phone")
        // Many connections that come and go behind one that is silent.
        for _ in 0..<300 { _ = try WireClient(supervisor).status() }
        let last = try WireClient(supervisor)
        #expect(try first.end()?.code == .helloRequired)
        #expect(try last.end()?.code == .helloRequired)
        #expect(try administrator.status().connections == 2)
        #expect(try client.show("org.example.phone").state == .inactive)
        try supervisor.stop()
    }
}
