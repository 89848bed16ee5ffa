import EdgeTestSupport
import Foundation
import Logging
import NightbellCore
import NightbellSupervisor

/// A supervisor on a thread of its own, in a directory of its own. `stop()` stops it and waits for it, and so
/// does the end of this object.
final class TestSupervisor: Sendable {
    let directory: String
    let configuration: SupervisorConfiguration
    private let run: Run
    let launched: Launched

    var socketPath: String { configuration.socketPath }

    init(
        suspension: SupervisorConfiguration.Suspension = .none, directory: String? = nil,
        logger: Logger = TestSupervisor.logger(),
        _ configure: (inout SupervisorConfiguration) -> Void = { _ in }
    ) throws {
        let directory = directory ?? NSTemporaryDirectory() + "nightbell-test-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: directory, withIntermediateDirectories: true)
        // Clients of other users connect too.
        try FileManager.default.setAttributes([.posixPermissions: 0o755], ofItemAtPath: directory)
        self.directory = directory
        var configuration = SupervisorConfiguration(
            socketPath: directory + "/nightbell.sock", runtimeDirectory: directory)
        configuration.suspension = suspension
        configuration.settings = .quick
        // Tests connect first and say Hello later, which may take long on a busy machine.
        configuration.helloTimeout = .seconds(300)
        // Without files of the kernel there: however busy the machine is, nothing waits for a better moment.
        configuration.pressure.directory = directory
        configure(&configuration)
        self.configuration = configuration
        launched = Launched(by: configuration.socketPath)
        run = Run(try Supervisor(configuration, logger: logger))
    }

    static func logger() -> Logger {
        var logger = Logger(label: "test") { StreamLogHandler.standardError(label: $0) }
        let level = ProcessInfo.processInfo.environment["NIGHTBELL_TEST_LOG"]
        logger.logLevel = level.flatMap { Logger.Level(rawValue: $0) } ?? .critical
        return logger
    }

    func pretendMemoryIsShort() { run.supervisor.memoryIsShort() }

    /// Ends it in an orderly way; fails if it does not end, or leaves a cgroup behind.
    func stop(timeout: TimeInterval = 10) throws {
        launched.look()
        try run.stop(timeout)
        let left = cgroupsLeft(by: directory)
        guard left.isEmpty else { throw TestFailure("left behind: \(left)") }
    }

    deinit {
        launched.look()
        try? run.stop(10)
        launched.end()
        try? FileManager.default.removeItem(atPath: directory)
    }

    /// A supervisor and its thread.
    private final class Run: @unchecked Sendable {
        // Sendable: mutable state is guarded by the condition.
        let supervisor: Supervisor
        private let ended = NSCondition()
        private var outcome: Result<Void, any Error>?

        init(_ supervisor: Supervisor) {
            self.supervisor = supervisor
            let thread = Thread { [self] in
                let outcome = Result { try supervisor.run() }
                ended.withLock {
                    self.outcome = outcome
                    ended.broadcast()
                }
            }
            thread.name = "supervisor"
            thread.start()
        }

        func stop(_ timeout: TimeInterval) throws {
            supervisor.stop()
            let deadline = Date(timeIntervalSinceNow: timeout)
            let outcome = try ended.withLock {
                while self.outcome == nil {
                    guard ended.wait(until: deadline) else {
                        throw TestFailure("the supervisor does not end")
                    }
                }
                return self.outcome
            }
            try outcome?.get()
        }
    }
}

struct TestFailure: Error, CustomStringConvertible {
    let description: String

    init(_ description: String) {
        self.description = description
    }
}

extension Settings {
    /// Budgets short enough for tests, long enough for a busy machine.
    static var quick: Settings {
        var settings = Settings()
        settings.budgets.enteringBackground = .milliseconds(400)
        settings.budgets.prepareToSuspend = .milliseconds(400)
        settings.budgets.wake = .milliseconds(600)
        settings.budgets.backgroundTasks = .milliseconds(900)
        settings.budgets.expirationNotice = .milliseconds(300)
        settings.budgets.termination = .milliseconds(400)
        settings.budgets.mediaLapse = .milliseconds(300)
        settings.keepAlive.minimumTimeout = .milliseconds(200)
        settings.keepAlive.lead = .milliseconds(50)
        settings.suspension.retry = .milliseconds(20)
        settings.wakes.linger = .milliseconds(20)
        settings.wakes.limit = 1_000
        return settings
    }
}
