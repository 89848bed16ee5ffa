import Glibc
import LinuxSystem

/// A launched process that has started its client's process instead of becoming it, as a shell does. It leads
/// its session, and so its group.
final class LaunchWrapper {
    private let process: ProcessHandle

    /// nil: there is no descriptor for it. It is left alone then.
    init?(_ process: borrowing ProcessHandle) {
        do throws(SystemError) {
            self.process = try process.duplicate()
        } catch {
            return nil
        }
    }

    /// A wrapper that another worker recorded; nil: there is none any more. A session keeps the number of its
    /// leader from being used again, so that the process with that number is the leader of the client's.
    init?(recorded pid: pid_t, of client: pid_t) {
        guard pid != 0, pid != client, getsid(client) == pid else { return nil }
        do throws(SystemError) {
            process = try ProcessHandle(opening: pid)
        } catch {
            return nil
        }
    }

    var pid: pid_t { process.pid }

    /// Whether it has ended; then it is no zombie any more, if it was our child. That of another worker is
    /// the keeper's.
    func reap() -> Bool {
        guard process.hasExited else { return false }
        waitpid(pid, nil, WNOHANG)
        return true
    }

    /// Signals it, with those of its processes that have no group of their own.
    func signalGroup(_ number: CInt) {
        do throws(SystemError) {
            try process.signalGroup(number)
        } catch  where error.code == EINVAL {
            // This kernel is older than 6.9. The leader has not been reaped, so the number is still its own.
            if !process.hasExited { kill(-pid, number) }
        } catch {
            // It has ended.
        }
    }
}
