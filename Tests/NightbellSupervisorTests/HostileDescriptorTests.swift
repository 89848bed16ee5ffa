import CTestSupport
import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellSupervisor
import NightbellWire
import Testing

/// Descriptors made so that each access blocks. The supervisor has one thread for all clients.
@Suite(.serialized) struct HostileDescriptorTests {
    /// A user's file system that never answers; fstat(2) of one of its files would block.
    @Test(.enabled(if: geteuid() == 0 && access("/dev/fuse", R_OK | W_OK) == 0, "needs root and FUSE"))
    func fileOfAServerThatNeverAnswers() throws {
        let directory = try TemporaryDirectory()
        var root: Int32 = -1
        let server = ctest_mute_file_system(directory.path, &root)
        guard server >= 0 else { throw Pair.failure("mount") }
        let supervisor = try TestSupervisor()
        // Closed before the supervisor is stopped, so that a blocked thread can continue.
        defer {
            close(server)
            close(root)
        }
        let client = try WireClient(supervisor, "org.example.hostile", modes: [.voip, .externalAccessory])
        let bystander = try WireClient(supervisor, "org.example.bystander")
        for tag in [WireSocketTag.voip, .listener, .device] {
            guard case .error(let error)? = try client.handOverAny([root], tag)[0].result else {
                throw TestFailure("adopted as \(tag)")
            }
            #expect([.notPollable, .notASocket, .notAListener].contains(error.code), "\(error)")
        }
        #expect(try bystander.show("org.example.hostile").socketCount == 0)
        try supervisor.stop()
    }
}
