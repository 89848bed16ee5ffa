package import CLinux
package import Descriptors

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

    /// Those of a process, as far as they are not ours. A child of ours inherits ours, so these make it equal.
    package static func differing(of process: pid_t) throws(SystemError) -> [ResourceLimit] {
        var result: [ResourceLimit] = []
        for resource in Resource.allCases {
            let theirs = try get(resource, of: process)
            if theirs != (try get(resource, of: 0)) { result.append(theirs) }
        }
        return result
    }

    private static func get(_ resource: Resource, of process: pid_t) throws(SystemError) -> ResourceLimit {
        var limit = clinux_limit()
        _ = try systemCall("prlimit") { unsafe clinux_get_limit(process, resource.rawValue, &limit) }
        return ResourceLimit(resource, soft: limit.soft, hard: limit.hard)
    }
}
