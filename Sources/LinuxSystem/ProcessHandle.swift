package import CLinux
import Glibc

/// A process, identified by a pidfd, so that a reused pid is never mistaken for it.
package struct ProcessHandle: ~Copyable, Sendable {
    private let pidfd: OwnedDescriptor
    package let pid: pid_t

    package init(pidfd: consuming OwnedDescriptor, pid: pid_t) {
        self.pidfd = pidfd
        self.pid = pid
    }

    /// Opens the process that has the pid now. The caller must know that it is the right one.
    package init(opening pid: pid_t) throws(SystemError) {
        self.init(pidfd: try Self.openPidfd(pid), pid: pid)
    }

    /// Opens the process that has the pid and started at this time (`ProcFS.Statistics.startTime`).
    ///
    /// - Throws: `ESRCH` if there is none, any more.
    package init(opening pid: pid_t, startedAt startTime: UInt64) throws(SystemError) {
        let pidfd = try Self.openPidfd(pid)
        // The pidfd keeps naming this process: if it started then, it is the right one.
        guard try ProcFS.readStatistics(pid)?.startTime == startTime else {
            throw SystemError(code: ESRCH, call: "pidfd_open of \(pid)")
        }
        self.init(pidfd: pidfd, pid: pid)
    }

    /// Readable, for `poll` and its like, once the process has ended.
    package var rawValue: CInt { pidfd.rawValue }

    package borrowing func duplicate() throws(SystemError) -> ProcessHandle {
        ProcessHandle(pidfd: try pidfd.duplicate(), pid: pid)
    }

    /// `ESRCH`: it has ended and was waited for; `EPERM`: it belongs to another user.
    package borrowing func signal(_ number: CInt) throws(SystemError) {
        let rawValue = pidfd.rawValue
        _ = try systemCall("pidfd_send_signal") { clinux_pidfd_send_signal(rawValue, number) }
    }

    /// Signals all processes of the group that this process leads; `EINVAL`: the kernel is older than 6.9;
    /// `ESRCH`: it leads none, or has ended and was waited for.
    package borrowing func signalGroup(_ number: CInt) throws(SystemError) {
        let rawValue = pidfd.rawValue
        _ = try systemCall("pidfd_send_signal") { clinux_pidfd_signal_group(rawValue, number) }
    }

    /// The pidfd's number, for as long as this value lives.
    package var pidfdValue: CInt { pidfd.rawValue }

    /// Whether it has ended, waited for or not.
    package var hasExited: Bool { Poll.now(pidfd.rawValue).contains(.readable) }

    static func openPidfd(_ pid: pid_t) throws(SystemError) -> OwnedDescriptor {
        OwnedDescriptor(adopting: try systemCall("pidfd_open") { clinux_pidfd_open(pid) })
    }
}
