import CLinux
import Glibc

/// Reads from the environment where the supervisor is and which identifier this process has.
package enum Environment {
    /// nil if it is unset or empty, or if this program is privileged (such as setuid): its caller could
    /// otherwise name another supervisor, or have anything launched as this program's user.
    package static func value(_ name: String) -> String? {
        guard let text = unsafe clinux_environment(name) else { return nil }
        let value = unsafe String(cString: text)
        return value.isEmpty ? nil : value
    }

    /// See ``Client/Configuration/defaultSocketPath()``.
    package static func socketPath() -> String {
        if let path = value("NIGHTBELL_SOCKET") { return path }
        if let directory = value("XDG_RUNTIME_DIR") {
            let own = directory + "/nightbell/nightbell.sock"
            if unsafe access(own, F_OK) == 0 { return own }
        }
        return "/run/nightbell/nightbell.sock"
    }

    /// Beside the user's own supervisor, if there is one; else the gateway's own directory.
    package static func pushSocketPath() -> String {
        if let directory = value("XDG_RUNTIME_DIR"), unsafe access(directory + "/nightbell", F_OK) == 0 {
            return directory + "/nightbell/push.sock"
        }
        return "/run/nightbell-gateway/push.sock"
    }
}
