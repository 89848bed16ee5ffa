package import CLinux
import LinuxSystem

/// The cgroup of a process: all that would be frozen together, and by what means.
package enum ProcessGroup: Sendable, Hashable {
    /// A unit of systemd, which freezes it (`FreezeUnit`).
    case unit(String)
    /// A container, which its engine pauses.
    case container(String)
    /// A cgroup that no manager is known to own.
    case cgroup(String)
    /// The root cgroup, which cannot be frozen.
    case root
    /// This system has no cgroups of version 2.
    case none

    /// Parses `/proc/PID/cgroup`. Version 2 has the hierarchy 0 and no controllers:
    /// `0::/system.slice/ssh.service`.
    package init(_ text: String) {
        let line = text.split(separator: "\n").first { $0.hasPrefix("0::") }
        guard let path = line?.dropFirst(3) else {
            self = .none
            return
        }
        let parts = path.split(separator: "/")
        let container = parts.last { part in
            ["docker-", "libpod-", "crio-", "cri-containerd-"].contains { part.hasPrefix($0) }
        }
        let isDocker = parts.count == 2 && parts[0] == "docker"
        if let container {
            self = .container(String(container))
        } else if isDocker {
            self = .container(String(parts[1]))
        } else if let unit = parts.last(where: { $0.hasSuffix(".service") || $0.hasSuffix(".scope") }) {
            self = .unit(String(unit))
        } else {
            self = parts.isEmpty ? .root : .cgroup(String(path))
        }
    }

    /// - Returns: nil if the process is gone or hidden.
    package static func of(_ pid: pid_t) -> ProcessGroup? {
        (try? SmallFile.readText("/proc/\(pid)/cgroup")).map { ProcessGroup($0) }
    }
}
