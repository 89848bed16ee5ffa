package import Glibc
import LinuxSystem

/// A sanitizer changes what a process costs.
package let isSanitized = getenv("NIGHTBELL_SANITIZER").map { $0.pointee != 0 } ?? false

/// The time that a process has used, in seconds.
package func processorTime(of pid: pid_t) throws -> Double {
    let text = try SmallFile.readText("/proc/\(pid)/schedstat")
    return (text.split(separator: " ").first.flatMap { Double($0) } ?? 0) / 1_000_000_000
}

/// The context switches of a process's threads.
package func contextSwitches(of pid: pid_t) throws -> Int {
    var sum = 0
    for thread in ProcFS.threadIdentifiers(pid) {
        let text = try SmallFile.readText("/proc/\(pid)/task/\(thread)/status")
        for line in text.split(separator: "\n") where line.contains("ctxt_switches") {
            sum += line.split(whereSeparator: \.isWhitespace).last.flatMap { Int($0) } ?? 0
        }
    }
    return sum
}

/// The bytes of memory that a process has written and no file holds (`Pss_Anon`).
package func writtenMemory(of pid: pid_t) throws -> Int {
    let text = try SmallFile.readText("/proc/\(pid)/smaps_rollup")
    for line in text.split(separator: "\n") where line.hasPrefix("Pss_Anon:") {
        return (line.split(whereSeparator: \.isWhitespace).dropFirst().first.flatMap { Int($0) } ?? 0) * 1_024
    }
    return 0
}
