package import CLinux
import Glibc
package import LinuxSystem

/// A child process with one end of a socket as its standard input and output. Killed and waited for when the
/// test lets go of it.
package final class Child {
    package let pid: pid_t
    /// The other end: bytes to and from the child.
    package let channel: OwnedDescriptor
    private var isReaped = false
    /// The status of `wait`, once it was waited for.
    package private(set) var status: CInt = 0

    /// `cat` echoes its input: a child that answers runs.
    package static func echo() throws(SystemError) -> Child { try Child("/bin/cat") }

    package convenience init(_ program: String, _ arguments: String...) throws(SystemError) {
        try self.init(program, arguments)
    }

    package init(
        _ program: String, _ arguments: [String], environment: [String: String] = [:],
        descriptors: [CInt: CInt] = [:]
    ) throws(SystemError) {
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        _ = try systemCall("socketpair") { socketpair(AF_UNIX, type, 0, &ends) }
        channel = OwnedDescriptor(adopting: ends[0])
        let theirs = OwnedDescriptor(adopting: ends[1])

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, theirs.rawValue, 0)
        posix_spawn_file_actions_adddup2(&actions, theirs.rawValue, 1)
        for (number, descriptor) in descriptors {
            posix_spawn_file_actions_adddup2(&actions, descriptor, number)
        }
        // Of our environment only the variables by which a sanitizer ends a child with a finding.
        var variables = environment
        for name in ["ASAN_OPTIONS", "TSAN_OPTIONS"] where variables[name] == nil {
            variables[name] = getenv(name).map { String(cString: $0) }
        }
        pid = try spawn(program, arguments, environment: variables, &actions)
    }

    /// An idle child with this many threads (one more, where a sanitizer has its own).
    package static func threaded(_ count: Int) throws(SystemError) -> Child {
        // Built beside the tests themselves.
        let tests = try readLink("/proc/self/exe")
        let directory = tests[..<(tests.lastIndex(of: "/") ?? tests.startIndex)]
        return try Child(directory + "/nightbell-threads", String(count))
    }

    deinit { end() }

    package func handle() throws(SystemError) -> ProcessHandle { try ProcessHandle(opening: pid) }

    /// Kills it and waits for its end.
    package func end() {
        guard !isReaped else { return }
        kill(pid, SIGKILL)
        reap()
    }

    package func reap() {
        guard !isReaped else { return }
        isReaped = true
        while waitpid(pid, &status, 0) == -1, errno == EINTR {}
    }

    package func send(_ text: String) throws(SystemError) {
        let rawValue = channel.rawValue
        let bytes = Array(text.utf8)
        _ = try systemCall("send") { Glibc.send(rawValue, bytes, bytes.count, CInt(MSG_NOSIGNAL)) }
    }

    /// Its output within the given time; nil if none.
    package func hear(within milliseconds: CInt = 10_000) throws(SystemError) -> String? {
        let rawValue = channel.rawValue
        let readiness = Poll.wait(rawValue, for: .readable, timeoutMilliseconds: milliseconds)
        if readiness.isEmpty { return nil }
        var bytes = [UInt8](repeating: 0, count: 4096)
        let count = try systemCall("read") { read(rawValue, &bytes, bytes.count) }
        return String(decoding: bytes.prefix(count), as: UTF8.self)
    }

    /// Whether it runs: it is asked, and answers.
    package func answers(within milliseconds: CInt = 10_000) throws(SystemError) -> Bool {
        try send("?")
        return try hear(within: milliseconds) != nil
    }
}
