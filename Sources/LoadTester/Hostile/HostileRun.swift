import CFloors
import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Calls sleepers while other users attack the supervisor; the other half of the sleepers waits for
/// keep-alives.
struct HostileRun {
    struct Settings {
        var suspension: SuspensionMethod
        /// Half of them are called, half have a keep-alive.
        var clients: Int
        /// For each kind.
        var seconds: Int
        var kinds: [HostileKind]
        var seed: UInt64
    }

    /// How long a packet may take before it counts as lost.
    private static let patience = Duration.seconds(20)
    /// The number of concurrent attackers, and their users, if these can be chosen.
    private static let attackers: [uid_t] = [65_534, 65_533]
    /// The shortest and the longest timeout of keep-alives, in milliseconds.
    private static let timeouts = (1_000, 2_000)

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> HostileResults {
        let supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: settings.suspension, linger: .milliseconds(1),
                keepAliveMinimum: .milliseconds(Self.timeouts.0),
                extra: ["connectionsPerUser=\(HostileKind.connectionsPerUser)", "logLevel=notice"]))
        let sharedMemory = try SharedMemory(slots: settings.clients)
        let callers = try Callers(.unix, slots: settings.clients, runDirectory)
        let population = try SupervisedPopulation(
            runDirectory, supervisor, method: settings.suspension, range: 0..<settings.clients,
            sharedMemory: sharedMemory, callers: callers,
            options: SleeperOptions(keepAlive: Self.timeouts, keepsHalfAlive: true, seed: settings.seed))
        var random = SplitMix64(seed: settings.seed)
        var results = HostileResults(settings: settings)
        // The first wake of each sleeper touches pages that were never touched; that phase does not count.
        _ = try measure(.none, seconds: 1, population, supervisor, &random)
        for kind in settings.kinds {
            let phase = try measure(kind, seconds: settings.seconds, population, supervisor, &random)
            results.phases.append(phase)
            runDirectory.progress.say(phase.line)
        }
        results.machine.finish()
        return results
    }

    private func measure(
        _ kind: HostileKind, seconds: Int, _ population: SupervisedPopulation,
        _ supervisor: PrivateSupervisor, _ random: inout SplitMix64
    ) throws -> HostileResults.Phase {
        var phase = HostileResults.Phase(kind: kind)
        let lateBefore = lateRuns(population)
        let logBefore = logLines()
        let attackers = try start(kind, supervisor)
        defer { end(attackers) }
        let end = monotonicNow() + Int64(seconds) * 1_000_000_000
        while monotonicNow() < end {
            // Those with an even number have no keep-alive.
            let index = 2 * Int.random(in: 0..<settings.clients / 2, using: &random)
            phase.note(try population.callAlone(index, patience: Self.patience, &random))
            for attacker in attackers { try attacker.requireRunning() }
        }
        phase.late = max(0, lateRuns(population) - lateBefore)
        phase.logLines = logLines() - logBefore
        try population.requireAllAlive()
        return phase
    }

    private func start(_ kind: HostileKind, _ supervisor: PrivateSupervisor) throws -> [ChildProcess] {
        guard kind != .none else { return [] }
        let users: [uid_t?] = geteuid() == 0 ? Self.attackers : kind == .busy ? [nil, nil] : [nil]
        return try users.enumerated().map { number, user in
            try runDirectory.start(
                .hostile,
                HostileProcess.arguments(
                    kind, supervisorSocket: supervisor.socketPath, user: user, number: number),
                descriptors: [])
        }
    }

    /// Ends them, and waits until the kernel has ended all their descendants, which may be thousands: that would disturb
    /// the next phase.
    private func end(_ attackers: [ChildProcess]) {
        var descendants = attackers.flatMap { ProcFS.descendants(of: $0.id) }
        for attacker in attackers { runDirectory.end(attacker) }
        let deadline = monotonicNow() + 20_000_000_000
        while true {
            descendants.removeAll { kill($0, 0) != 0 && errno == ESRCH }
            guard !descendants.isEmpty, monotonicNow() < deadline else { return }
            usleep(10_000)
        }
    }

    private func lateRuns(_ population: SupervisedPopulation) -> Int {
        RealKeepAlive.lateRuns(
            of: population.range.map { population.sharedMemory[$0].pointer.pointee }, at: monotonicNow())
    }

    private func logLines() -> Int { runDirectory.log(of: "nightbelld").split(separator: "\n").count }
}
