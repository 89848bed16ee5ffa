import CLinux
import Glibc

extension MonitorConfiguration {
    /// The usual places of this user, unless the environment names others.
    package static func fromEnvironment(isSession: Bool) -> MonitorConfiguration {
        let runtimeDirectory = variable("XDG_RUNTIME_DIR") ?? "/run/user/\(getuid())"
        return MonitorConfiguration(
            isSession: isSession,
            systemBusAddress: variable("DBUS_SYSTEM_BUS_ADDRESS")
                ?? "unix:path=/run/dbus/system_bus_socket",
            sessionBusAddress: variable("DBUS_SESSION_BUS_ADDRESS") ?? "unix:path=\(runtimeDirectory)/bus",
            runtimeDirectory: runtimeDirectory)
    }

    private static func variable(_ name: String) -> String? {
        guard let value = unsafe clinux_environment(name) else { return nil }
        let text = unsafe String(cString: value)
        return text.isEmpty ? nil : text
    }
}
