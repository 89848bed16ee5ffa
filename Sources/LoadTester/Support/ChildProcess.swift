import CFloors
import Glibc
import LinuxSystem

/// A process that the harness started. It is ended by its ID, at the latest with this object, and by the
/// kernel if the harness is killed.
final class ChildProcess {
    let name: String
    let id: pid_t
    /// As a shell reports it: the exit status, or 128 plus the number of the signal; nil until the end was
    /// noticed.
    private(set) var exitStatus: CInt?

    /// Starts a program. `descriptors` become its descriptors 3, 4, …, and it has no others beside the
    /// first three; its output goes to `log`.
    ///
    /// - Parameters:
    ///   - guardian: the load tester's path, for a program that does not itself make sure that it ends with
    ///     the harness.
    ///   - environment: variables beside those that every child inherits.
    init(
        _ name: String, _ arguments: [String], descriptors: [CInt] = [], log: String, guardian: String? = nil,
        environment: [String: String] = [:]
    ) throws(LoadError) {
        self.name = name
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0)
        posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log, O_WRONLY | O_CREAT | O_APPEND, 0o644)
        posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO)
        // Moved out of the way first, so that none is overwritten before it was copied.
        let aside = max((descriptors.max() ?? 0) + 1, 3 + CInt(descriptors.count))
        for (index, descriptor) in descriptors.enumerated() {
            posix_spawn_file_actions_adddup2(&actions, descriptor, aside + CInt(index))
        }
        for index in descriptors.indices {
            posix_spawn_file_actions_adddup2(&actions, aside + CInt(index), 3 + CInt(index))
        }
        // Also those that the harness itself has inherited from a shell.
        cfloors_spawn_closes_from(&actions, 3 + CInt(descriptors.count))
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        var defaults = sigset_t()
        sigemptyset(&defaults)
        for number in [SIGPIPE, SIGINT, SIGTERM, SIGHUP] { sigaddset(&defaults, number) }
        posix_spawnattr_setsigdefault(&attributes, &defaults)
        // The parent of the harness may have blocked some.
        var none = sigset_t()
        sigemptyset(&none)
        posix_spawnattr_setsigmask(&attributes, &none)
        // In a group of its own: Ctrl-C is for the harness, which ends its children in the right order.
        posix_spawnattr_setpgroup(&attributes, 0)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP))

        let command = guardian.map { [$0, ProcessRole.guardian.rawValue, "\(getpid())"] } ?? []
        var pointers = (command + arguments).map { strdup($0) } + [nil]
        var variables: [UnsafeMutablePointer<CChar>?] = []
        for name in ["PATH", "HOME", "LANG", "LD_LIBRARY_PATH"] {
            if let value = getenv(name) { variables.append(strdup("\(name)=\(String(cString: value))")) }
        }
        for (name, value) in environment { variables.append(strdup("\(name)=\(value)")) }
        var variablePointers = variables + [nil]
        defer { for pointer in pointers + variablePointers { free(pointer) } }
        var id: pid_t = 0
        let code = posix_spawn(
            &id, (command + arguments)[0], &actions, &attributes, &pointers, &variablePointers)
        guard code == 0 else { throw LoadError("start \(arguments[0])", code: code) }
        self.id = id
    }

    deinit {
        guard isRunning else { return }
        kill(id, SIGKILL)
        var status: CInt = 0
        waitpid(id, &status, 0)
    }

    /// Whether the process still runs. Records its exit status when it has ended.
    var isRunning: Bool {
        guard exitStatus == nil else { return false }
        var status: CInt = 0
        guard waitpid(id, &status, WNOHANG) == id else { return true }
        exitStatus = status & 0x7F == 0 ? (status >> 8) & 0xFF : 128 + (status & 0x7F)
        return false
    }

    func requireRunning() throws(LoadError) {
        guard !isRunning else { return }
        throw .childEnded(name, status: exitStatus ?? 0)
    }

    /// Asks the process to end, and then kills it.
    func end() { Self.end([self]) }

    /// Asks all processes to end before it waits for any: some ask each other for a last answer.
    static func end(_ processes: [ChildProcess]) {
        // A process that is asked again stops waiting for answers.
        let times: [(signal: CInt, wait: Int64)] = [
            (SIGTERM, 500_000_000), (SIGTERM, 4_500_000_000), (SIGKILL, 60_000_000_000),
        ]
        var left = processes
        for (signal, wait) in times {
            left.removeAll { !$0.isRunning }
            // The children of a killed process, such as a stopped worker, get no signal from it, and would
            // write once more after the directory was removed.
            let orphans = signal == SIGKILL ? left.flatMap { Orphan.children(of: $0.id) } : []
            for process in left { kill(process.id, signal) }
            let deadline = monotonicNow() + wait
            while left.contains(where: \.isRunning), monotonicNow() < deadline { usleep(2_000) }
            for orphan in orphans { orphan.kill() }
            while orphans.contains(where: \.isRunning), monotonicNow() < deadline { usleep(2_000) }
        }
    }

    /// A child of a child.
    private final class Orphan {
        private let process: ProcessHandle

        private init(_ process: consuming ProcessHandle) { self.process = process }

        static func children(of parent: pid_t) -> [Orphan] {
            ((try? SmallFile.names(in: "/proc")) ?? []).compactMap { name in
                guard let pid = pid_t(name), ProcFS.statistics(pid)?.parent == parent,
                    let process = try? ProcessHandle(opening: pid),
                    // Not another process with the same number.
                    ProcFS.statistics(pid)?.parent == parent
                else { return nil }
                return Orphan(process)
            }
        }

        func kill() { try? process.signal(SIGKILL) }

        var isRunning: Bool { !process.hasExited }
    }
}
