import CFloors
import Glibc
import LinuxSystem
import Simulation

/// Sleepers of one kind: the supervisor's or the floor's.
protocol Population: AnyObject {
    /// The sleepers' slots in the shared memory.
    var range: Range<Int> { get }
    var sharedMemory: SharedMemory { get }
    var callers: Callers { get }
    /// Whether the kernel has stopped this sleeper. Puts a sleeper of the floor to sleep first.
    func isAsleep(_ index: Int) throws -> Bool
    func name(of index: Int) -> String
}

extension Population {
    func waitUntilAsleep(_ index: Int) throws {
        try wait(for: "sleeper \(index) to be asleep", atMost: .seconds(20)) {
            if try isAsleep(index) { return true }
            try requireAlive(index)
            return false
        }
    }

    /// How long this many sleepers may take to start.
    static func startingTime(_ count: Int) -> Duration { .seconds(60 + count / 20) }

    func waitUntilAllAsleep() throws {
        for index in range { try waitUntilAsleep(index) }
    }

    /// Throws when a sleeper has died: without it the figures mean nothing.
    func requireAlive(_ index: Int) throws(LoadError) {
        let slot = sharedMemory[index]
        // The zygote ignores the end of its children, so a sleeper that has ended leaves no zombie.
        guard slot.stage == .failed || (kill(slot.pid, 0) != 0 && errno == ESRCH) else {
            return try callers.requirePeersRunning()
        }
        throw .sleeperDied(name(of: index))
    }

    func requireAllAlive() throws(LoadError) {
        for index in range { try requireAlive(index) }
    }

    /// Wakes of the population that found nothing to read, and packets read twice.
    var duplicates: UInt64 {
        range.reduce(0) { sum, index in
            let slot = sharedMemory[index].pointer.pointee
            return sum + slot.duplicates + slot.empty_wakes
        }
    }
}

/// Clients of a supervisor.
final class SupervisedPopulation: Population {
    let range: Range<Int>
    let sharedMemory: SharedMemory
    let callers: Callers
    let supervisor: PrivateSupervisor
    private let stopped: [StoppedProcess]

    /// Starts the sleepers and waits until all sleep.
    init(
        _ runDirectory: RunDirectory, _ supervisor: PrivateSupervisor, method: SuspensionMethod,
        range: Range<Int>,
        sharedMemory: SharedMemory, callers: Callers, options: SleeperOptions = SleeperOptions()
    ) throws {
        self.range = range
        self.sharedMemory = sharedMemory
        self.callers = callers
        self.supervisor = supervisor
        let pipe = try Pipe()
        let checkFailures: () throws -> Void = {
            guard let failed = range.first(where: { sharedMemory[$0].stage == .failed }) else { return }
            throw LoadError.supervisor("sleeper \(failed) gave up: \(runDirectory.lastLines(of: .sleepers))")
        }
        _ = try runDirectory.start(
            .sleepers,
            SleeperZygote.arguments(
                first: range.lowerBound, count: range.count, slots: sharedMemory.count,
                supervisorSocket: supervisor.socketPath, callers: callers, options: options),
            descriptors: [sharedMemory.descriptor.rawValue, pipe.reading.rawValue])
        self.pipe = pipe
        let before = callers.connected
        let limit = Self.startingTime(range.count)
        try wait(for: "\(range.count) sleepers to connect", atMost: limit, firstPause: 1_000_000) {
            try runDirectory.requireAllRunning()
            try checkFailures()
            try callers.acceptConnections()
            runDirectory.progress.show("\(callers.connected - before) of \(range.count) sleepers connected")
            return callers.connected == before + range.count
        }
        try supervisor.waitUntilAsleep(range.count, atMost: limit, check: checkFailures)
        let tree = try method.tree()
        stopped = range.map { StoppedProcess(sharedMemory[$0].pid, method, tree) }
    }

    /// The lifetime pipe of the sleepers.
    private let pipe: Pipe

    func isAsleep(_ index: Int) -> Bool {
        sharedMemory[index].stage == .waiting && stopped[index - range.lowerBound].isStopped
    }

    func name(of index: Int) -> String { "sleeper \(index)" }

