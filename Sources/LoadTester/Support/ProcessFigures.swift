import Glibc
import LinuxSystem

/// Memory and work of one process, as the kernel reports them.
struct ProcessFigures {
    /// Its share of all pages that it maps (PSS), in bytes: the machine would have this much more without it.
    var proportionalBytes: Int
    /// The anonymous and shared-memory part of it: pages that the process itself has written, alone or with
    /// others. Pages of libraries come and go with the other processes that map them.
    var writtenBytes: Int
    var residentBytes: Int
    /// Voluntary and involuntary, of all threads.
    var contextSwitches: Int
    /// User and system, in clock ticks.
    var processorTicks: Int
    var openDescriptors: Int

    init(_ pid: pid_t) throws(LoadError) {
        let rollup = (try? SmallFile.readText("/proc/\(pid)/smaps_rollup")) ?? ""
        guard let proportional = Self.number(after: "Pss:", in: rollup),
            let resident = Self.number(after: "Rss:", in: rollup),
            let anonymous = Self.number(after: "Pss_Anon:", in: rollup),
            let shared = Self.number(after: "Pss_Shmem:", in: rollup)
        else { throw .missing("process \(pid) does not show its memory") }
        proportionalBytes = proportional * 1_024
        writtenBytes = (anonymous + shared) * 1_024
        residentBytes = resident * 1_024
        contextSwitches = 0
        for thread in ProcFS.threadIdentifiers(pid) {
            let status = (try? SmallFile.readText("/proc/\(pid)/task/\(thread)/status")) ?? ""
            contextSwitches += Self.number(after: "voluntary_ctxt_switches:", in: status) ?? 0
            contextSwitches += Self.number(after: "nonvoluntary_ctxt_switches:", in: status) ?? 0
        }
        let stat = (try? SmallFile.readText("/proc/\(pid)/stat")) ?? ""
        let fields = stat.drop { $0 != ")" }.split(separator: " ")
        // The fields utime and stime, which are the 14th and 15th; the name's end is the second.
        processorTicks = fields.count > 13 ? (Int(fields[12]) ?? 0) + (Int(fields[13]) ?? 0) : 0
        openDescriptors = ProcFS.openDescriptors(pid) ?? 0
    }

    private static func number(after key: String, in text: String) -> Int? {
        let line = text.split(separator: "\n").first { $0.hasPrefix(key) }
        let fields = line?.dropFirst(key.count).split { $0 == " " || $0 == "\t" }
        return fields?.first.flatMap { Int($0) }
    }
}

/// Nanoseconds of processor time of all threads of a process.
func processorTime(_ pid: pid_t) throws -> Int64 {
    try ProcFS.threadIdentifiers(pid).reduce(0) { sum, thread in
        let text = try SmallFile.readText("/proc/\(pid)/task/\(thread)/schedstat")
        return sum + (text.split(separator: " ").first.flatMap { Int64($0) } ?? 0)
    }
}

/// The kernel's slab memory, of the whole machine, in bytes.
func kernelSlabBytes() -> Int {
    let text = (try? SmallFile.readText("/proc/meminfo")) ?? ""
    let line = text.split(separator: "\n").first { $0.hasPrefix("Slab:") }
    let fields = line?.split(separator: " ") ?? []
    return fields.count > 1 ? (Int(fields[1]) ?? 0) * 1_024 : 0
}
