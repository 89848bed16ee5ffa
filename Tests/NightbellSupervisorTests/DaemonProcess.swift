import EdgeTestSupport
import Foundation
import LinuxSystem
import NightbellWire
import Testing

/// Whether `scripts/test --sanitize` runs the tests.
let isSanitized = ProcessInfo.processInfo.environment["NIGHTBELL_SANITIZER"]?.isEmpty == false

/// A real `nightbelld` in a process of its own, in a directory of its own.
final class DaemonProcess {
    let directory: String
    let child: Child
    var socketPath: String { directory + "/nightbell.sock" }

    /// Starts it through a shell that runs `before` first, and waits until it listens.
    ///
    /// - Parameter runner: a command that runs it, if any.
    init(
        suspension: String, directory: String? = nil, before: String = ":", runner: String = "",
        _ flags: String = ""
    ) throws {
        self.directory = directory ?? NSTemporaryDirectory() + "nightbell-daemon-\(UUID().uuidString)"
        try FileManager.default.createDirectory(atPath: self.directory, withIntermediateDirectories: true)
        let settings = [
            "wakes.linger=20ms", "suspension.retry=20ms", "keepAlive.minimumTimeout=200ms",
            "keepAlive.lead=50ms", "helloTimeout=5m",
            // Tests kill one worker after the other, which must not count as a crash loop.
            "keeper.crashLimit=1000", "keeper.crashPeriod=10ms",
            // While memory is short, crashed clients are not launched, even if other processes use it.
            "memoryPressure.file=",
            // The state of this machine's own supervisor must not matter, and writing takes descriptors.
            "stateDirectory=",
        ].map { "--set \($0)" }.joined(separator: " ")
        let program = ScriptedClientProcess.program("nightbelld")
        let command = """
            \(before); exec \(runner) '\(program)' --socket '\(self.directory)/nightbell.sock' \
            --runtime-directory '\(self.directory)' --suspend \(suspension) \
            --log-level critical \(settings) \(flags)
            """
        // Descriptors of other tests are inherited; they must not count against a limit set here.
        let closeInherited = """
            for entry in /proc/self/fd/*; do
                number=${entry##*/}
                if ((number > 2)); then eval "exec $number>&-"; fi
            done
            """
        // With a socket for its standard input, bash would take itself for a remote shell and read ~/.bashrc.
        child = try Child("/bin/bash", "--norc", "-c", closeInherited + "\n" + command)
        let listens = eventually(within: 30_000) {
            do {
                _ = try SeqPacketSocket.connect(path: self.directory + "/nightbell.sock")
                return true
            } catch {
                return false
            }
        }
        guard listens else { throw TestFailure("nightbelld does not listen") }
    }

    /// The worker process: the child of this one, if this one is a keeper.
    func worker() throws -> pid_t { pid_t(try WireClient(path: socketPath).status().processID) }

    /// Kills the worker, and waits until another serves.
    @discardableResult
    func killWorker() throws -> pid_t {
        let old = try worker()
        kill(old, SIGKILL)
        guard try eventually({ try self.answers(otherThan: old) }) else {
            throw TestFailure("no other worker serves")
        }
        return old
    }

    /// Whether another process serves; a connection to one that is about to die may end at any moment.
    private func answers(otherThan old: pid_t) throws -> Bool {
        do {
            return try worker() != old
        } catch is WireClient.EndOfConnection {
            return false
        } catch let error as SystemError where error.code == EPIPE || error.code == ECONNRESET {
            return false
        }
    }

    /// Voluntary and involuntary context switches of all threads of keeper and worker.
    func contextSwitches() throws -> Int {
        let pids = Set([child.pid, knownWorker ?? child.pid])
        return try pids.reduce(0) { try $0 + contextSwitches(of: $1) }
    }

    /// Whether keeper and worker are both blocked.
    func isAsleep() -> Bool {
        ProcFS.state(child.pid) == "S" && threads(of: knownWorker ?? child.pid, are: "S")
    }

    /// Found before anything is measured: asking wakes it.
    private lazy var knownWorker = try? worker()

    private func contextSwitches(of pid: pid_t) throws -> Int {
        ProcFS.threadIdentifiers(pid).reduce(0) { sum, thread in
            // It may have ended.
            let path = "/proc/\(pid)/task/\(thread)/status"
            guard let status = try? String(contentsOfFile: path, encoding: .utf8) else { return sum }
            let counts = status.split(separator: "\n").filter { $0.contains("ctxt_switches") }
            return sum
                + counts.reduce(0) { $0 + (Int($1.split(whereSeparator: \.isWhitespace).last ?? "") ?? 0) }
        }
    }

    deinit {
        // In an orderly way, so that it removes its cgroups; if that fails, by force.
        kill(child.pid, SIGTERM)
        if let handle = try? child.handle() {
            _ = Poll.wait(handle.rawValue, for: .readable, timeoutMilliseconds: 5_000)
        }
        child.end()
        let left = cgroupsLeft(by: directory)
        if !left.isEmpty { Issue.record("left behind: \(left)") }
        try? FileManager.default.removeItem(atPath: directory)
    }
}
