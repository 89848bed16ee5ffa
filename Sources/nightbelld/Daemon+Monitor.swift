import DaemonConfiguration
import Glibc
import Launching
import LinuxSystem
import Manifests
import NightbellSupervisor

/// The program that observes the machine.
extension Daemon {
    /// nil: it is not to be observed, or there is no such program.
    var monitorProgram: HelperProgram? {
        let settings = loaded.settings
        guard settings.monitor == .auto,
            let path = Self.helper("nightbell-monitor", configured: settings.monitorProgram)
        else { return nil }
        var program = HelperProgram(path: path)
        // It talks to large things, and needs no rights for it.
        if geteuid() == 0 { program.identity = Self.unprivileged }
        let variables = Process.environment()
        for name in ["DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"] {
            program.environment[name] = variables[name]
        }
        return program
    }

    /// The path of a program that does a part of the work: the configured one, or else the one in the
    /// directory of this program. Nil: it is not there, or that directory is unknown.
    static func helper(_ name: String, configured: String = "") -> String? {
        var path = configured
        if path.isEmpty {
            guard let own = try? readLink("/proc/self/exe"), let slash = own.lastIndex(of: "/") else {
                return nil
            }
            path = own[...slash] + name
        }
        return unsafe access(path, X_OK) == 0 ? path : nil
    }

    /// The user that owns nothing; its number is the same everywhere.
    private static var unprivileged: ProcessIdentity {
        SystemAccounts().user("nobody")?.identity
            ?? ProcessIdentity(user: 65_534, group: 65_534, otherGroups: [])
    }
}
