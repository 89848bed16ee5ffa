import CLinux
package import Descriptors
import Glibc

/// How a process has ended.
package enum ExitStatus: Sendable, Hashable {
    case exited(Int32)
    case signalled(Int32)
    /// It was somebody else's child, and this kernel (before 6.15) keeps no record of such.
    case unknown

    init(waitStatus: Int32) {
        let signal = waitStatus & 0x7F
        self = signal == 0 ? .exited(waitStatus >> 8 & 0xFF) : .signalled(signal)
    }
}

extension ProcessHandle {
    /// How it has ended; nil: not yet, or its parent has not heard of it yet. A child of ours is waited for by this,
    /// so that nothing is left of it.
    package borrowing func exitStatus() throws(SystemError) -> ExitStatus? {
        guard hasExited else { return nil }
        var status: Int32 = 0
        let result = unsafe clinux_wait(rawValue, &status)
        if result == 1 { return ExitStatus(waitStatus: status) }
        guard result == -1, errno == ECHILD else { return nil }
        // Somebody else's child. While its parent waits for it there is a moment in which nobody knows.
        for _ in 0..<Self.looks {
            // Its parent may not have waited for it yet …
            if let code = ProcFS.exitCode(pid), isThere { return ExitStatus(waitStatus: code) }
            // … or it has; then the pidfd knows.
            switch unsafe clinux_pidfd_exit_status(rawValue, &status) {
            case 1: return ExitStatus(waitStatus: status)
            case 0: _ = Poll.wait(rawValue, for: .peerClosed, timeoutMilliseconds: 1)
            default: return .unknown
            }
        }
        return nil
    }

    /// On a machine with much to do, whoever has just been told may not run for a while, and it is not over before.
    private static var looks: Int { 50 }

    /// Whether the number is still its own: nobody has waited for it.
    private var isThere: Bool { clinux_pidfd_send_signal(rawValue, 0) == 0 || errno == EPERM }
}
