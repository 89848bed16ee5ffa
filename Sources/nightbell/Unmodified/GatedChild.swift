import CLinux
import Glibc
import LinuxSystem

/// A child process that waits until it is let to run its program.
final class GatedChild {
    let pid: pid_t
    private var gate: CInt
    private var report: CInt

    /// - Parameters:
    ///   - arguments: of the program, which is looked up in `PATH`; ends with nil.
    ///   - mask: the signals that the program blocks at its start.
    ///   - endsWithUs: whether it is killed when this process ends, unless it runs as another user.
    @unsafe init(
        _ arguments: UnsafeMutablePointer<UnsafeMutablePointer<CChar>?>, mask: sigset_t, endsWithUs: Bool
    ) throws(SystemError) {
        var child = clinux_gated_child()
        var mask = mask
        _ = try systemCall("fork") {
            unsafe clinux_fork_gated(arguments, &mask, endsWithUs ? SIGKILL : 0, &child)
        }
        pid = child.pid
        gate = child.gate
        report = child.report
    }

    deinit {
        if gate >= 0 { close(gate) }
        if report >= 0 { close(report) }
    }

    /// Runs the program.
    ///
    /// - Returns: nil, or the errno with which it could not be started.
    func letRun() -> CInt? {
        var byte: UInt8 = 1
        _ = unsafe write(gate, &byte, 1)
        close(gate)
        gate = -1
        var code: CInt = 0
        var count: Int
        repeat {
            count = unsafe read(report, &code, MemoryLayout<CInt>.size)
        } while count == -1 && errno == EINTR
        close(report)
        report = -1
        return count == MemoryLayout<CInt>.size ? code : nil
    }

    /// Ends the child without running its program.
    func abandon() {
        if gate >= 0 { close(gate) }
        gate = -1
        while waitpid(pid, nil, 0) == -1, errno == EINTR {}
    }

    /// Its exit code as a shell tells it, once it has ended: 128 and the number of the signal that has ended
    /// it.
    func exitCode() -> Int32? {
        var status: CInt = 0
        guard unsafe waitpid(pid, &status, WNOHANG) == pid else { return nil }
        let signal = status & 0x7f
        return signal == 0 ? status >> 8 & 0xff : 128 + signal
    }
}
