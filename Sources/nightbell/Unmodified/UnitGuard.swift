import CLinux
import Glibc
import LinuxSystem

/// A process that thaws a unit if this one is killed: the supervisor does not know systemd.
final class UnitGuard {
    private let pid: pid_t
    private let leash: CInt

    /// For a process with a single thread.
    init(_ unit: String, directory: String) throws(SystemError) {
        let arguments = ["nightbell", "adopt", "--unit", unit, "--thaw", directory]
        var pointers = unsafe arguments.map { unsafe strdup($0) } + [nil]
        defer { unsafe pointers.forEach { unsafe free($0) } }
        var end: CInt = -1
        pid = try systemCall("fork") { unsafe clinux_fork_guard(&pointers, &end) }
        leash = end
    }

    deinit {
        var byte: UInt8 = 0
        // It may have been killed.
        _ = unsafe send(leash, &byte, 1, CInt(MSG_NOSIGNAL))
        close(leash)
        while waitpid(pid, nil, 0) == -1, errno == EINTR {}
    }
}
