import CTestSupport
import Descriptors
import EdgeTestSupport
import Foundation
import NightbellWire
import Testing

/// A network of its own, whose only link is cut: what is sent arrives nowhere, and nobody says so.
@Suite(.timeLimit(.minutes(10))) struct LostPathTests {
    private static let isRoot = geteuid() == 0

    @Test(.enabled(if: isRoot)) func pathThatTheKernelGivesUpIsAReasonOfItsOwn() throws {
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

    /// What is sent for the client arrives nowhere either: the missing answer is noticed first.
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
                // It belongs to the namespace, wherever it is used.
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

        func end() { close(control) }

        private func setLoopback(up: Bool) throws {
            guard ctest_set_loopback(control, up ? 1 : 0) == 0 else { throw Pair.failure("ioctl") }
        }
    }
}
