import DaemonConfiguration
import Glibc
import Keeper
import LinuxSystem
import Logging
import NightbellCore
import NightbellSupervisor

/// The daemon as two processes: a keeper that holds state, and a worker that serves.
extension Daemon {
    /// Runs the keeper until a stop signal; returns the exit code.
    ///
    /// - Parameter state: the state left by the program that this process ran before, as a descriptor.
    func keep(resuming state: CInt?) -> Int32 {
        let manager = ServiceManager.fromEnvironment()
        do {
            let program = Keeper.Program(path: try Self.programPath(), arguments: Self.argumentsToKeep())
            if let state {
                logger.notice("the keeper is version \(nightbelldVersion) from here on")
                let keeper = try Keeper(
                    resuming: try ProgramState(reading: state), policy: policy, program: program,
                    hooks: hooks(manager))
                Process.releaseStartUpCode()
                return keeper.run()
            }
            let resources = try KeeperResources.make(supervisorConfiguration)
            return try keep(resources, program, manager)
        } catch let error as SupervisorError {
            logger.critical("\(error)")
            manager.failed(errno: error.errorNumber, status: error.description)
            return error.exitCode
        } catch {
            logger.critical("\(error)")
            manager.failed(errno: 0, status: "\(error)")
            return EX_OSERR
        }
    }

    private func keep(
        _ resources: consuming RecordStore, _ program: Keeper.Program, _ manager: ServiceManager
    ) throws(SupervisorError) -> Int32 {
        var hasServed = false
        defer { if !hasServed { KeeperResources.remove(supervisorConfiguration) } }
        do throws(SystemError) {
            let keeper = try Keeper(resources, policy: policy, program: program, hooks: hooks(manager))
            let code = keeper.run()
            if let obstacle = keeper.obstacle { throw obstacle }
            if let failure = keeper.failure {
                logger.critical("\(failure)")
                manager.failed(errno: 0, status: failure)
            } else {
                hasServed = true
            }
            return code
        } catch {
            throw KeeperResources.error(error)
        }
    }

    /// Runs a worker of this program that replaces another if it can: the option `--worker-state`.
    func workInsteadOfAnother(_ state: CInt) -> Int32 {
        Process.growDescriptorTable()
        makeLaunchSlots()
        declarations = logged(readManifests())
        do {
            return work(try ProgramState(reading: state).startup())
        } catch {
            logger.critical("\(error)")
            return EX_OSERR
        }
    }

    private var policy: RestartPolicy {
        var policy = RestartPolicy()
        policy.limit = loaded.settings.crashLimit
        policy.period = loaded.settings.crashPeriod.nanoseconds
        return policy
    }

    private func hooks(_ manager: ServiceManager) -> Keeper.Hooks {
        let limit = Process.descriptorLimit
        return Keeper.Hooks(
            log: { level, text in self.logger.log(level: level.loggerLevel, "\(text)") },
            ready: {
                self.announceReady(manager, descriptors: limit)
                Process.releaseStartUpCode()
            },
            stopping: { manager.stopping() },
            reload: {
                if self.reload().configuration == nil {
                    self.logger.warning(
                        "the keeper could not read the configuration again: the next worker has the old one")
                }
                Process.releaseStartUpCode()
            },
            thawAll: {
                Supervisor.thawAll(of: self.supervisorConfiguration, logger: self.logger)
            },
            prepareWorker: { Process.growDescriptorTable() }, work: { self.work($0) })
    }

    /// The body of a worker, in a process of its own.
    private func work(_ startup: consuming WorkerStartup) -> Int32 {
        // The keeper receives these signals, and tells the worker.
        for number in [SIGTERM, SIGINT, SIGHUP, SIGUSR2] { signal(number, SIG_IGN) }
        Process.setName("nightbelld-work")
        ServiceManager.forget()
        let link = startup.link
        do {
            let supervisor = try Supervisor(
                supervisorConfiguration, logger: logger, inheriting: startup)
            try supervisor.run()
            return 0
        } catch {
            link.send(.failed(code: error.exitCode, error.description))
            return error.exitCode
        }
    }

    // MARK: The program

    /// The path of the program that an upgrade executes. A replaced file is shown as deleted.
    private static func programPath() throws(SystemError) -> String {
        let path = try readLink("/proc/self/exe")
        let mark = " (deleted)"
        return path.hasSuffix(mark) ? String(path.dropLast(mark.count)) : path
    }

    /// The arguments as they were originally given.
    private static func argumentsToKeep() -> [String] {
        var arguments = CommandLine.arguments
        if let index = arguments.firstIndex(of: "--keeper-state") {
            arguments.removeSubrange(index...(index + 1))
        }
        return arguments
    }
}

extension Keeper.Hooks.Level {
    fileprivate var loggerLevel: Logger.Level {
        switch self {
        case .info: .info
        case .notice: .notice
        case .warning: .warning
        case .error: .error
        }
    }
}
