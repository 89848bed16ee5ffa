package import Logging
package import NightbellCore

/// Everything that `nightbelld` can be told, after defaults, file, environment and flags were put together.
package struct DaemonSettings: Sendable, Equatable {
    /// Where the control socket is.
    package var socket: String
    /// Who may connect: the permission bits of the control socket.
    package var socketMode: UInt32
    /// Where the supervisor keeps what the next run must know, such as which processes it has stopped.
    package var runtimeDirectory: String
    /// How clients are stopped.
    package var suspensionMethod: Method = .auto
    /// Where in the cgroup hierarchy all clients are put; empty: below the cgroup that each is in.
    package var cgroupParent = ""
    /// Where manifests are.
    package var manifestDirectory: String
    /// Where the little is kept that outlives a restart of the machine; empty: nowhere.
    package var stateDirectory: String
    /// Where the kernel tells of memory pressure; empty: nobody is ended for it.
    package var pressureFile = "/proc/pressure/memory"
    /// Whose waiting counts.
    package var pressureShare = PressureShare.some
    /// So much time lost …
    package var pressureStall: Duration = .milliseconds(200)
    /// … in so much is too much.
    package var pressureWindow: Duration = .seconds(2)
    /// Whether the memory of those who are suspended is written to swap at once.
    package var pageOut = Switch.off
    /// What is logged.
    package var logLevel: Logger.Level = .info
    /// How long a new control connection may say nothing.
    package var helloTimeout: Duration = .seconds(10)
    /// How many control connections one uid may have, clients and administration together.
    package var connectionsPerUser: Int = 4_352
    /// How many messages of one connection are handled before it is the others' turn.
    package var messagesPerTurn: Int = 32
    /// How many bytes may wait for a connection that does not read.
    package var outgoingBytesPerConnection: Int = 256 * 1_024
    /// Whether a second process holds what this one must not lose.
    package var keeper = Keeping.on
    /// So many workers that die one after the other …
    package var crashLimit = 5
    /// … within this time are too many.
    package var crashPeriod: Duration = .seconds(10)
    /// The numbers that decide how clients are treated.
    package var supervision = Settings()

    /// The defaults of one kind of supervisor.
    package init(mode: Mode) {
        socket = mode.runtimeDirectory + "/nightbell.sock"
        socketMode = mode.socketMode
        runtimeDirectory = mode.runtimeDirectory
        manifestDirectory = mode.configurationDirectory + "/clients.d"
        stateDirectory = mode.stateDirectory
    }

    /// Who must have waited for memory: some processes, or all that had anything to do.
    package enum PressureShare: String, Sendable, CaseIterable {
        case some, full
    }

    package enum Switch: String, Sendable, CaseIterable {
        case off, on
    }

    package enum Keeping: String, Sendable, CaseIterable {
        case on, off
    }

    /// How clients are stopped.
    package enum Method: String, Sendable, CaseIterable {
        case auto, cgroup, signal, none
    }
}

/// Whom a supervisor is for. It decides the defaults of the paths, and nothing else.
package enum Mode: Sendable, Equatable {
    /// One for the whole machine, run by root or by a user of its own.
    case system
    /// One for a single user, below `$XDG_RUNTIME_DIR`.
    case user(runtimeDirectory: String, configurationDirectory: String, stateDirectory: String)

    /// The mode of a per-user supervisor.
    ///
    /// - Throws: `ConfigurationError` if the environment has no `XDG_RUNTIME_DIR`.
    package static func user(environment: [String: String]) throws(ConfigurationError) -> Mode {
        guard let runtime = environment["XDG_RUNTIME_DIR"], runtime.hasPrefix("/") else {
            throw ConfigurationError(
                source: .environment, key: "XDG_RUNTIME_DIR",
                problem:
                    "is needed for a per-user supervisor; set it, or give --runtime-directory and --socket")
        }
        let home = environment["HOME"] ?? ""
        let configuration = environment["XDG_CONFIG_HOME"] ?? home + "/.config"
        let state = environment["XDG_STATE_HOME"] ?? (home.isEmpty ? "" : home + "/.local/state")
        return .user(
            runtimeDirectory: runtime + "/nightbell", configurationDirectory: configuration + "/nightbell",
            stateDirectory: state.isEmpty ? "" : state + "/nightbell")
    }

    package var runtimeDirectory: String {
        switch self {
        case .system: "/run/nightbell"
        case .user(let runtimeDirectory, _, _): runtimeDirectory
        }
    }

    var configurationDirectory: String {
        switch self {
        case .system: "/etc/nightbell"
        case .user(_, let configurationDirectory, _): configurationDirectory
        }
    }

    var stateDirectory: String {
        switch self {
        case .system: "/var/lib/nightbell"
        case .user(_, _, let stateDirectory): stateDirectory
        }
    }

    /// The file that is read, if it exists, when none is named.
    package var configurationFile: String { configurationDirectory + "/nightbelld.yaml" }

    /// Everybody may connect to a system-wide supervisor: what they may do is decided by their uid.
    var socketMode: UInt32 {
        switch self {
        case .system: 0o666
        case .user: 0o600
        }
    }
}
