package import Glibc
import LinuxSystem

/// Whether a process is more confined than we are. Its statement of how it was started must not be trusted:
/// if we launched the program, it would run outside of its confinement.
package enum Confinement {
    /// The reason as text; nil: it is not more confined.
    package static func reason(_ process: pid_t) -> String? {
        do {
            for name in ["mnt", "user", "pid", "net", "ipc", "cgroup"] {
                guard try readLink("/proc/\(process)/ns/\(name)") == readLink("/proc/self/ns/\(name)") else {
                    return "it is in another \(name) namespace"
                }
            }
            guard try directory("/proc/\(process)/root") == directory("/proc/self/root") else {
                return "it has another root directory"
            }
            let theirs = try Status(process)
            let ours = try Status(getpid())
            // Its starter has chosen its arguments, and may not have its rights.
            guard theirs.users.allSatisfy({ $0 == theirs.users.first }),
                theirs.groups.allSatisfy({ $0 == theirs.groups.first })
            else { return "it was started by another user or group than it runs as" }
            if theirs.noNewPrivileges, !ours.noNewPrivileges { return "it may gain no privileges" }
            if theirs.seccomp != ours.seccomp { return "its system calls are filtered" }
            let lacks = ours.bounding & ~theirs.bounding
            if lacks != 0 { return "it can never have all of our capabilities" }
            if theirs.users.first == 0, ours.permitted & ~theirs.permitted != 0 {
                return "it is root without all of our capabilities"
            }
            return nil
        } catch {
            return "it cannot be inspected: \(error)"
        }
    }

    private static func directory(_ path: String) throws(SystemError) -> [UInt64] {
        var status = stat()
        _ = try systemCall("stat \(path)") { unsafe stat(path, &status) }
        return [UInt64(status.st_dev), UInt64(status.st_ino)]
    }

    /// A process's privileges as the kernel reports them.
    private struct Status {
        /// Real, effective, saved, and of the file system.
        var users: [UInt64] = []
        var groups: [UInt64] = []
        var permitted: UInt64 = 0
        var bounding: UInt64 = 0
        var noNewPrivileges = false
        var seccomp: [UInt64] = []

        init(_ process: pid_t) throws(SystemError) {
            var fields = ByteFields(try SmallFile.read("/proc/\(process)/status"))
            repeat {
                switch fields.next() {
                case Self.uid: users = fields.restOfLine().map { ByteFields.number($0) ?? .max }
                case Self.gid: groups = fields.restOfLine().map { ByteFields.number($0) ?? .max }
                case Self.capPrm: permitted = ByteFields.number(fields.next(), radix: 16) ?? 0
                case Self.capBnd: bounding = ByteFields.number(fields.next(), radix: 16) ?? 0
                case Self.noNewPrivs: noNewPrivileges = ByteFields.number(fields.next()) == 1
                case Self.mode, Self.filters: seccomp.append(ByteFields.number(fields.next()) ?? .max)
                default: break
                }
            } while fields.nextLine()
        }

        private static let uid = Array("Uid:".utf8)[...]
        private static let gid = Array("Gid:".utf8)[...]
        private static let capPrm = Array("CapPrm:".utf8)[...]
        private static let capBnd = Array("CapBnd:".utf8)[...]
        private static let noNewPrivs = Array("NoNewPrivs:".utf8)[...]
        private static let mode = Array("Seccomp:".utf8)[...]
        private static let filters = Array("Seccomp_filters:".utf8)[...]
    }
}
