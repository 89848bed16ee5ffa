import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// A network of its own with its only link cut: packets are lost without an error.
@Suite(.timeLimit(.minutes(40))) struct LostPathTests {
    private static let isRoot = geteuid() == 0

    @Test(.enabled(if: isRoot)) func aPathGivenUpByTheKernelHasAReasonOfItsOwn() throws {
        let network = try Network()
        defer { network.end() }
        var tcp = WireProfile.TCP()
        tcp.probeIntervalMs = 1_000
        tcp.probes = 2
        let scene = try OffloadScene(try network.pair(), .make(.tcp(tcp), interval: .seconds(1)))
        try scene.sleep()
        try network.cut()
        let wake = try scene.client.wake(within: 30_000)
        #expect(wake.reasons == [.pathLost])
        #expect(wake.sockets.map(\.token) == [scene.token] && wake.sockets[0].pathLost)
        #expect(wake.sockets[0].error)
        // The error is its owner's.
        #expect(SocketOptionOfError.value(of: scene.pair.near) != 0)
        try scene.stop()
    }

    /// The connection was silent for longer than all probes take: that does not make the first lost one the
    /// last.
    @Test(.enabled(if: isRoot)) func lostProbesThatAreFollowedByAnAnswerEndNothing() throws {
        let network = try Network()
        defer { network.end() }
        var tcp = WireProfile.TCP()
        tcp.probeIntervalMs = 1_000
        tcp.probes = 4
        let pair = try network.pair()
        // The owner's own option does not decide either.
        SocketOption.userTimeout.set(1_000, on: pair.near)
        let scene = try OffloadScene(pair, .make(.tcp(tcp), interval: .seconds(5)))
        try scene.sleep()
        try network.cut()
        #expect(eventually(within: 30_000) { Self.unansweredProbes(of: pair.near) == 3 })
        try network.mend()
        #expect(eventually(within: 30_000) { Self.unansweredProbes(of: pair.near) == 0 })
        #expect(try scene.info().counters["wakes"] == 0)
        try pair.send("news")
        let wake = try scene.client.wake()
        #expect(wake.sockets[0].readable && !wake.sockets[0].error && scene.received(4) == "news")
        #expect(SocketOption.userTimeout.value(of: pair.near) == 1_000)
        try scene.stop()
    }

    /// `tcpi_probes`.
    private static func unansweredProbes(of descriptor: Int32) -> UInt8? {
        var info = [UInt8](repeating: 0, count: 4)
        var length = socklen_t(info.count)
        guard getsockopt(descriptor, Int32(IPPROTO_TCP), TCP_INFO, &info, &length) == 0 else { return nil }
        return info[3]
    }

    /// The supervisor's pings are lost as well: the missing answer is noticed first.
    @Test(.enabled(if: isRoot)) func missingAnswerIsNoticedWithoutTheKernel() throws {
        let network = try Network()
        defer { network.end() }
        let scene = try OffloadScene(
            try network.pair(), .lines(every: .seconds(1), answerWithin: .milliseconds(500)))
        try scene.sleep()
        try network.cut()
        #expect(try scene.client.wake(within: 30_000).reasons == [.unanswered])
        try scene.stop()
    }

    /// A thread in a network namespace of its own.
    private final class Network: @unchecked Sendable {
        // Sendable: the descriptors are written before the thread is waited for.
        private var control: Int32 = -1

        init() throws {
            try onOwnThread { [self] in
                guard ctest_own_network() == 0 else { throw Pair.failure("unshare") }
                // It belongs to the namespace, on whichever thread it is used.
                control = socket(AF_INET, Int32(SOCK_DGRAM.rawValue | SOCK_CLOEXEC.rawValue), 0)
                try setLoopback(up: true)
                made = try Pair.tcp()
            }
        }

        private var made: Pair?

        func pair() throws -> Pair {
            guard let made else { throw TestFailure("no connection was made") }
            return made
        }

        func cut() throws { try setLoopback(up: false) }

        func mend() throws { try setLoopback(up: true) }

        func end() { close(control) }

        private func setLoopback(up: Bool) throws {
            guard ctest_set_loopback(control, up ? 1 : 0) == 0 else { throw Pair.failure("ioctl") }
        }
    }
}
