import Foundation
import Glibc
import LinuxSystem
import Synchronization

/// The processes that a supervisor of the tests has launched and not reaped. They are children of the tests'
/// process: an unreaped zombie keeps the test library from noticing the ends of its own children.
final class Launched: Sendable {
    private let variable: String
    private let pids = Mutex<Set<pid_t>>([])

    init(by socketPath: String) {
        variable = "NIGHTBELL_SOCKET=\(socketPath)"
    }

    /// A process that may be among them.
    func note(_ pid: pid_t) { _ = pids.withLock { $0.insert(pid) } }

    /// Finds the processes that run now.
    func look() {
        let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        for pid in all.compactMap({ pid_t($0) })
        where Self.isOurs(pid) && Self.environment(pid).contains(variable) {
            note(pid)
        }
    }

    /// Ends them, after their supervisor has ended.
    func end() {
        for pid in pids.withLock({ $0 }) where Self.isOurs(pid) {
            kill(pid, SIGKILL)
            waitpid(pid, nil, 0)
        }
    }

    private static func isOurs(_ pid: pid_t) -> Bool {
        guard let status = try? SmallFile.readText("/proc/\(pid)/stat"), let name = status.lastIndex(of: ")")
        else { return false }
        let rest = status[name...].split(separator: " ")
        return rest.count > 2 && pid_t(rest[2]) == getpid()
    }

    private static func environment(_ pid: pid_t) -> [String] {
        guard let text = try? SmallFile.readText("/proc/\(pid)/environ") else { return [] }
        return text.split(separator: "\0").map { String($0) }
    }
}
