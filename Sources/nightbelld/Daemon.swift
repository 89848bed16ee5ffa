import ArgumentParser
import CLinux
import DaemonConfiguration
import Glibc
import Launching
import LinuxSystem
import Logging
import NightbellCore
import NightbellSupervisor

/// A supervisor as a process of its own, from its configuration to its end.
final class Daemon: @unchecked Sendable {
    // Sendable: only one thread of the process uses it at a time: the keeper's or the loop's, and the one
    // that reads the configuration again.
    let read: Reading
    var loaded: LoadedConfiguration
    let logger: Logger
    let threshold: StandardErrorLog.Threshold
    /// The declarations of manifests. Every worker has the same, unless they are read again.
    var declarations: [Declaration] = []
    /// Made before there are other descriptors, and inherited by the workers.
    private(set) var launchSlots: LaunchSlots?

    /// Loads the configuration; called again for each reload.
    typealias Reading = () throws(ConfigurationError) -> LoadedConfiguration

    init(_ read: @escaping Reading) throws(ConfigurationError) {
        self.read = read
        let loaded = try read()
        self.loaded = loaded
        let threshold = StandardErrorLog.Threshold(loaded.settings.logLevel)
        self.threshold = threshold
        let forJournal = unsafe getenv("JOURNAL_STREAM") != nil
        logger = Logger(label: "nightbelld") { _ in
            StandardErrorLog(threshold: threshold, forJournal: forJournal)
        }
    }

    /// Serves until a stop signal.
    ///
    /// - Parameter state: the state left by the program that this process ran before, as a descriptor.
    func run(resuming state: CInt? = nil) throws {
        // If the reader of our log ends, the clients must not end with it.
        signal(SIGPIPE, SIG_IGN)
        clinux_keep_little_memory()
        Process.raiseDescriptorLimit()
        makeLaunchSlots()
        for warning in loaded.warnings + gatewayProblems { logger.warning("\(warning)") }
        declarations = logged(readManifests())
        switch loaded.settings.keeper {
        case .on:
            let code = keep(resuming: state)
            guard code == 0 else { throw ExitCode(code) }
            logger.notice("stopped")
        case .off:
            try runAlone()
        }
    }

    /// Serves in this one process: its state is lost with it.
    private func runAlone() throws {
        let manager = ServiceManager.fromEnvironment()
        ServiceManager.forget()
        Process.growDescriptorTable()
        do throws(SupervisorError) {
            var configuration = supervisorConfiguration
            configuration.stopSignals = [SIGTERM, SIGINT]
            configuration.reloadSignals = [SIGHUP]
            configuration.onStopping = { manager.stopping() }
            let supervisor = try Supervisor(configuration, logger: logger)
            announceReady(manager, descriptors: Process.descriptorLimit)
            try supervisor.run()
            logger.notice("stopped")
        } catch {
            logger.critical("\(error)")
            manager.failed(errno: error.errorNumber, status: error.description)
            throw ExitCode(error.exitCode)
        }
    }

    /// Enough for ten clients with a socket that are launched at the same moment; further ones take longer.
    func makeLaunchSlots() {
        // Of few descriptors each one counts, and to copy them takes no time.
        guard Process.descriptorLimit >= 1_024 else { return }
        do throws(SystemError) {
            launchSlots = try LaunchSlots(count: 32)
        } catch {
            logger.warning("launches will take longer: \(error)")
        }
    }

    func announceReady(_ manager: ServiceManager, descriptors: UInt64) {
        logger.notice(
            "ready",
            metadata: [
                "socket": "\(loaded.settings.socket)", "configuration": "\(loaded.file ?? "defaults")",
                "descriptors": "\(descriptors)", "version": "\(nightbelldVersion)",
            ])
        manager.ready(status: "Listening on \(loaded.settings.socket)")
    }

    /// Thaws every process that a supervisor with this configuration has left stopped.
    func thawLeftovers() throws(ExitCode) {
        for warning in loaded.warnings { logger.warning("\(warning)") }
        do {
            try Supervisor.thawLeftovers(of: supervisorConfiguration, logger: logger)
        } catch {
            logger.critical("\(error)")
            throw ExitCode(error.exitCode)
        }
        guard !loaded.isRuntimeDirectoryUncertain else {
            logger.critical(
                """
                only \(loaded.settings.runtimeDirectory) was looked at, because a mistake hides which runtime directory is \
                configured: mend it, or give --runtime-directory
                """)
            throw ExitCode(78)
        }
    }

    var supervisorConfiguration: SupervisorConfiguration {
        let settings = loaded.settings
        var result = SupervisorConfiguration(
            socketPath: settings.socket, runtimeDirectory: settings.runtimeDirectory)
        result.socketMode = settings.socketMode
        result.suspension =
            switch settings.suspensionMethod {
            case .auto: .auto
            case .cgroup: .cgroup
            case .signal: .signal
            case .none: .none
            }
        result.cgroupParent = settings.cgroupParent.isEmpty ? nil : settings.cgroupParent
        result.settings = settings.supervision
        result.messagesPerTurn = settings.messagesPerTurn
        result.helloTimeout = settings.helloTimeout
        result.connectionsPerUser = settings.connectionsPerUser
        result.outgoingBytesPerConnection = settings.outgoingBytesPerConnection
        result.stateDirectory = settings.stateDirectory.isEmpty ? nil : settings.stateDirectory
        result.memoryPressure = pressureTrigger
        result.pagesOut = settings.pageOut == .on
        result.monitor = monitorProgram
        result.transfers = transferProgram
        result.declarations = declarations
        result.launchSlots = launchSlots
        result.gateway = gatewayRights
        result.pushSocket = settings.pushSocket.isEmpty ? nil : settings.pushSocket
        result.reload = { self.reload() }
        result.version = nightbelldVersion
        result.onStarted = { Process.releaseStartUpCode() }
        result.configurationFile = loaded.file ?? ""
        return result
    }
}

extension SupervisorError {
    /// As in sysexits.h.
    var exitCode: Int32 {
        errorNumber == EACCES || errorNumber == EPERM ? EX_NOPERM : EX_OSERR
    }
}
