import Glibc

/// A program that the demo started. It is ended by its id, and it ends by itself when the demo is killed.
@MainActor
final class ChildProcess {
    let name: String
    let id: pid_t
    private(set) var exitStatus: CInt?

    /// Starts a program. Its output goes to `log`; `descriptor` becomes its descriptor 3.
    init(
        _ name: String, _ arguments: [String], environment: [String: String] = [:], log: String,
        descriptor: CInt? = nil
    ) throws {
        self.name = name
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0o644)
        posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO)
        if let descriptor { posix_spawn_file_actions_adddup2(&actions, descriptor, 3) }

        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var defaults = sigset_t()
        sigemptyset(&defaults)
        for number in [SIGPIPE, SIGINT, SIGTERM, SIGHUP] { sigaddset(&defaults, number) }
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        var blocked = sigset_t()
        sigemptyset(&blocked)
        posix_spawnattr_setsigmask(&attributes, &blocked)
        // A group of its own: Ctrl-C is for the demo, which then ends its children in the right order.
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP))

        // util-linux's setpriv asks the kernel to end the child with its parent, then becomes the child.
        let guardian = "/usr/bin/setpriv"
        let command =
            access(guardian, X_OK) == 0 ? [guardian, "--pdeathsig", "TERM", "--"] + arguments : arguments
        var variables = Self.inheritedEnvironment()
        variables.merge(environment) { $1 }
        var pointers = command.map { strdup($0) } + [nil]
        var variablePointers = variables.map { strdup("\($0.key)=\($0.value)") } + [nil]
        defer { for pointer in pointers + variablePointers { free(pointer) } }
        var id: pid_t = 0
        let code = posix_spawn(&id, command[0], &actions, &attributes, &pointers, &variablePointers)
        guard code == 0 else { throw DemoError.system("start \(arguments[0])", code: code) }
        self.id = id
    }

    private static func inheritedEnvironment() -> [String: String] {
        var result: [String: String] = [:]
        for name in ["PATH", "HOME", "TERM", "LANG", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "TSAN_OPTIONS"] {
            if let value = getenv(name) { result[name] = String(cString: value) }
        }
        return result
    }

    /// Whether it still runs. Records its end.
    var isRunning: Bool {
        guard exitStatus == nil else { return false }
        var status: CInt = 0
        guard waitpid(id, &status, WNOHANG) == id else { return true }
        // As in a shell: the exit status, or 128 and the number of the signal.
        exitStatus = status & 0x7F == 0 ? (status >> 8) & 0xFF : 128 + (status & 0x7F)
        return false
    }

    func send(_ signal: CInt) {
        // A child that has not been waited for keeps its id, so the signal cannot reach another process.
        if isRunning { Glibc.kill(id, signal) }
    }

    /// Kills it and the processes it started.
    func kill() {
        if isRunning { Glibc.kill(-id, SIGKILL) }
    }

    /// Its resident memory in bytes.
    var residentBytes: Int {
        let fields = contents(of: "/proc/\(id)/statm").split(separator: " ")
        return fields.count > 1 ? (Int(fields[1]) ?? 0) * Int(sysconf(CInt(_SC_PAGESIZE))) : 0
    }
}

/// A small file as text; empty if it cannot be read.
func contents(of path: String) -> String {
    let descriptor = open(path, O_RDONLY | O_CLOEXEC)
    guard descriptor >= 0 else { return "" }
    defer { close(descriptor) }
    return contents(ofOpen: descriptor)
}

/// The rest of a small file.
func contents(ofOpen descriptor: CInt) -> String {
    var bytes: [UInt8] = []
    var buffer = [UInt8](repeating: 0, count: 65_536)
    while true {
        let count = read(descriptor, &buffer, buffer.count)
        guard count > 0 else { return String(decoding: bytes, as: UTF8.self) }
        bytes += buffer[..<count]
    }
}

func write(_ text: String, to path: String) throws {
    let descriptor = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o600)
    guard descriptor >= 0 else { throw DemoError.system(path, code: errno) }
    defer { close(descriptor) }
    let bytes = Array(text.utf8)
    guard write(descriptor, bytes, bytes.count) == bytes.count else {
        throw DemoError.system(path, code: errno)
    }
}
