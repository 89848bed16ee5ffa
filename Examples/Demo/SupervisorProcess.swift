import Glibc
import Nightbell

/// The demo's own supervisor, and its view of its clients.
@MainActor
final class SupervisorProcess {
    struct Settings {
        var suspension: SuspensionMethod
        var keepAliveMinimum: Duration
        /// More of them, as `key=value`.
        var others: [String] = []
    }

    let process: ChildProcess
    let socketPath: String

    init(program: String, directory: String, settings: Settings) throws {
        socketPath = "\(directory)/nightbell.sock"
        process = try ChildProcess(
            "nightbelld",
            Self.arguments(program, socketPath: socketPath, directory: directory, settings: settings),
            log: "\(directory)/nightbelld.log")
    }

    /// Thaws the processes that the supervisor of another demo has left stopped.
    static func thawLeftovers(program: String, of demo: DemoDirectory) throws -> ChildProcess {
        try ChildProcess(
            "nightbelld",
            [
                program, "--socket", "\(demo.path)/nightbell.sock", "--runtime-directory", "\(demo.path)/run",
                "--suspend", "none", "--thaw-leftovers",
            ], log: "\(demo.path)/nightbelld.log")
    }

    /// The one place that knows the daemon's flags for serving.
    private static func arguments(
        _ program: String, socketPath: String, directory: String, settings: Settings
    ) -> [String] {
        [
            program, "--socket", socketPath, "--runtime-directory", "\(directory)/run",
            "--suspend", settings.suspension.rawValue,
            "--keep-alive-minimum-timeout", "\(settings.keepAliveMinimum.components.seconds)s",
            // The demo calls each phone more often in a minute than people do in an hour.
            "--set", "wakes.limit=10000",
        ] + settings.others.flatMap { ["--set", $0] }
    }

    /// Whether it answers.
    var isReady: Bool { (try? snapshot()) != nil }

    /// The state at one moment.
    struct Snapshot {
        var taken: ContinuousClock.Instant
        var status: SupervisorStatus
        var clients: [ClientInfo]

        var suspended: Int { clients.count { $0.state == .suspended } }
        /// All clients together, including sleep that has not ended yet.
        var asleep: Duration { clients.reduce(.zero) { $0 + $1.counters.asleep } }

        /// Such as `18 suspended, 2 background`.
        var states: String {
            let counts = Dictionary(grouping: clients, by: \.state).mapValues(\.count)
            return ClientInfo.State.allCases.compactMap { state in
                counts[state].map { "\($0) \(state.rawValue)" }
            }.joined(separator: ", ")
        }
    }

    func snapshot() throws -> Snapshot {
        var administration = try Administration(socketPath: socketPath)
        let status = try administration.status()
        return Snapshot(taken: .now, status: status, clients: try administration.list())
    }
}

enum SuspensionMethod: String, CaseIterable {
    case auto, cgroup, signal, none
}
