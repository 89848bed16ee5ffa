import CFloors
import Descriptors
import Glibc

/// Sleepers of one kind: those of Nightbell, or the floor's.
protocol Population: AnyObject {
    /// Their slots in the shared area.
    var range: Range<Int> { get }
    var area: SharedArea { get }
    var callers: Callers { get }
    /// Whether this one is asleep, as the kernel sees it. The floor's are put to sleep by this.
    func isAsleep(_ index: Int) throws -> Bool
}

extension Population {
    func waitUntilAsleep(_ index: Int) throws {
        try wait(for: "sleeper \(index) to be asleep", atMost: .seconds(20)) { try isAsleep(index) }
    }

    func waitUntilAllAsleep(_ progress: Progress) throws {
        for index in range { try waitUntilAsleep(index) }
    }

    /// All wakes of the population that found nothing to read, and packets read twice or never.
    var irregularities: (duplicates: UInt64, skipped: UInt64) {
        range.reduce((0, 0)) { sum, index in
            let slot = area[index].pointer.pointee
            return (sum.0 + slot.duplicates + slot.empty_wakes, sum.1 + slot.skipped)
        }
    }
}

/// Clients of a supervisor.
final class SupervisedPopulation: Population {
    let range: Range<Int>
    let area: SharedArea
    let callers: Callers
    let supervisor: PrivateSupervisor
    private let stopped: [StoppedProcess]

    /// Starts the sleepers and waits until they all sleep.
    init(
        _ bench: Workbench, _ supervisor: PrivateSupervisor, method: SuspensionMethod, range: Range<Int>,
        area: SharedArea, callers: Callers, options: SleeperOptions = SleeperOptions()
    ) throws {
        self.range = range
        self.area = area
        self.callers = callers
        self.supervisor = supervisor
        let pipe = try Pipe()
        _ = try bench.start(
            .sleepers,
            SleeperNest.arguments(
                first: range.lowerBound, count: range.count, slots: area.count,
                supervisorSocket: supervisor.socketPath, callers: callers, options: options),
            descriptors: [area.descriptor.rawValue, pipe.reading.rawValue])
        self.pipe = pipe
        let before = callers.connected
        try wait(for: "\(range.count) sleepers to connect", atMost: .seconds(60), firstPause: 1_000_000) {
            try bench.requireAllRunning()
            try callers.takeIn()
            bench.progress.show("\(callers.connected - before) of \(range.count) sleepers connected")
            return callers.connected == before + range.count
        }
        try supervisor.waitUntilAsleep(range.count) {
            guard let failed = range.first(where: { area[$0].stage == .failed }) else { return }
            throw LoadError.supervisor("sleeper \(failed) gave up: \(bench.lastLines(of: .sleepers))")
        }
        let tree = try CgroupTree.required()
        stopped = range.map { StoppedProcess(area[$0].pid, method, tree) }
    }

    /// Its end ends the sleepers.
    private let pipe: Pipe

    func isAsleep(_ index: Int) -> Bool {
        area[index].stage == .waiting && stopped[index - range.lowerBound].isStopped
    }
}

/// The floor's sleepers, which the harness puts to sleep itself: falling asleep is not what is measured.
final class FloorPopulation: Population {
    let range: Range<Int>
    let area: SharedArea
    let callers: Callers
    private let method: SuspensionMethod
    private let cgroup: String?
    private let pipe: Pipe
    private let process: ChildProcess
    private var stopped: [StoppedProcess] = []
    private var freezers: [CInt] = []

    init(
        _ bench: Workbench, method: SuspensionMethod, range: Range<Int>, area: SharedArea, callers: Callers
    ) throws {
        self.range = range
        self.area = area
        self.callers = callers
        self.method = method
        let tree = try CgroupTree.required()
        if method == .cgroup {
            guard let own = tree.directory(of: getpid()) else { throw LoadError.missing("our own cgroup") }
            let directory = "\(own)/nightbell-load-\(getpid())"
            guard mkdir(directory, 0o755) == 0 || errno == EEXIST else {
                throw LoadError(failed: "mkdir \(directory)")
            }
            cgroup = directory
        } else {
            cgroup = nil
        }
        pipe = try Pipe()
        process = try bench.start(
            .floorSleepers,
            FloorNest.arguments(
                first: range.lowerBound, count: range.count, slots: area.count, callers: callers,
                cgroup: cgroup),
            descriptors: [area.descriptor.rawValue, pipe.reading.rawValue])
        let before = callers.connected
        try wait(for: "the floor's sleepers", atMost: .seconds(60), firstPause: 1_000_000) {
            try bench.requireAllRunning()
            try callers.takeIn()
            return callers.connected == before + range.count
                && range.allSatisfy { area[$0].stage == .waiting && area[$0].pid != 0 }
        }
        for index in range {
            stopped.append(StoppedProcess(area[index].pid, method, tree))
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
        // The nest kills its sleepers; their cgroups can be removed once they are gone.
        process.end()
        guard let cgroup else { return }
        for index in range {
            let directory = FloorCgroup(parent: cgroup, index: index).directory
            for _ in 0..<500 where rmdir(directory) != 0 && errno == EBUSY { usleep(2_000) }
        }
        rmdir(cgroup)
    }

    private func putToSleep(_ index: Int) throws {
        switch method {
        case .cgroup:
            guard write(freezers[index - range.lowerBound], "1", 1) == 1 else {
                throw LoadError(failed: "freeze")
            }
        case .signal:
            guard kill(area[index].pid, SIGSTOP) == 0 else { throw LoadError(failed: "kill") }
        }
        try wait(for: "floor's sleeper \(index) to stop", atMost: .seconds(5)) {
            stopped[index - range.lowerBound].isStopped
        }
        asleepAfter[index] = area[index].received
    }

    /// What each had received when it was put to sleep.
    private var asleepAfter: [Int: UInt64] = [:]

    func isAsleep(_ index: Int) throws -> Bool {
        if asleepAfter[index] != area[index].received { try putToSleep(index) }
        return true
    }
}

extension CgroupTree {
    static func required() throws(LoadError) -> CgroupTree {
        guard let tree = CgroupTree() else { throw .missing("there is no cgroup v2 hierarchy here") }
        return tree
    }
}

/// A pipe whose writing end only has to exist: its end is the news.
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
