import Glibc
import LinuxSystem
import Nightbell

/// Programs that were started by `nightbell run --unmodified`.
final class SupervisedPrograms {
    /// The processes of `nightbell run`, by program.
    let runners: [pid_t]
    /// The programs themselves.
    let processes: [pid_t]
    private let stopped: [StoppedProcess]

    /// Starts the programs and waits until all sleep.
    init(
        _ runDirectory: RunDirectory, _ supervisor: PrivateSupervisor, _ callers: PeerSockets,
        range: Range<Int>
    ) throws {
        var runners: [pid_t] = []
        let before = callers.connected
        for index in range {
            let runner = try runDirectory.start(
                "nightbell",
                [
                    "run", "--unmodified", "--socket", supervisor.socketPath, "--identifier",
                    Self.identifier(index), "--", "\(runDirectory.programs)/nightbell-echo", callers.endpoint,
                    "\(index)",
                ], log: "programs")
            runners.append(runner.id)
        }
        self.runners = runners
        let limit = Duration.seconds(60 + range.count / 4)
        try wait(for: "\(range.count) programs to connect", atMost: limit, firstPause: 5_000_000) {
            try runDirectory.requireAllRunning()
            try callers.acceptConnections()
            return callers.connected == before + range.count
        }
        try supervisor.waitUntilAsleep(range.count, atMost: limit)
        let identifiers = Dictionary(
            try supervisor.clients().map { ($0.identifier, pid_t($0.processID)) },
            uniquingKeysWith: { first, _ in first })
        processes = try range.map { index throws(LoadError) in
            guard let process = identifiers[Self.identifier(index)] else {
                throw .supervisor("there is no client \(Self.identifier(index))")
            }
            return process
        }
        let tree = try CgroupTree.required()
        stopped = processes.map { StoppedProcess($0, .cgroup, tree) }
    }

    private static func identifier(_ index: Int) -> String { "load.program.\(index)" }

    func waitUntilAllAsleep() throws {
        for index in stopped.indices {
            try wait(for: "program \(index) to sleep", atMost: .seconds(60), firstPause: 10_000_000) {
                stopped[index].isStopped
            }
        }
    }

    func requireAsleep(_ index: Int) throws {
        guard stopped[index].isStopped else {
            throw LoadError.supervisor("program \(index) is awake, though nothing has called it")
        }
    }

    /// Nanoseconds of processor time that the processes of `nightbell run` have used.
    func runnerTime() throws -> Int64 {
        try runners.reduce(0) { try $0 + processorTime($1) }
    }
}
