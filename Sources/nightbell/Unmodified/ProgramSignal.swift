import CLinux
import Glibc
import LinuxSystem

/// Signals for programs that were asleep.
enum ProgramSignal {
    /// The kernel gives a signal to the first thread if it can. But while a program is being thawed all of
    /// its threads have something to handle, and any of them may get it: then a call in the first thread,
    /// which the signal is to interrupt, goes on.
    ///
    /// - Returns: whether it was sent; otherwise `errno` says why not.
    @discardableResult
    static func send(_ signal: CInt, to pid: pid_t, toFirstThread: Bool) -> Bool {
        let blocked = ProcFS.blockedSignals(pid) ?? .max
        if toFirstThread, blocked & 1 << UInt64(signal - 1) == 0, clinux_signal_thread(pid, pid, signal) == 0
        {
            return true
        }
        return kill(pid, signal) == 0
    }
}
