import CLinux
import Glibc
import LinuxSystem

/// The keeper's view of a worker.
final class WorkerProcess {
    let process: ProcessHandle
    let channel: SeqPacketSocket
    /// Its channel has ended.
    var isSilent = false
    /// When it reported that it serves.
    var readyAt: Int64?
    /// Its reason when it could not serve.
    var failure: (code: Int32, text: String)?

    init(_ process: consuming ProcessHandle, _ channel: consuming SeqPacketSocket) {
        self.process = process
        self.channel = channel
    }

    /// The channel, while messages may still arrive.
    var audible: CInt? { isSilent ? nil : channel.rawValue }

    /// Sends one item. A worker that does not read any more is about to end, or to be ended.
    func send(_ item: ChannelItem) {
        var packet = ChannelPacket()
        packet.append(item)
        _ = try? channel.send(packet.bytes)
    }

    func kill() { try? process.signal(SIGKILL) }

    /// Its exit status as `waitpid` returns it, once it has ended.
    func reap() -> CInt? { Fork.reap(process.pid) }

    /// As `reap`, but leaves it to be reaped.
    func end() -> CInt? { Fork.end(of: process.pid) }
}

/// fork(2), execve(2) and waitpid(2).
enum Fork {
    /// The child's pid in the parent; nil in the child.
    static func split() throws(SystemError) -> pid_t? {
        let pid = try systemCall("fork") { clinux_fork() }
        return pid == 0 ? nil : pid
    }

    /// Executes another program in this process. Returns only on failure.
    static func become(_ program: String, _ arguments: [String]) -> SystemError {
        var argv: [UnsafeMutablePointer<CChar>?] = unsafe arguments.map { unsafe strdup($0) } + [nil]
        defer { unsafe argv.forEach { unsafe free($0) } }
        unsafe execve(program, &argv, environ)
        return SystemError("execve \(program)")
    }

    /// A child's exit status, once it has ended. A child that the kernel no longer knows counts as ended as
    /// well: waiting for it would never end, and spin.
    static func reap(_ pid: pid_t) -> CInt? {
        var status: CInt = 0
        let result = unsafe waitpid(pid, &status, WNOHANG)
        if result == -1, errno == ECHILD { return unknownEnd }
        return result == pid ? status : nil
    }

    /// As `reap`, without reaping: the kernel takes its time to free a process that had thousands of
    /// descriptors.
    static func end(of pid: pid_t) -> CInt? {
        var information = unsafe siginfo_t()
        let result = unsafe waitid(P_PID, id_t(pid), &information, WEXITED | WNOHANG | WNOWAIT)
        if result == -1, errno == ECHILD { return unknownEnd }
        guard result == 0, unsafe information._sifields._sigchld.si_pid == pid else { return nil }
        let status = unsafe information._sifields._sigchld.si_status
        return unsafe information.si_code == CInt(CLD_EXITED) ? status << 8 : status
    }

    /// As if killed: nothing shows that it ended well.
    private static let unknownEnd = SIGKILL

    /// Waits for the end of a child that was killed.
    static func await(_ pid: pid_t) {
        var status: CInt = 0
        _ = try? systemCall("waitpid") { unsafe waitpid(pid, &status, 0) }
    }

    /// A new program must not inherit blocked signals that this one reads in its own way.
    static func unblockSignals() {
        var all = sigset_t()
        unsafe sigfillset(&all)
        unsafe pthread_sigmask(SIG_UNBLOCK, &all, nil)
    }

    /// Describes an exit status to a person.
    static func text(of status: CInt) -> String {
        let signal = status & 0x7F
        return signal == 0 ? "exit code \(status >> 8 & 0xFF)" : "signal \(signal)"
    }
}
