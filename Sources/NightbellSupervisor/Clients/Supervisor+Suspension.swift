import LinuxSystem
public import Logging
import Suspension

/// How the supervisor sets up its way to stop processes.
extension Supervisor {
    /// Thaws every process that an earlier supervisor of this configuration has left stopped, and does
    /// nothing else. A supervisor does this by itself when it starts; this is for when none is to start.
    ///
    /// - Throws: `SupervisorError` with `EADDRINUSE` while a supervisor uses the runtime directory: a process
    ///   that is stopped then is stopped on purpose.
    public static func thawLeftovers(
        of configuration: SupervisorConfiguration, logger: Logger
    ) throws(SupervisorError) {
        let directory = try RuntimeDirectory(configuration.runtimeDirectory)
        try prepareSuspension(configuration, logger).suspender.detachAll()
        withExtendedLifetime(directory) {}
    }

    /// Thaws every process that this supervisor has stopped, found without any worker's records. For its
    /// keeper, which holds the runtime directory.
    package static func thawAll(of configuration: SupervisorConfiguration, logger: Logger) {
        do {
            try prepareSuspension(configuration, logger).suspender.detachAll()
        } catch {
            logger.critical("cannot thaw all processes: \(error)")
        }
    }

    static func prepareSuspension(
        _ configuration: SupervisorConfiguration, thaws: Bool = true, _ logger: Logger
    ) throws(SupervisorError) -> (state: RuntimeState, suspender: any Suspender) {
        let directory = configuration.runtimeDirectory
        let instance = InstanceNames(
            name: RuntimeDirectory.instanceName(of: directory), cgroupParent: configuration.cgroupParent)
        let state: RuntimeState
        let suspender: any Suspender
        do {
            state = try RuntimeState(directory: directory)
            suspender = try makeSuspender(
                configuration.suspension.method, instance: instance, state: state)
        } catch {
            switch error {
            case let error as SuspensionError: throw SupervisorError(error)
            case let error as SystemError:
                throw SupervisorError(.runtimeDirectory, error, "cannot use \(directory)")
            default: preconditionFailure("\(error)")
            }
        }
        if let damage = state.damage {
            logger.error("\(damage): processes that an earlier run has stopped may stay stopped")
        }
        let leftovers = thaws ? suspender.thawLeftovers() : []
        if leftovers.count > LogLimiter.perMinute {
            logger.notice("\(leftovers.count) processes were left frozen by an earlier run, among them these")
        }
        for leftover in leftovers.prefix(LogLimiter.perMinute) {
            let process = "pid \(leftover.pid)"
            switch leftover.outcome {
            case .thawed:
                logger.notice("thawed \(process), left \(leftover.method.rawValue)-frozen by an earlier run")
            case .failed(let error):
                logger.error("cannot thaw \(process), left frozen by an earlier run: \(error)")
            }
        }
        logger.info("clients are suspended by \(suspender.method.rawValue): \(suspender.detail)")
        return (state, suspender)
    }
}

extension SupervisorConfiguration.Suspension {
    var method: SuspensionMethod {
        switch self {
        case .auto: .auto
        case .cgroup: .cgroup
        case .signal: .signal
        case .none: .none
        }
    }
}
