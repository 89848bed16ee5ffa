package import Launching
import LinuxSystem
package import NightbellCore
package import TransferModel

/// A client declared by a file: its permissions and how it is started.
package struct Manifest: Sendable, Equatable {
    package var identifier: ClientIdentifier
    package var modes: Modes
    package var launch: LaunchSpecification
    /// Nil: the user of the supervisor.
    package var identity: ProcessIdentity?
    /// A keep-alive timeout that holds from each launch on, until the client sets another.
    package var keepAlive: Duration?
    package var wakeLimitPolicy = WakeLimitPolicy.linger
    /// It is terminated instead of being suspended.
    package var exitsOnSuspend = false
    /// Launched with the supervisor; only clients with the mode `voip` are.
    package var startsWithSupervisor = true
    /// Launched only once its user's home is there.
    package var waitsForUnlock = false
    /// The issues for which it is launched.
    package var newsstand: Subscription?
    /// nil: its program knows Nightbell.
    package var unmodified: UnmodifiedOptions?
    /// The file with its declaration.
    package var file = ""
    package var line = 0

    /// The keys of a manifest.
    package static let keys = [
        "identifier", "modes", "command", "directory", "environment", "user", "group", "groups", "limits",
        "fileModeMask", "output", "keepAlive", "wakeLimitPolicy", "exitsOnSuspend", "startsWithSupervisor",
        "waitsForUnlock", "newsstand", "unmodified", "timers", "idle", "pageOut", "firstByte",
        "profiles",
    ]

    /// How it is launched.
    ///
    /// - Parameter tool: the path of `nightbell`, which runs unmodified programs.
    package func launch(with tool: String) -> LaunchSpecification {
        guard let unmodified else { return launch }
        var launch = launch
        let limits = launch.limits.flatMap { limit in
            let number = limit.hard == ResourceLimit.unlimited ? "unlimited" : "\(limit.hard)"
            return ["--limit", "\(limit.resource)=\(number)"]
        }
        launch.arguments =
            [tool, "run", "--unmodified", "--identifier=\(identifier)"] + unmodified.arguments
            + limits + ["--"] + launch.arguments
        // They are the program's, and not of the process that looks after it.
        launch.limits = []
        return launch
    }
}

/// An error that keeps a manifest from being used.
package struct ManifestProblem: Error, Sendable, Hashable, CustomStringConvertible {
    package var file: String
    /// Nil if it concerns the file as a whole.
    package var line: Int?
    /// The key as it is written there, with its parent keys; empty if the error concerns no key.
    package var key: String
    package var problem: String

    package init(file: String, line: Int?, key: String, problem: String) {
        self.file = file
        self.line = line
        self.key = key
        self.problem = problem
    }

    /// An error that concerns the file as a whole.
    init(_ file: String, _ problem: String) {
        self.init(file: file, line: nil, key: "", problem: problem)
    }

    package var description: String {
        let place = line.map { "\(file):\($0)" } ?? file
        let problem = Escaping.clipped(problem, to: 1_000)
        return key.isEmpty ? "\(place): \(problem)" : "\(place): \(Escaping.clipped(key, to: 200)) \(problem)"
    }
}
