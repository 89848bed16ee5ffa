import Descriptors
package import Glibc

/// Whether a process is confined more than we are. What such a one says of how it was started must not be believed:
/// started by us, the program would run outside of its confinement.
package enum Confinement {
    /// In words, why it is more confined; nil: it is not.
    package static func reason(_ process: pid_t) -> String? {
        do {
            for name in ["mnt", "user", "pid", "net", "ipc", "cgroup"] {
                guard try readLink("/proc/\(process)/ns/\(name)") == readLink("/proc/self/ns/\(name)") else {
                    return "it is in another \(name) namespace"
                }
            }
            guard try directory("/proc/\(process)/root") == directory("/proc/self/root") else {
                return "its root directory is another"
            }
            let theirs = try Status(process)
            let ours = try Status(getpid())
            if theirs.noNewPrivileges, !ours.noNewPrivileges { return "it may gain no privileges" }
            if theirs.seccomp != ours.seccomp { return "its system calls are filtered" }
            let lacks = ours.bounding & ~theirs.bounding
            if lacks != 0 { return "it can never have all of our capabilities" }
            if theirs.user == 0, ours.permitted & ~theirs.permitted != 0 {
                return "it is root without all of our capabilities"
            }
            return nil
        } catch {
            return "it cannot be looked at: \(error)"
        }
    }

    private static func directory(_ path: String) throws(SystemError) -> [UInt64] {
        var status = stat()
        _ = try systemCall("stat \(path)") { unsafe stat(path, &status) }
        return [UInt64(status.st_dev), UInt64(status.st_ino)]
    }

    /// What the kernel tells of a process's privileges.
    private struct Status {
        var user: uid_t = .max
        var permitted: UInt64 = 0
        var bounding: UInt64 = 0
        var noNewPrivileges = false
        var seccomp = ""

        init(_ process: pid_t) throws(SystemError) {
            for line in try SmallFile.readText("/proc/\(process)/status").split(separator: "\n") {
                let fields = line.split { $0 == "\t" || $0 == " " }
                guard fields.count > 1 else { continue }
                switch fields[0] {
                case "Uid:": user = fields.count > 2 ? uid_t(fields[2]) ?? .max : .max
                case "CapPrm:": permitted = UInt64(fields[1], radix: 16) ?? 0
                case "CapBnd:": bounding = UInt64(fields[1], radix: 16) ?? 0
                case "NoNewPrivs:": noNewPrivileges = fields[1] == "1"
                case "Seccomp:", "Seccomp_filters:": seccomp += fields[1] + " "
                default: break
                }
            }
        }
    }
}
