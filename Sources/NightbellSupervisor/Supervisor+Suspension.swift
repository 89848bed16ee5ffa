import Descriptors
import Glibc
import Logging
import Suspension

/// How the supervisor sets up its way to stop processes.
extension Supervisor {
    static func prepareSuspension(
        _ configuration: SupervisorConfiguration, _ logger: Logger
    ) throws(SupervisorError) -> any Suspender {
        try makeRuntimeDirectory(configuration.runtimeDirectory)
        let paths = InstancePaths(
            name: instanceName(configuration.runtimeDirectory),
            runtimeDirectory: configuration.runtimeDirectory, cgroupParent: configuration.cgroupParent)
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

    private static func makeRuntimeDirectory(_ path: String) throws(SupervisorError) {
        // Its parent, such as /run, is somebody else's.
        guard unsafe mkdir(path, 0o755) != 0, errno != EEXIST else { return }
        throw SupervisorError(.runtimeDirectory, SystemError("mkdir"), "cannot make \(path)")
    }

    /// Supervisors with different runtime directories share nothing; one with the same directory takes over what
    /// an earlier one left. (FNV-1a, 64 bits.)
    private static func instanceName(_ runtimeDirectory: String) -> String {
        let hash = runtimeDirectory.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { hash, byte in
            (hash ^ UInt64(byte)) &* 0x100_0000_01b3
        }
        return String(hash, radix: 16)
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
