import EdgeTestSupport
import Foundation
import Logging
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
        // The other one is not affected.
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

    /// The files in it are trusted: they name processes to thaw, and cgroups to empty and remove.
    @Test(.enabled(if: geteuid() == 0, "needs root"), arguments: ["owner", "mode", "link"])
    func runtimeDirectoryOfAnotherUser(_ kind: String) throws {
        let mine = try TemporaryDirectory()
        switch kind {
        case "owner": #expect(chown(directory.path, 4_711, 4_711) == 0)
        case "mode": #expect(chmod(directory.path, 0o777) == 0)
        default:
            #expect(
                symlink(mine.path, directory.file("link")) == 0
                    && lchown(directory.file("link"), 4_711, 4_711) == 0)
        }
        let path = kind == "link" ? directory.file("link") : directory.path
        let error = start { $0.runtimeDirectory = path }
        #expect(error?.code == .runtimeDirectory && error?.errorNumber == EPERM)
        // It was not even opened, and nothing was left in it.
        #expect(access(path + "/lock", F_OK) == -1)
        var configuration = SupervisorConfiguration(
            socketPath: directory.file("nightbell.sock"), runtimeDirectory: path)
        configuration.suspension = .cgroup
        let refused = #expect(throws: SupervisorError.self) {
            try Supervisor.thawLeftovers(of: configuration, logger: TestSupervisor.logger())
        }
        #expect(refused?.errorNumber == EPERM)
    }

    /// It names the owners of identifiers, and the clients that were quit.
    @Test(.enabled(if: geteuid() == 0, "needs root"), arguments: [false, true])
    func stateDirectoryOfAnotherUser(isWritable: Bool) throws {
        let state = try TemporaryDirectory()
        #expect(isWritable ? chmod(state.path, 0o775) == 0 : chown(state.path, 4_711, 4_711) == 0)
        let error = start { $0.stateDirectory = state.path }
        #expect(error?.code == .state && error?.errorNumber == EPERM)
        #expect(try FileManager.default.contentsOfDirectory(atPath: state.path) == [])
        #expect(cgroupsLeft(by: directory.path) == [])
    }

    @Test func damagedRuntimeStateIsLogged() throws {
        try Data([0x21, 0x4E, 0x42]).write(to: URL(filePath: directory.file("runtime-state")))
        let log = Log()
        let logger = Logger(label: "start") { _ in log.handler }
        let configuration = SupervisorConfiguration(
            socketPath: directory.file("nightbell.sock"), runtimeDirectory: directory.path)
        try Supervisor.thawLeftovers(of: configuration, logger: logger)
        #expect(log.lines.contains { $0.contains("damaged") && $0.contains("may stay stopped") })
    }

    /// Its directory may be ours while it is not.
    @Test(.enabled(if: geteuid() == 0, "needs root")) func runtimeStateOfAnotherUser() throws {
        try Data().write(to: URL(filePath: directory.file("runtime-state")))
        #expect(chown(directory.file("runtime-state"), 4_711, 4_711) == 0)
        let error = start { $0.suspension = .signal }
        #expect(error?.code == .runtimeDirectory && error?.errorNumber == EPERM)
    }

    @Test func directoryForTheSocketThatIsMissing() throws {
        let error = start { $0.socketPath = directory.file("missing/nightbell.sock") }
        #expect(error?.code == .socket && error?.errorNumber == ENOENT)
        #expect(cgroupsLeft(by: directory.path) == [])
    }
}
