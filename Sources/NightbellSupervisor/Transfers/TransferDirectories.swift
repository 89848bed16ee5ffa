import Glibc
import LinuxSystem
import NightbellCore

/// The directories of the transfers' sockets and stores, some of them given to the users.
enum TransferDirectories {
    static func make(_ path: String, of user: UserID, _ mode: mode_t) throws(SystemError) {
        if unsafe mkdir(path, mode) == 0 {
            if user != geteuid() {
                _ = try systemCall("chown \(path)") { unsafe lchown(path, user, gid_t.max) }
            }
            return
        }
        guard errno == EEXIST else { throw SystemError("mkdir \(path)") }
        var status = stat()
        _ = try systemCall("lstat \(path)") { unsafe lstat(path, &status) }
        if status.st_mode & S_IFMT == S_IFDIR, status.st_uid == 0, geteuid() == 0, user != 0 {
            // A worker that died had made it, and not given it away yet.
            _ = try systemCall("chown \(path)") { unsafe lchown(path, user, gid_t.max) }
            return
        }
        guard status.st_mode & S_IFMT == S_IFDIR,
            status.st_uid == user || status.st_uid == 0 && user == geteuid()
        else { throw SystemError(code: EPERM, call: "\(path) is not a directory of uid \(user)") }
    }

    /// A user's process has to reach its store. Our own files in the state directory are for us alone.
    static func letPass(_ path: String) throws(SystemError) {
        var status = stat()
        _ = try systemCall("stat \(path)") { unsafe stat(path, &status) }
        let mode = status.st_mode & 0o7777
        guard mode & 0o001 == 0 else { return }
        _ = try systemCall("chmod \(path)") { unsafe chmod(path, mode | 0o011) }
    }
}
