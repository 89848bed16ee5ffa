import Glibc
import LinuxSystem

/// The output of a short-lived program, and how it has ended.
struct ProgramOutput {
    private(set) var output = ""
    /// nil: it was killed, also because it has not ended in time.
    private(set) var code: CInt?
    /// The last line of both outputs together, for a person.
    var problem: String {
        output.split(separator: "\n").last.map(String.init) ?? "it has ended without a word"
    }

    /// Runs it with our variables and without an input. Both outputs are one.
    init(of command: [String], withinMilliseconds patience: Int64) throws(SystemError) {
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        _ = try systemCall("socketpair") { unsafe socketpair(AF_UNIX, type, 0, &ends) }
        let reading = OwnedDescriptor(adopting: ends[0])
        let writing = OwnedDescriptor(adopting: ends[1])
        let pid = try Self.start(command, output: writing.rawValue)
        // Its copies alone are open, so their end is its end.
        writing.close()
        let deadline = BootClock.now() + patience * 1_000_000
        var bytes: [UInt8] = []
        while true {
            let left = CInt(clamping: (deadline - BootClock.now()) / 1_000_000)
            guard left > 0, !Poll.wait(reading.rawValue, for: .readable, timeoutMilliseconds: left).isEmpty
            else { break }
            var portion = [UInt8](repeating: 0, count: 4_096)
            let rawValue = reading.rawValue
            let count = unsafe read(rawValue, &portion, portion.count)
            if count < 0, errno == EINTR { continue }
            guard count > 0, bytes.count < 1 << 20 else { break }
            bytes += portion.prefix(count)
        }
        // It has closed its outputs, or is late.
        if BootClock.now() >= deadline { kill(pid, SIGKILL) }
        var status: CInt = 0
        _ = try systemCall("waitpid") { unsafe waitpid(pid, &status, 0) }
        output = String(decoding: bytes, as: UTF8.self)
        code = status & 0x7F == 0 ? status >> 8 & 0xFF : nil
    }

    private static func start(_ command: [String], output: CInt) throws(SystemError) -> pid_t {
        var arguments: [UnsafeMutablePointer<CChar>?] = unsafe command.map { unsafe strdup($0) } + [nil]
        defer { unsafe arguments.forEach { unsafe free($0) } }
        var actions = unsafe posix_spawn_file_actions_t()
        unsafe posix_spawn_file_actions_init(&actions)
        defer { unsafe posix_spawn_file_actions_destroy(&actions) }
        unsafe posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        unsafe posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO)
        unsafe posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO)
        var pid: pid_t = 0
        let code = unsafe posix_spawn(&pid, command[0], &actions, nil, &arguments, environ)
        guard code == 0 else { throw SystemError(code: code, call: "posix_spawn \(command[0])") }
        return pid
    }
}
