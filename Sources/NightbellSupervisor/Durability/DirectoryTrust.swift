import Glibc

/// Whether the files in a directory may be believed: they name processes to continue, cgroups to empty and
/// remove, and the owners of identifiers.
enum DirectoryTrust {
    /// Why another user could have written them; nil if none could, or if there is no directory.
    static func problem(with path: String) -> String? {
        var status = stat()
        // A symbolic link's owner could redirect it; its permissions mean nothing.
        guard unsafe lstat(path, &status) == 0 else { return nil }
        if let problem = problem(ofOwner: status) { return problem }
        guard unsafe stat(path, &status) == 0 else { return nil }
        if let problem = problem(ofOwner: status) { return problem }
        let mode = String(status.st_mode & 0o7777, radix: 8)
        return status.st_mode & 0o022 == 0
            ? nil : "others can write to it (mode 0\(mode)); chmod go-w \(path)"
    }

    private static func problem(ofOwner status: stat) -> String? {
        let owner = status.st_uid
        return owner == 0 || owner == geteuid()
            ? nil : "it belongs to uid \(owner), the supervisor is uid \(geteuid())"
    }
}