    /// Calls a sleeper at a random moment while it is asleep.
    ///
    /// - Returns: the time from the packet to the first byte that it read, in nanoseconds; nil: it read nothing.
    func callAlone(
        _ index: Int, patience: Duration, _ random: inout SplitMix64
    ) throws -> Int64? {
        try waitUntilAsleep(index)
        try pause(nanoseconds: 500_000 + Int64(min(random.exponential(perSecond: 500), 0.02) * 1e9))
        let slot = sharedMemory[index]
        let before = slot.received
        try callers.call(index)
        do {
            try wait(for: "a packet", atMost: patience, firstPause: 1_000_000) { slot.received > before }
            return slot.latency
        } catch LoadError.timedOut {
            try requireAlive(index)
            return nil
        }
    }
}

/// The floor's sleepers, which the harness puts to sleep itself: suspending is not measured.
final class FloorPopulation: Population {
    let range: Range<Int>
    let sharedMemory: SharedMemory
    let callers: Callers
    private let method: SuspensionMethod
    private let cgroup: String?
    private let pipe: Pipe
    private let process: ChildProcess
    private var stopped: [StoppedProcess] = []
    private var freezers: [CInt] = []

    init(
        _ runDirectory: RunDirectory, method: SuspensionMethod, range: Range<Int>, sharedMemory: SharedMemory,
        callers: Callers
    ) throws {
        self.range = range
        self.sharedMemory = sharedMemory
        self.callers = callers
        self.method = method
        let tree = try method.tree()
        cgroup = try tree.map { tree throws(LoadError) in try runDirectory.cgroup(in: tree) }
        pipe = try Pipe()
        process = try runDirectory.start(
            .floorSleepers,
            FloorZygote.arguments(
                first: range.lowerBound, count: range.count, slots: sharedMemory.count, callers: callers,
                cgroup: cgroup),
            descriptors: [sharedMemory.descriptor.rawValue, pipe.reading.rawValue])
        let before = callers.connected
        let limit = Self.startingTime(range.count)
        try wait(for: "the floor's sleepers", atMost: limit, firstPause: 1_000_000) {
            try runDirectory.requireAllRunning()
            try callers.acceptConnections()
            guard !range.contains(where: { sharedMemory[$0].stage == .failed }) else {
                throw LoadError.supervisor(
                    "a sleeper of the floor gave up: \(runDirectory.lastLines(of: .floorSleepers))")
            }
            return callers.connected == before + range.count
                && range.allSatisfy { sharedMemory[$0].stage == .waiting && sharedMemory[$0].pid != 0 }
        }
        for index in range {
            stopped.append(StoppedProcess(sharedMemory[index].pid, method, tree))
            guard let cgroup else { continue }
            let path = FloorCgroup(parent: cgroup, index: index).freezer
            let freezer = open(path, O_WRONLY | O_CLOEXEC)
            guard freezer >= 0 else { throw LoadError(failed: "open \(path)") }
            freezers.append(freezer)
        }
        for index in range { try putToSleep(index) }
    }

    deinit {
        for freezer in freezers { close(freezer) }
        process.end()
    }

    private func putToSleep(_ index: Int) throws {
        switch method {
        case .cgroup:
            guard write(freezers[index - range.lowerBound], "1", 1) == 1 else {
                throw LoadError(failed: "freeze")
            }
        case .signal:
            guard kill(sharedMemory[index].pid, SIGSTOP) == 0 else { throw LoadError(failed: "kill") }
        }
        try wait(for: "floor's sleeper \(index) to stop", atMost: .seconds(5)) {
            stopped[index - range.lowerBound].isStopped
        }
        asleepAfter[index] = sharedMemory[index].received
    }

    /// The packets that each sleeper had received when it was put to sleep.
    private var asleepAfter: [Int: UInt64] = [:]

    func isAsleep(_ index: Int) throws -> Bool {
        try requireAlive(index)
        if asleepAfter[index] != sharedMemory[index].received { try putToSleep(index) }
        return true
    }

    func name(of index: Int) -> String { "the floor's sleeper \(index)" }
}

/// A lifetime pipe: processes that inherit the reading end notice when the writing end is closed.
struct Pipe: ~Copyable {
    let reading: OwnedDescriptor
    private let writing: OwnedDescriptor

    init() throws(LoadError) {
        var ends: [CInt] = [-1, -1]
        guard cfloors_pipe(&ends) == 0 else { throw LoadError(failed: "pipe") }
        reading = OwnedDescriptor(adopting: ends[0])
        writing = OwnedDescriptor(adopting: ends[1])
    }
}
