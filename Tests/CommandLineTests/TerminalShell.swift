import EdgeTestSupport
import Foundation
import Glibc
import LinuxSystem
import ProgramTestSupport

/// A `bash` with a terminal of 80 columns, which gets commands through a pipe.
final class TerminalShell {
    private let pid: pid_t
    private let terminal: OwnedDescriptor
    private let commands: OwnedDescriptor
    private var unread = ""

    init(environment: [String: String], columns: UInt16 = 80) throws {
        var (ours, theirs) = (CInt(-1), CInt(-1))
        var size = winsize(ws_row: 24, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0)
        _ = try systemCall("openpty") { openpty(&ours, &theirs, nil, nil, &size) }
        terminal = OwnedDescriptor(adopting: ours)
        let far = OwnedDescriptor(adopting: theirs)
        _ = try systemCall("fcntl") { fcntl(ours, F_SETFD, FD_CLOEXEC) }
        var ends: [CInt] = [-1, -1]
        _ = try systemCall("pipe") { pipe(&ends) }
        for end in ends { _ = try systemCall("fcntl") { fcntl(end, F_SETFD, FD_CLOEXEC) } }
        let input = OwnedDescriptor(adopting: ends[0])
        commands = OwnedDescriptor(adopting: ends[1])

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, input.rawValue, 0)
        for descriptor in [CInt(1), 2] {
            posix_spawn_file_actions_adddup2(&actions, far.rawValue, descriptor)
        }
        posix_spawn_file_actions_addclose(&actions, theirs)
        var variables = environment
        variables["PATH"] =
            URL(fileURLWithPath: Program.product("nightbell")).deletingLastPathComponent().path
            + ":/usr/bin:/bin"
        // A process group, so that all processes of the commands can be ended together.
        pid = try spawn(
            "/bin/bash", ["--norc", "--noprofile"], environment: variables, &actions, leadsGroup: true)
    }

    /// Its processes get a moment to end by themselves: a supervisor thaws its clients.
    deinit {
        kill(-pid, SIGTERM)
        _ = eventually(within: 5_000) { kill(-pid, SIGTERM) != 0 || hasOnlyShell }
        kill(-pid, SIGKILL)
        var status: CInt = 0
        while waitpid(pid, &status, 0) == -1, errno == EINTR {}
    }

    /// Bash itself ignores SIGTERM while a command runs.
    private var hasOnlyShell: Bool {
        waitpid(pid, nil, WNOHANG) == pid || kill(-pid, 0) != 0
    }

    /// Runs commands and returns their output as shown on the terminal.
    func run(_ text: String, within milliseconds: CInt = 60_000) throws -> String {
        try write(text + "\nprintf '\\001'\n")
        return try read(until: "\u{1}", within: milliseconds)
    }

    /// Sends commands without waiting for their end.
    func begin(_ text: String) throws { try write(text + "\n") }

    /// The output up to this text, which is not included.
    func read(until end: String, within milliseconds: CInt = 60_000) throws -> String {
        while true {
            if let found = unread.firstRange(of: end) {
                defer { unread = String(unread[found.upperBound...]) }
                return String(unread[..<found.lowerBound])
            }
            let ready = Poll.wait(
                terminal.rawValue, for: .readable, timeoutMilliseconds: milliseconds)
            var bytes = [UInt8](repeating: 0, count: 65_536)
            let count = ready.isEmpty ? 0 : Glibc.read(terminal.rawValue, &bytes, bytes.count)
            guard count > 0 else {
                throw Program.Failure(description: "the terminal does not show \(end), but: \(unread)")
            }
            unread += String(decoding: bytes[..<count], as: UTF8.self).replacing("\r\n", with: "\n")
        }
    }

    private func write(_ text: String) throws {
        let bytes = Array(text.utf8)
        let rawValue = commands.rawValue
        let count = try systemCall("write") { Glibc.write(rawValue, bytes, bytes.count) }
        guard count == bytes.count else { throw Program.Failure(description: "the shell takes no commands") }
    }
}
