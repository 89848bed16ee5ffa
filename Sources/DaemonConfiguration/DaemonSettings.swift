package import Logging
package import NightbellCore

/// All settings of `nightbelld`, combined from defaults, file, environment and flags.
package struct DaemonSettings: Sendable, Equatable {
    /// The path of the control socket.
    package var socket: String
    /// The permission bits of the control socket.
    package var socketMode: UInt32
    /// The directory for data that the next run needs, such as the list of stopped processes.
    package var runtimeDirectory: String
    /// How clients are stopped.
    package var suspensionMethod: Method = .auto
    /// The cgroup below which all clients are put; empty: below the one that each is in.
    package var cgroupParent = ""
    /// The directory of manifests.
    package var manifestDirectory: String
    /// The directory for the state that outlives a reboot; empty: none.
    package var stateDirectory: String
    /// The kernel's file for memory pressure; empty: no client is ended for it.
    package var pressureFile = "/proc/pressure/memory"
    /// The kind of stall that counts.
    package var pressureShare = PressureShare.some
    /// Memory is short when this much time is lost …
    package var pressureStall: Duration = .milliseconds(200)
    /// … within this window.
    package var pressureWindow: Duration = .seconds(2)
    /// Whether the memory of a suspended client is written to swap at once.
    package var pageOut = Switch.off
    /// Whether the machine is observed when a client needs that.
    package var monitor = Monitoring.auto
    /// The program that observes it; empty: the one beside this one.
    package var monitorProgram = ""
    /// Whether files are moved for clients that ask for it.
    package var transfers = Monitoring.auto
    /// The program that moves them; empty: the one beside this one.
    package var transferProgram = ""
    /// The limits of that program.
    package var transfer = Transfer()
    /// The user of `nightbell-gateway`, by name or number; empty: there is no gateway.
    package var gatewayUser = ""
    /// The rights of that user.
    package var gatewayRights = GatewayUse.wake
    /// Where clients reach the push service; empty: nowhere.
    package var pushSocket: String
    /// The log level.
    package var logLevel: Logger.Level = .info
    /// How long a new control connection may stay silent.
    package var helloTimeout: Duration = .seconds(10)
    /// The limit of control connections of one uid, clients and administration together.
    package var connectionsPerUser: Int = 4_352
    /// The limit of messages of one connection handled per turn.
    package var messagesPerTurn: Int = 32
    /// The limit of bytes queued for a connection that does not read.
    package var outgoingBytesPerConnection: Int = 256 * 1_024
    /// Whether a second process holds the sockets and records of this one.
    package var keeper = Keeping.on
    /// The supervisor gives up suspending after this many workers in a row …
    package var crashLimit = 5
    /// … that die within this period.
    package var crashPeriod: Duration = .seconds(10)
    /// Settings of the core: how clients are treated.
    package var supervision = Settings()

    /// The defaults of one kind of supervisor.
    package init(mode: Mode) {
        socket = mode.runtimeDirectory + "/nightbell.sock"
        socketMode = mode.socketMode
        runtimeDirectory = mode.runtimeDirectory
        manifestDirectory = mode.configurationDirectory + "/clients.d"
        stateDirectory = mode.stateDirectory
        pushSocket = mode.pushSocket
    }

    /// The limits of one user's transfers.
    package struct Transfer: Sendable, Equatable {
        /// Transfers that run at the same time.
        package var parallel = 16
        /// Of those, with the same host.
        package var parallelPerHost = 8
        /// Of all files, in bytes.
        package var diskBytes = 16 << 30
        /// A transfer that is not finished then fails.
        package var lifetime: Duration = .seconds(7 * 86_400)
        /// A finished session is removed if its client has not come for this time.
        package var orphans: Duration = .seconds(7 * 86_400)
    }

    /// The kind of memory stall: of some processes, or of all that had work at the same time.
    package enum PressureShare: String, Sendable, CaseIterable {
        case some, full
    }

    package enum Switch: String, Sendable, CaseIterable {
        case off, on
    }

    package enum Keeping: String, Sendable, CaseIterable {
        case on, off
    }

    /// The rights of the gateway: to see clients, or also to wake, suspend, quit and launch them.
    package enum GatewayUse: String, Sendable, CaseIterable {
        case read, wake
    }

    package enum Monitoring: String, Sendable, CaseIterable {
        case auto, off
    }

    /// How clients are stopped.
    package enum Method: String, Sendable, CaseIterable {
        case auto, cgroup, signal, none
    }
}

/// The audience of a supervisor. It decides the defaults of the paths, and nothing else.
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

    /// Where the push service of this audience listens.
    var pushSocket: String {
        switch self {
        // The gateway's own directory: it runs as a user of its own.
        case .system: "/run/nightbell-gateway/push.sock"
        case .user(let runtimeDirectory, _, _): runtimeDirectory + "/push.sock"
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

    /// Every user may connect to a system-wide supervisor: permissions depend on the uid.
    var socketMode: UInt32 {
        switch self {
        case .system: 0o666
        case .user: 0o600
        }
    }
}
