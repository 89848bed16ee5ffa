import EdgeTestSupport
import Foundation
import LinuxSystem

/// `nightbell-kept` in a process of its own.
final class KeptProgram {
    struct Failure: Error, CustomStringConvertible {
        let description: String
    }

    let child: Child
    private var pending = ""
    private var lines: [String] = []

    /// - Parameter environment: in front of the command, for a shell.
    init(_ environment: String = "") throws {
        let tests = URL(fileURLWithPath: CommandLine.arguments[0]).resolvingSymlinksInPath()
        let program = tests.deletingLastPathComponent().appendingPathComponent("nightbell-kept").path
        // Descriptors of other tests are inherited, and would be counted.
        let close = """
            for entry in /proc/self/fd/*; do
                number=${entry##*/}
                if ((number > 2)); then eval "exec $number>&-"; fi
            done
            """
        child = try Child("/bin/bash", "-c", "\(close)\n\(environment) exec '\(program)'")
    }

    func command(_ line: String) throws {
        try child.send(line + "\n")
        try said("ok")
    }

    /// The next line with this beginning; earlier lines stay in the queue.
    @discardableResult
    func said(_ beginning: String) throws -> String {
        while true {
            if let index = lines.firstIndex(where: { $0.hasPrefix(beginning) }) {
                return lines.remove(at: index)
            }
            guard let heard = try child.hear(), !heard.isEmpty else {
                throw Failure(description: "no line begins with \(beginning), but: \(lines)")
            }
            pending += heard
            while let end = pending.firstIndex(of: "\n") {
                lines.append(String(pending[..<end]))
                pending.removeSubrange(...end)
            }
        }
    }

    /// The pid of the worker that has just begun.
    @discardableResult
    func worker(_ which: String = "later") throws -> pid_t {
        let words = try said("worker ").split(separator: " ")
        guard words.count == 3, words[2] == which, let pid = pid_t(words[1]) else {
            throw Failure(description: "\(words)")
        }
        return pid
    }

    /// All its records.
    func list() throws -> [String] {
        try child.send("list\n")
        var list: [String] = []
        repeat {
            list.append(String(try said("> ").dropFirst(2)))
        } while !(list.last?.contains("more, ") ?? true)
        try said("ok")
        return list
    }

    /// Its exit status, as `waitpid` returns it.
    func status() throws -> CInt {
        let handle = try child.handle()
        guard !Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 10_000).isEmpty else {
            throw Failure(description: "it has not ended")
        }
        var information = siginfo_t()
        guard waitid(P_PID, id_t(child.pid), &information, WEXITED | WNOWAIT) == 0 else {
            throw Failure(description: "waitid: \(errno)")
        }
        return information._sifields._sigchld.si_status
    }
}
