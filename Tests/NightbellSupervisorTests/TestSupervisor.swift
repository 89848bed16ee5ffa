import Foundation
import Logging
import NightbellCore
import NightbellSupervisor

/// A supervisor on a thread of its own, in a directory of its own. Stopped, and waited for, by `stop()`.
final class TestSupervisor: @unchecked Sendable {
    // Sendable: everything is set before the thread starts, but for what the condition guards.
    let directory: String
    let configuration: SupervisorConfiguration
    private let supervisor: Supervisor
    private let ended = NSCondition()
    private var hasEnded = false
    private var failure: (any Error)?

    var socketPath: String { configuration.socketPath }

    init(
        suspension: SupervisorConfiguration.Suspension = .none, directory: String? = nil,
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
        configure(&configuration)
        self.configuration = configuration
        var logger = Logger(label: "test") { StreamLogHandler.standardError(label: $0) }
        let level = ProcessInfo.processInfo.environment["NIGHTBELL_TEST_LOG"]
        logger.logLevel = level.flatMap { Logger.Level(rawValue: $0) } ?? .critical
        supervisor = try Supervisor(configuration, logger: logger)
        let thread = Thread { [self] in
            do {
                try supervisor.run()
            } catch {
                failure = error
            }
            ended.lock()
            hasEnded = true
            ended.broadcast()
            ended.unlock()
        }
        thread.name = "supervisor"
        thread.start()
    }

    /// Ends it in an orderly way; fails if it does not come to an end.
    func stop(timeout: TimeInterval = 10) throws {
        supervisor.stop()
        ended.lock()
        defer { ended.unlock() }
        let deadline = Date(timeIntervalSinceNow: timeout)
        while !hasEnded {
            guard ended.wait(until: deadline) else { throw TestFailure("the supervisor does not end") }
        }
        if let failure { throw failure }
    }

    deinit {
        supervisor.stop()
        try? FileManager.default.removeItem(atPath: directory)
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
