import CLinux
import Glibc

/// A process beside this one that is not its child: a program that replaces this one by `execve` has no child
/// that it does not know.
package enum DetachedProcess {
    /// Runs `body` in a copy of this process, which ends with it. Only for a process with a single thread.
    package static func begin(_ body: () -> Void) throws(SystemError) {
        let child = try systemCall("fork") { clinux_fork() }
        guard child == 0 else {
            while waitpid(child, nil, 0) == -1, errno == EINTR {}
            return
        }
        if clinux_fork() == 0 { body() }
        _exit(0)
    }
}
