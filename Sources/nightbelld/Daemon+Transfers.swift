import DaemonConfiguration
import NightbellSupervisor

/// The program that moves users' files.
extension Daemon {
    /// nil: nothing is to be moved, or there is no such program.
    var transferProgram: TransferProgram? {
        let settings = loaded.settings
        guard settings.transfers == .auto,
            let path = Self.helper("nightbell-transfer", configured: settings.transferProgram)
        else { return nil }
        var program = TransferProgram(path: path)
        program.arguments = settings.transfer.arguments
        let variables = Process.environment()
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
            program.environment[name] = variables[name]
        }
        return program
    }
}

extension DaemonSettings.Transfer {
    /// The program counts whole seconds.
    fileprivate var arguments: [String] {
        [
            "--parallel", "\(parallel)", "--parallel-per-host", "\(parallelPerHost)", "--disk-bytes",
            "\(diskBytes)", "--lifetime", "\(Self.seconds(lifetime))", "--orphans",
            "\(Self.seconds(orphans))",
        ]
    }

    private static func seconds(_ duration: Duration) -> Int64 {
        min(duration.components.seconds + (duration.components.attoseconds > 0 ? 1 : 0), longest)
    }

    /// About 36 million years; the program refuses more.
    private static let longest: Int64 = 1 << 50
}
