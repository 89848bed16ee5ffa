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
        let variables = Process.environment()
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "no_proxy", "NO_PROXY"] {
            program.environment[name] = variables[name]
        }
        return program
    }
}
