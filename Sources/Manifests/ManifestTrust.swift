import Glibc
import LinuxSystem

/// Decides whether a manifest is trusted: a user that can change or replace one can have programs run.
enum ManifestTrust {
    /// - Parameter owner: the only uid besides root that may be able to write to it.
    static func problem(_ status: stat, owner: uid_t) -> String? {
        guard status.st_uid == 0 || status.st_uid == owner else {
            return "belongs to uid \(status.st_uid), which could have programs run as other users"
        }
        // A symbolic link cannot be written to, whatever its permissions are.
        let isLink = status.st_mode & S_IFMT == S_IFLNK
        let isWritable = !isLink && status.st_mode & 0o022 != 0
        return isWritable ? "can be written to by others than its owner" : nil
    }

    static func problem(ofDirectory path: String, owner: uid_t) throws(SystemError) -> String? {
        var status = stat()
        _ = try systemCall("stat \(path)") { unsafe stat(path, &status) }
        guard status.st_mode & S_IFMT == S_IFDIR else { return nil }
        return Self.problem(status, owner: owner)
    }

    /// The reason not to trust a symbolic link, or one that it leads to: its owner, or the owners of a
    /// directory on its way, could put another file there.
    static func problem(ofLink path: String, owner: uid_t) throws(SystemError) -> String? {
        var path = path
        // As many as the kernel follows.
        for _ in 0..<40 {
            var status = stat()
            _ = try systemCall("lstat \(path)") { unsafe lstat(path, &status) }
            guard status.st_mode & S_IFMT == S_IFLNK else { return nil }
            if let problem = Self.problem(status, owner: owner) { return "as a link, \(problem)" }
            let text = try readLink(path)
            let target = text.hasPrefix("/") ? text : directory(of: path) + "/" + text
            let directory = Self.directory(of: target)
            if let problem = try Self.problem(ofDirectory: directory, owner: owner) {
                return "leads to \(directory), which \(problem)"
            }
            path = target
        }
        return nil
    }

    /// Whether the path itself is a link, to a file that exists or not.
    static func isLink(_ path: String) -> Bool {
        var status = stat()
        return unsafe lstat(path, &status) == 0 && status.st_mode & S_IFMT == S_IFLNK
    }

    static func directory(of path: String) -> String {
        guard let end = path.lastIndex(of: "/") else { return "." }
        return end == path.startIndex ? "/" : String(path[..<end])
    }
}
