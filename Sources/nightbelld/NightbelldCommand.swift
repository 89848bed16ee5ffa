import ArgumentParser
import DaemonConfiguration
import Glibc
import Keeper
import LinuxSystem

@main
struct NightbelldCommand: ParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "nightbelld",
        abstract: "Lets processes sleep while their connections stay alive.",
        discussion: """
            Configuration is taken from flags, else the environment, else a YAML file, else defaults. \
            --print-configuration shows every key, its value and where it came from. The environment variable \
            of a key is its name in capitals: keepAlive.minimumTimeout is NIGHTBELL_KEEP_ALIVE_MINIMUM_TIMEOUT.

            SIGHUP has the configuration and the manifests read again, as `nightbell reload` does. SIGUSR2 has the \
            program that is at its place on disk now take over, as `nightbell upgrade` does.

            Exit codes: 0 after a stop by SIGTERM or SIGINT; 64 the command line is wrong; 71 the \
            system refused what is needed; 77 it may not do what is needed; 78 the configuration is wrong.
            """,
        version: nightbelldVersion)

    @Option(help: ArgumentHelp("The configuration file.", valueName: "path"))
    var config: String?

    @Flag(help: "Run for this user only, below $XDG_RUNTIME_DIR. The default for users other than root.")
    var user = false

    @Flag(help: "Run for the whole machine, below /run/nightbell. The default for root.")
    var system = false

    @Option(help: ArgumentHelp("The path of the control socket.", valueName: "path"))
    var socket: String?

    @Option(help: ArgumentHelp("The directory for state that the next run needs.", valueName: "path"))
    var runtimeDirectory: String?

    @Option(help: ArgumentHelp("How clients are stopped: auto, cgroup, signal or none.", valueName: "method"))
    var suspend: String?

    @Option(
        help: ArgumentHelp("The log level: trace, debug, info, notice, warning, error.", valueName: "level"))
    var logLevel: String?

    @Option(help: ArgumentHelp("The shortest keep-alive timeout, such as 600s.", valueName: "duration"))
    var keepAliveMinimumTimeout: String?

    @Option(name: .customLong("set"), help: ArgumentHelp("Set any key.", valueName: "key=value"))
    var assignments: [String] = []

    @Flag(help: "Print the whole configuration as a file, and exit.")
    var printConfiguration = false

    @Flag(help: "Thaw the processes that a dead supervisor has left stopped, and exit.")
    var thawLeftovers = false

    @Flag(help: "Serve in one process without a keeper: its state is lost with it.")
    var noKeeper = false

    /// State passed from one program to the next during an upgrade.
    @Option(help: .hidden)
    var keeperState: CInt?

    @Option(help: .hidden)
    var workerState: CInt?

    @Flag(help: .hidden)
    var preflight = false

    func validate() throws {
        if user && system { throw ValidationError("--user and --system exclude each other") }
        for assignment in assignments where !assignment.dropFirst().contains("=") {
            throw ValidationError("--set needs a key and a value, such as --set wakes.linger=1s")
        }
    }

    func run() throws {
        Process.openStandardDescriptors()
        let daemon: Daemon
        do throws(ConfigurationError) {
            let environment = Process.environment()
            let mode = try chooseMode(environment)
            let flags = flags
            daemon = try Daemon { () throws(ConfigurationError) in
                // Frozen processes do not wait until a mistake in the file is mended.
                try Loader.load(
                    flags: flags, environment: environment, mode: mode, keepsDefaults: thawLeftovers)
            }
        } catch {
            writeToStandardError("nightbelld: \(error)")
            throw ExitCode(78)
        }
        if printConfiguration {
            print(daemon.loaded.printed, terminator: "")
        } else if thawLeftovers {
            try daemon.thawLeftovers()
        } else if preflight {
            // Reaching this point shows that the program runs here and can decode its configuration.
            guard let keeperState else { return }
            do throws(SystemError) {
                try ProgramState(reading: keeperState).tryKeeping()
            } catch {
                writeToStandardError("nightbelld: \(error)")
                throw ExitCode(EX_OSERR)
            }
        } else if let workerState {
            throw ExitCode(daemon.workInsteadOfAnother(workerState))
        } else {
            try daemon.run(resuming: keeperState)
        }
    }

    private func chooseMode(_ environment: [String: String]) throws(ConfigurationError) -> Mode {
        if system || (!user && geteuid() == 0) { return .system }
        // With both paths named, XDG_RUNTIME_DIR is not needed.
        if let runtimeDirectory, environment["XDG_RUNTIME_DIR"] == nil {
            return try .user(environment: environment.merging(["XDG_RUNTIME_DIR": runtimeDirectory]) { $1 })
        }
        return try .user(environment: environment)
    }

    /// The flags, as keys. `--set` comes last and wins.
    private var flags: Flags {
        let named: [(key: String, text: String?)] = [
            ("socket", socket), ("runtimeDirectory", runtimeDirectory), ("suspension.method", suspend),
            ("logLevel", logLevel), ("keepAlive.minimumTimeout", keepAliveMinimumTimeout),
            ("keeper.use", noKeeper ? "off" : nil),
        ]
        let assigned = assignments.map { assignment in
            let parts = assignment.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            return (key: String(parts[0]), text: String(parts[1]))
        }
        return Flags(
            file: config,
            values: named.compactMap { key, text in text.map { (key: key, text: $0) } } + assigned)
    }
}

/// The version of this daemon.
let nightbelldVersion = "0.1.0"
