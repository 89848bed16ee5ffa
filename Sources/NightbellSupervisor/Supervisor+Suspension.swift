import Descriptors
public import Logging
import Suspension

/// How the supervisor sets up its way to stop processes.
extension Supervisor {
    /// Lets everything run that an earlier supervisor of this configuration has left stopped, and does nothing
    /// else. A supervisor does this by itself when it starts; this is for when none is to start.
    ///
    /// - Throws: `SupervisorError` with `EADDRINUSE` while a supervisor uses the runtime directory: what is stopped
    ///   then is stopped on purpose.
    public static func thawLeftovers(
        of configuration: SupervisorConfiguration, logger: Logger
    ) throws(SupervisorError) {
        let directory = try RuntimeDirectory(configuration.runtimeDirectory)
        try prepareSuspension(configuration, directory, logger).detachAll()
    }

    static func prepareSuspension(
        _ configuration: SupervisorConfiguration, _ directory: borrowing RuntimeDirectory, _ logger: Logger
    ) throws(SupervisorError) -> any Suspender {
        let paths = InstancePaths(
            name: directory.instanceName, runtimeDirectory: directory.path,
            cgroupParent: configuration.cgroupParent)
        let suspender: any Suspender
        do {
            suspender = try makeSuspender(configuration.suspension.method, instance: paths)
        } catch {
            throw SupervisorError(error)
        }
        for leftover in suspender.thawLeftovers() {
            let who = "pid \(leftover.pid)"
            switch leftover.outcome {
            case .thawed:
                logger.notice("thawed \(who), left \(leftover.method.rawValue)-frozen by an earlier run")
            case .failed(let error):
                logger.error("cannot thaw \(who), left frozen by an earlier run: \(error)")
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
