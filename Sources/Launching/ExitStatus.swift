import CLinux
import Glibc
package import LinuxSystem

/// How a process has ended.
package enum ExitStatus: Sendable, Hashable {
    case exited(Int32)
    case signalled(Int32)
    /// It was another process's child, and this kernel (before 6.15) keeps no exit status for such.
    case unknown

    init(waitStatus: Int32) {
        let signal = waitStatus & 0x7F
        self = signal == 0 ? .exited(waitStatus >> 8 & 0xFF) : .signalled(signal)
    }
}

extension ProcessHandle {
    /// Its exit status; nil: it has not ended, or its parent has not been notified yet. Reaps the process if
    /// it is our child.
    package borrowing func exitStatus() throws(SystemError) -> ExitStatus? {
        guard hasExited else { return nil }
        var status: Int32 = 0
        let result = unsafe clinux_wait(rawValue, &status)
        if result == 1 { return ExitStatus(waitStatus: status) }
        guard result == -1, errno == ECHILD else { return nil }
        // Another process's child. While its parent reaps it, there is a moment in which neither source has
        // the status.
        let end = BootClock.now() + Self.patience
        while true {
            // Its parent may not have reaped it yet …
            if let code = ProcFS.exitCode(pid), isThere { return ExitStatus(waitStatus: code) }
            // … or it has; then the pidfd has the status.
            switch unsafe clinux_pidfd_exit_status(rawValue, &status) {
            case 1: return ExitStatus(waitStatus: status)
            // Not a wait for the pidfd, which may have hung up before it has the status.
            case 0: _ = poll(nil, 0, 1)
            default: return .unknown
            }
            guard BootClock.now() < end else { return nil }
        }
    }

    /// On a busy machine the parent may not run for a while after it was notified; only then is it over. In
    /// nanoseconds.
    private static var patience: Int64 { 50_000_000 }

    /// Whether the pid is still its own: it has not been reaped.
    private var isThere: Bool { clinux_pidfd_send_signal(rawValue, 0) == 0 || errno == EPERM }
}
