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
        if let problem = DirectoryTrust.problem(with: path) {
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
