import EdgeTestSupport
import Foundation
import NightbellSupervisor
import Testing

/// A supervisor that cannot start leaves nothing behind.
@Suite(.serialized) struct StartTests {
    private let directory: TemporaryDirectory

    init() throws { directory = try TemporaryDirectory() }

    private func start(_ configure: (inout SupervisorConfiguration) -> Void) -> SupervisorError? {
        var configuration = SupervisorConfiguration(
            socketPath: directory.file("nightbell.sock"), runtimeDirectory: directory.path)
        configuration.suspension = .cgroup
        configure(&configuration)
        return #expect(throws: SupervisorError.self) {
            _ = try Supervisor(configuration, logger: TestSupervisor.logger())
        }
    }

    @Test func socketOfAnother() throws {
        let other = try TestSupervisor()
        let error = start { $0.socketPath = other.socketPath }
        #expect(error?.code == .socket && error?.errorNumber == EADDRINUSE)
        #expect(cgroupsLeft(by: directory.path) == [])
        // The other one does not notice.
        _ = try WireClient(other).status()
        try other.stop()
    }

    /// The last step: by then it listens already.
    @Test func signalThatCannotBeCaught() throws {
        let error = start { $0.stopSignals = [SIGKILL] }
        #expect(error?.code == .loop)
        #expect(cgroupsLeft(by: directory.path) == [])
        #expect(access(directory.file("nightbell.sock"), F_OK) == -1)
    }

    @Test func directoryForTheSocketThatIsMissing() throws {
        let error = start { $0.socketPath = directory.file("missing/nightbell.sock") }
        #expect(error?.code == .socket && error?.errorNumber == ENOENT)
        #expect(cgroupsLeft(by: directory.path) == [])
    }
}
