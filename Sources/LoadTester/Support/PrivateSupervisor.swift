import Glibc
import LinuxSystem
import Nightbell

/// How sleepers are stopped.
package enum SuspensionMethod: String, CaseIterable, Sendable {
    case cgroup, signal
}

/// A private `nightbelld` with limits that do not interfere.
final class PrivateSupervisor {
    struct Settings {
        var suspension: SuspensionMethod
        var linger: Duration = .milliseconds(1)
        var keepAliveMinimum: Duration = .seconds(600)
        var extra: [String] = []
    }

    /// The keeper.
    let process: ChildProcess
    /// The worker's process ID, until the worker is killed.
    private(set) var worker: pid_t = 0
    let socketPath: String
    private let runDirectory: RunDirectory

    init(_ runDirectory: RunDirectory, _ settings: Settings, name: String = "supervisor") throws {
        self.runDirectory = runDirectory
        let socketPath = "\(runDirectory.path)/\(name).sock"
        self.socketPath = socketPath
        let keys = [
            "logLevel=warning", "socketMode=0666",
            "wakes.linger=\(settings.linger.wholeNanoseconds / 1_000_000)ms",
            // No client is woken this often in a second.
            "wakes.limit=100", "wakes.period=1s", "wakes.limitPerUser=1000000000",
            "quotas.socketsPerClient=100000", "quotas.socketsPerUser=1000000", "quotas.clientsPerUser=100000",
            "connectionsPerUser=100000",
            "keepAlive.minimumTimeout=\(settings.keepAliveMinimum.wholeNanoseconds / 1_000_000)ms",
        ]
        process = try runDirectory.start(
            "nightbelld",
            [
                "--user", "--config", "/dev/null", "--socket", socketPath, "--runtime-directory",
                "\(runDirectory.path)/\(name)", "--suspend", settings.suspension.rawValue,
            ] + (keys + settings.extra).flatMap { ["--set", $0] })
        try wait(for: "the supervisor", atMost: .seconds(10), firstPause: 2_000_000) {
            guard process.isRunning || settings.suspension != .cgroup || process.exitStatus != EX_NOPERM
            else {
                throw LoadError.supervisor(
                    "\(runDirectory.end(of: process)); --suspend signal needs no cgroups")
            }
            try runDirectory.requireAllRunning()
            guard let status = try? self.status() else { return false }
            worker = status.processID
            return true
        }
    }

    func status() throws(NightbellError) -> SupervisorStatus {
        var administration = try Administration(socketPath: socketPath)
        return try administration.status()
    }

    func clients() throws(NightbellError) -> [ClientInfo] {
        var administration = try Administration(socketPath: socketPath, requestTimeout: .seconds(20))
        return try administration.list()
    }

    /// Waits until this many clients are suspended.
    func waitUntilAsleep(
        _ count: Int, atMost limit: Duration = .seconds(60), check: () throws -> Void = {}
    ) throws {
        try wait(for: "\(count) clients to be asleep", atMost: limit, firstPause: 5_000_000) {
            try runDirectory.requireAllRunning()
            try check()
            let status = try self.status()
            return status.clientsByState["suspended", default: 0] >= count
        }
    }

    func end() { runDirectory.end(process) }
}
