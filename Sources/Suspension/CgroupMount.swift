package import CLinux
import Glibc
package import LinuxSystem

/// The mount point of the cgroup v2 hierarchy. On machines that still use v1 as well it is not at
/// `/sys/fs/cgroup` but somewhere below.
package struct CgroupMount: Hashable {
    /// Without a slash at the end.
    package let path: String
    /// The cgroup mounted at `path`: `/`, or another one in a container.
    package let root: String

    package static func find() -> CgroupMount? {
        guard let text = try? SmallFile.readText("/proc/self/mountinfo") else { return nil }
        return find(in: text)
    }

    /// `38 31 0:35 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw`: the fourth field is the root,
    /// the fifth the mount point; the type follows the lone dash.
    package static func find(in mountinfo: String) -> CgroupMount? {
        // As bytes: a supervisor that takes over reads it, and characters would take several times as long.
        for line in mountinfo.utf8.split(separator: UInt8(ascii: "\n")) {
            let fields = line.split(separator: UInt8(ascii: " "))
            guard let dash = fields.firstIndex(where: { $0.elementsEqual("-".utf8) }), dash > 4,
                fields.count > dash + 1, fields[dash + 1].elementsEqual("cgroup2".utf8)
            else { continue }
            return CgroupMount(path: unescape(fields[4]), root: unescape(fields[3]))
        }
        return nil
    }

    /// The directory of a process's cgroup; nil if the process is gone, or its cgroup is not visible.
    package func directory(of pid: pid_t) -> String? {
        guard let text = try? SmallFile.readText("/proc/\(pid)/cgroup") else { return nil }
        return directory(inProcCgroup: text)
    }

    /// The line of the v2 hierarchy is `0::/path`.
    package func directory(inProcCgroup text: String) -> String? {
        for line in text.split(separator: "\n") where line.hasPrefix("0::/") {
            let cgroup = String(line.dropFirst(3))
            // Inside a cgroup namespace, outside cgroups look like this.
            if cgroup.hasPrefix("/..") { return nil }
            if root == "/" { return directory(for: cgroup) }
            guard cgroup == root || cgroup.hasPrefix(root + "/") else { return nil }
            return directory(for: String(cgroup.dropFirst(root.count)))
        }
        return nil
    }

    /// The directory of a cgroup, given its path from the root of the mount.
    package func directory(for cgroup: String) -> String {
        var directory = path
        for part in cgroup.split(separator: "/") { directory += "/" + part }
        return directory
    }

    /// The directories of the cgroups directly below one.
    package static func children(of directory: String) throws(SystemError) -> [String] {
        var status = stat()
        // Each adds a link to the directory, which has two without any.
        guard unsafe stat(directory, &status) != 0 || status.st_nlink > 2 else { return [] }
        return try SmallFile.names(in: directory).map { "\(directory)/\($0)" }.filter {
            // The kernel's own files are the rest.
            unsafe access($0 + "/cgroup.procs", F_OK) == 0
        }
    }

    /// Spaces and some other characters are written as `\040` there.
    private static func unescape(_ field: Substring.UTF8View) -> String {
        var bytes: [UInt8] = []
        var rest = Array(field)[...]
        while let byte = rest.popFirst() {
            if byte == UInt8(ascii: "\\"), rest.count >= 3,
                let code = UInt8(String(decoding: rest.prefix(3), as: UTF8.self), radix: 8)
            {
                bytes.append(code)
                rest = rest.dropFirst(3)
            } else {
                bytes.append(byte)
            }
        }
        return String(decoding: bytes, as: UTF8.self)
    }
}
