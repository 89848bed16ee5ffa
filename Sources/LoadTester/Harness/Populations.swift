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

    /// How long so many sleepers may take to start.
    static func startingTime(_ count: Int) -> Duration { .seconds(60 + count / 20) }

    func waitUntilAllAsleep() throws {
        for index in range { try waitUntilAsleep(index) }
    }

    /// Who has died answers no more, and what is measured without it means nothing.
    func requireAlive(_ index: Int) throws(LoadError) {
        let slot = area[index]
        // Nobody waits for the end of their nest's children: who has ended is gone.
        guard slot.stage == .failed || (kill(slot.pid, 0) != 0 && errno == ESRCH) else {
            return try callers.requireAllThere()
        }
        throw .sleeperDied(name(of: index))
    }

    func requireAllAlive() throws(LoadError) {
        for index in range { try requireAlive(index) }
    }

    /// Wakes of the population that found nothing to read, and packets read twice.
    var duplicates: UInt64 {
        range.reduce(0) { sum, index in
            let slot = area[index].pointer.pointee
            return sum + slot.duplicates + slot.empty_wakes
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
        let checkFailures: () throws -> Void = {
            guard let failed = range.first(where: { area[$0].stage == .failed }) else { return }
            throw LoadError.supervisor("sleeper \(failed) gave up: \(bench.lastLines(of: .sleepers))")
        }
        _ = try bench.start(
            .sleepers,
            SleeperNest.arguments(
                first: range.lowerBound, count: range.count, slots: area.count,
                supervisorSocket: supervisor.socketPath, callers: callers, options: options),
            descriptors: [area.descriptor.rawValue, pipe.reading.rawValue])
        self.pipe = pipe
        let before = callers.connected
        let limit = Self.startingTime(range.count)
        try wait(for: "\(range.count) sleepers to connect", atMost: limit, firstPause: 1_000_000) {
            try bench.requireAllRunning()
            try checkFailures()
            try callers.takeIn()
            bench.progress.show("\(callers.connected - before) of \(range.count) sleepers connected")
            return callers.connected == before + range.count
        }
        try supervisor.waitUntilAsleep(range.count, atMost: limit, check: checkFailures)
        let tree = try method.tree()
        stopped = range.map { StoppedProcess(area[$0].pid, method, tree) }
    }

    /// Its end ends the sleepers.
    private let pipe: Pipe

    func isAsleep(_ index: Int) -> Bool {
        area[index].stage == .waiting && stopped[index - range.lowerBound].isStopped
    }

    func name(of index: Int) -> String { "sleeper \(index)" }
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
        let tree = try method.tree()
        cgroup = try tree.map { tree throws(LoadError) in try bench.cgroup(in: tree) }
        pipe = try Pipe()
        process = try bench.start(
            .floorSleepers,
            FloorNest.arguments(
                first: range.lowerBound, count: range.count, slots: area.count, callers: callers,
                cgroup: cgroup),
            descriptors: [area.descriptor.rawValue, pipe.reading.rawValue])
        let before = callers.connected
        let limit = Self.startingTime(range.count)
        try wait(for: "the floor's sleepers", atMost: limit, firstPause: 1_000_000) {
            try bench.requireAllRunning()
            try callers.takeIn()
            guard !range.contains(where: { area[$0].stage == .failed }) else {
                throw LoadError.supervisor(
                    "a sleeper of the floor gave up: \(bench.lastLines(of: .floorSleepers))")
            }
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
        process.end()
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
        try requireAlive(index)
        if asleepAfter[index] != area[index].received { try putToSleep(index) }
        return true
    }

    func name(of index: Int) -> String { "the floor's sleeper \(index)" }
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
