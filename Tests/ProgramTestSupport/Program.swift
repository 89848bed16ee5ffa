import EdgeTestSupport
import Foundation
package import Glibc
import LinuxSystem

/// A program of this package in a process of its own, with its output in files.
package final class Program {
    package struct Failure: Error, CustomStringConvertible {
        package let description: String

        package init(description: String) { self.description = description }
    }

    /// The result of a program that has ended.
    package struct Outcome {
        package let code: Int32
        package let output: String
        package let errors: String
    }

    package let pid: pid_t
    private let directory: TemporaryDirectory
    private let input: OwnedDescriptor
    private var exitStatus: CInt?
    private let endsChildren: Bool

    /// - Parameters:
    ///   - name: the name of a product, or an absolute path.
    ///   - environment: all of its environment.
    ///   - errors: where its standard error goes, if not into the file that `errors` reads.
    ///   - endsChildren: its children, which would survive it, end with this object too.
    package init(
        _ name: String, _ arguments: [String], environment: [String: String] = [:], errors: CInt? = nil,
        endsChildren: Bool = false
    ) throws {
        self.endsChildren = endsChildren
        directory = try TemporaryDirectory()
        var ends: [CInt] = [-1, -1]
        let type = CInt(SOCK_STREAM.rawValue | SOCK_CLOEXEC.rawValue)
        _ = try systemCall("socketpair") { socketpair(AF_UNIX, type, 0, &ends) }
        let theirs = OwnedDescriptor(adopting: ends[0])
        input = OwnedDescriptor(adopting: ends[1])

        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_adddup2(&actions, theirs.rawValue, 0)
        for (descriptor, file) in [(CInt(1), "output"), (2, "errors")] {
            posix_spawn_file_actions_addopen(
                &actions, descriptor, directory.file(file), O_WRONLY | O_CREAT | O_APPEND, 0o644)
        }
        if let errors { posix_spawn_file_actions_adddup2(&actions, errors, 2) }
        let path = name.hasPrefix("/") ? name : Self.product(name)
        pid = try spawn(path, arguments, environment: environment, &actions)
    }

    deinit {
        guard exitStatus == nil else { return }
        if endsChildren { for child in ProcFS.children(pid) { kill(child, SIGKILL) } }
        kill(pid, SIGKILL)
        var status: CInt = 0
        while waitpid(pid, &status, 0) == -1, errno == EINTR {}
    }

    /// A program of this package, built beside the tests.
    package static func product(_ name: String) -> String {
        let tests = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        return tests.deletingLastPathComponent().appendingPathComponent(name).path
    }

    /// Runs a program to its end.
    package static func run(
        _ name: String, _ arguments: [String], environment: [String: String] = [:]
    ) throws -> Outcome {
        try Program(name, arguments, environment: environment).outcome()
    }

    package func say(_ line: String) throws {
        let rawValue = input.rawValue
        let bytes = Array((line + "\n").utf8)
        _ = try systemCall("send") { Glibc.send(rawValue, bytes, bytes.count, CInt(MSG_NOSIGNAL)) }
    }

    /// The program reads the end of its input.
    package func endInput() { shutdown(input.rawValue, CInt(SHUT_WR)) }

    package func send(signal: CInt) { kill(pid, signal) }

    package var output: String { text("output") }
    package var errors: String { text("errors") }

    /// Waits for its end.
    package func outcome(within milliseconds: CInt = 30_000) throws -> Outcome {
        if exitStatus == nil {
            let process = try ProcessHandle(opening: pid)
            guard !Poll.wait(process.rawValue, for: .readable, timeoutMilliseconds: milliseconds).isEmpty
            else {
                throw Failure(description: "process \(pid) has not ended: \(output) \(errors)")
            }
            var status: CInt = 0
            _ = try systemCall("waitpid") { waitpid(pid, &status, 0) }
            exitStatus = status
        }
        let status = exitStatus ?? 0
        // As in a shell: 128 plus the signal if it was killed.
        let code = status & 0x7F == 0 ? status >> 8 & 0xFF : 128 + status & 0x7F
        return Outcome(code: code, output: output, errors: errors)
    }

    /// Waits until the output contains this text.
    package func wrote(_ part: String) throws {
        guard eventually(within: 30_000, { output.contains(part) }) else {
            throw Failure(description: "process \(pid) has not written \(part), but: \(output) \(errors)")
        }
    }

    private func text(_ file: String) -> String {
        (try? String(contentsOfFile: directory.file(file), encoding: .utf8)) ?? ""
    }
}
