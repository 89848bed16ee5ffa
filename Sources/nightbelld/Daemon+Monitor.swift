import DaemonConfiguration
import Glibc
import Launching
import LinuxSystem
import Manifests
import NightbellSupervisor

/// The program that observes the machine.
extension Daemon {
    /// nil: it is not to be observed, or there is no such program.
    var monitorProgram: MonitorProgram? {
        let settings = loaded.settings
        guard settings.monitor == .auto,
            let path = Self.helper("nightbell-monitor", settings.monitorProgram)
        else { return nil }
        var program = MonitorProgram(path: path)
        // It talks to large things, and needs no rights for it.
        if geteuid() == 0 { program.identity = Self.unprivileged }
        let variables = Process.environment()
        for name in ["DBUS_SYSTEM_BUS_ADDRESS", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR"] {
            program.environment[name] = variables[name]
        }
        return program
    }

    /// The path of a program that does a part of the work: the configured one, or one of ours; nil: it is not there.
    static func helper(_ name: String, _ configured: String) -> String? {
        guard let path = configured.isEmpty ? program(beside: name) : configured,
            unsafe access(path, X_OK) == 0
        else { return nil }
        return path
    }

    /// The path of a program of ours in the directory of this one; nil: that cannot be read.
    static func program(beside name: String) -> String? {
        guard let own = try? readLink("/proc/self/exe"), let slash = own.lastIndex(of: "/") else {
            return nil
        }
        return own[...slash] + name
    }

    /// The user that owns nothing; its number is the same everywhere.
    private static var unprivileged: ProcessIdentity {
        SystemAccounts().user("nobody")?.identity
            ?? ProcessIdentity(user: 65_534, group: 65_534, otherGroups: [])
    }
}
