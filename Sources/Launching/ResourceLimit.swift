import CLinux
package import LinuxSystem

/// A limit of `setrlimit(2)`.
package struct ResourceLimit: Sendable, Hashable {
    package enum Resource: UInt32, Sendable, Hashable, CaseIterable {
        case cpuTime = 0
        case fileSize = 1
        case data = 2
        case stack = 3
        case core = 4
        case residentSet = 5
        case processes = 6
        case openFiles = 7
        case lockedMemory = 8
        case memory = 9
        case locks = 10
        case pendingSignals = 11
        case messageQueues = 12
        case nice = 13
        case realTimePriority = 14
        case realTimeTime = 15
    }

    /// Stands for no limit.
    package static let unlimited = UInt64.max

    package var resource: Resource
    package var soft: UInt64
    package var hard: UInt64

    package init(_ resource: Resource, soft: UInt64, hard: UInt64) {
        self.resource = resource
        self.soft = soft
        self.hard = hard
    }

    /// The limits of a process that differ from ours. A child of ours inherits ours, so these make it equal.
    package static func differing(of process: Int32) throws(SystemError) -> [ResourceLimit] {
        var result: [ResourceLimit] = []
        for theirs in try all(of: process) where theirs != (try get(theirs.resource, of: 0)) {
            result.append(theirs)
        }
        return result
    }

    /// prlimit(2) on other users' processes needs `CAP_SYS_RESOURCE`, which root in a container may lack; the
    /// kernel's file is readable by all.
    private static func all(of process: pid_t) throws(SystemError) -> [ResourceLimit] {
        try SmallFile.readText("/proc/\(process)/limits").split(separator: "\n").compactMap { line in
            guard let (name, resource) = names.first(where: { line.hasPrefix($0.0 + "  ") }) else {
                return nil
            }
            let fields = line.dropFirst(name.count).split(separator: " ")
            guard fields.count >= 2, let soft = number(fields[0]), let hard = number(fields[1]) else {
                return nil
            }
            return ResourceLimit(resource, soft: soft, hard: hard)
        }
    }

    private static func number(_ text: Substring) -> UInt64? {
        text == "unlimited" ? unlimited : UInt64(text)
    }

    /// The names in proc_pid_limits(5).
    private static let names: [(String, Resource)] = [
        ("Max cpu time", .cpuTime), ("Max file size", .fileSize), ("Max data size", .data),
        ("Max stack size", .stack), ("Max core file size", .core), ("Max resident set", .residentSet),
        ("Max processes", .processes), ("Max open files", .openFiles), ("Max locked memory", .lockedMemory),
        ("Max address space", .memory), ("Max file locks", .locks), ("Max pending signals", .pendingSignals),
        ("Max msgqueue size", .messageQueues), ("Max nice priority", .nice),
        ("Max realtime priority", .realTimePriority), ("Max realtime timeout", .realTimeTime),
    ]

    /// Sets the limit of a process. More than its hard limit needs `CAP_SYS_RESOURCE`.
    package func set(of process: Int32) throws(SystemError) {
        var limit = clinux_limit(soft: soft, hard: hard)
        let resource = resource.rawValue
        _ = try systemCall("prlimit") { unsafe clinux_set_limit(process, resource, &limit) }
    }

    private static func get(_ resource: Resource, of process: pid_t) throws(SystemError) -> ResourceLimit {
        var limit = clinux_limit()
        _ = try systemCall("prlimit") { unsafe clinux_get_limit(process, resource.rawValue, &limit) }
        return ResourceLimit(resource, soft: limit.soft, hard: limit.hard)
    }
}
