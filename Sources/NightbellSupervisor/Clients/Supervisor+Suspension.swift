import LinuxSystem
public import Logging
import Suspension

/// How the supervisor sets up its way to stop processes.
extension Supervisor {
    /// Thaws every process that an earlier supervisor of this configuration has left stopped, and does nothing
    /// else. A supervisor does this by itself when it starts; this is for when none is to start.
    ///
    /// - Throws: `SupervisorError` with `EADDRINUSE` while a supervisor uses the runtime directory: a process
    ///   that is stopped then is stopped on purpose.
    public static func thawLeftovers(
        of configuration: SupervisorConfiguration, logger: Logger
    ) throws(SupervisorError) {
        let directory = try RuntimeDirectory(configuration.runtimeDirectory)
        try prepareSuspension(configuration, logger).detachAll()
        withExtendedLifetime(directory) {}
    }

    /// Thaws every process that this supervisor has stopped, found without any worker's records. For its
    /// keeper, which holds the runtime directory.
    package static func thawAll(of configuration: SupervisorConfiguration, logger: Logger) {
        do {
            try prepareSuspension(configuration, logger).detachAll()
        } catch {
            logger.critical("cannot thaw all processes: \(error)")
        }
    }

    static func prepareSuspension(
        _ configuration: SupervisorConfiguration, thaws: Bool = true, _ logger: Logger
    ) throws(SupervisorError) -> any Suspender {
        let directory = configuration.runtimeDirectory
        let paths = InstancePaths(
            name: RuntimeDirectory.instanceName(of: directory), runtimeDirectory: directory,
            cgroupParent: configuration.cgroupParent)
        let suspender: any Suspender
        do {
            suspender = try makeSuspender(configuration.suspension.method, instance: paths)
        } catch {
            throw SupervisorError(error)
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
        return suspender
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
