import Descriptors
import Foundation
import Glibc

/// The processes that a supervisor of the tests has launched and not seen the end of. They are children of the tests'
/// process: a zombie that nobody waits for keeps the test library from noticing the ends of its own children.
struct Launched {
    private let pids: [pid_t]

    /// Those who run now.
    init(by socketPath: String) {
        let variable = "NIGHTBELL_SOCKET=\(socketPath)"
        let all = (try? FileManager.default.contentsOfDirectory(atPath: "/proc")) ?? []
        pids = all.compactMap { pid_t($0) }.filter { Self.isOurs($0) && Self.environment($0).contains(variable) }
    }

    /// Ends them, after their supervisor has.
    func end() {
        for pid in pids where Self.isOurs(pid) {
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
