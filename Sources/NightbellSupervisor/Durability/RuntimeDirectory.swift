import Glibc
import LinuxSystem

/// The supervisor's own directory, locked for as long as this value lives: two supervisors that shared one
/// would thaw each other's clients. The kernel releases the lock however the process ends.
struct RuntimeDirectory: ~Copyable {
    let path: String
    private let lock: OwnedDescriptor

    /// Makes the directory if there is none; its parent, such as `/run`, must exist.
    ///
    /// - Throws: `EADDRINUSE` while another supervisor has it, `EPERM` if another user could have written its
    ///   content.
    init(_ path: String) throws(SupervisorError) {
        if unsafe mkdir(path, 0o755) != 0, errno != EEXIST {
            throw SupervisorError(.runtimeDirectory, SystemError("mkdir"), "cannot make \(path)")
        }
        if let problem = Self.problem(with: path) {
            throw SupervisorError(
                .runtimeDirectory, errorNumber: EPERM, "cannot believe what is in \(path): \(problem)")
        }
        let file: OwnedDescriptor
        do {
            file = try OwnedDescriptor(opening: path + "/lock", O_RDWR | O_CREAT | O_NOFOLLOW, mode: 0o600)
        } catch {
            throw SupervisorError(.runtimeDirectory, error, "cannot use \(path)")
        }
        guard flock(file.rawValue, LOCK_EX | LOCK_NB) == 0 else {
            guard errno == EWOULDBLOCK else {
                throw SupervisorError(.runtimeDirectory, SystemError("flock"), "cannot use \(path)")
            }
            throw SupervisorError(
                .runtimeDirectory, errorNumber: EADDRINUSE, "another supervisor uses \(path)")
        }
        self.path = path
        lock = file
    }

    /// The notes in it name processes to continue and cgroups to empty and remove: they must be ours.
    private static func problem(with path: String) -> String? {
        var status = stat()
        // A symbolic link's owner could redirect it; its permissions mean nothing.
        guard unsafe lstat(path, &status) == 0 else { return nil }
        if let problem = Self.problem(ofOwner: status) { return problem }
        guard unsafe stat(path, &status) == 0 else { return nil }
        if let problem = Self.problem(ofOwner: status) { return problem }
        let mode = String(status.st_mode & 0o7777, radix: 8)
        return status.st_mode & 0o022 == 0
            ? nil : "others can write to it (mode 0\(mode)); chmod go-w \(path)"
    }

    private static func problem(ofOwner status: stat) -> String? {
        let owner = status.st_uid
        return owner == 0 || owner == geteuid()
            ? nil : "it belongs to uid \(owner), the supervisor is uid \(geteuid())"
    }

    /// Transfers the lock to the caller.
    consuming func takeLock() -> OwnedDescriptor { lock }

    /// A name for what belongs to this directory in shared name spaces such as the cgroup tree. (FNV-1a, 64
    /// bits.)
    static func instanceName(of path: String) -> String {
        let hash = path.utf8.reduce(0xcbf2_9ce4_8422_2325 as UInt64) { hash, byte in
            (hash ^ UInt64(byte)) &* 0x100_0000_01b3
        }
        return String(hash, radix: 16)
    }
}
