import Glibc
import LinuxSystem
import Nightbell
import Simulation

/// Calls sleeping programs one at a time, in random order, first one of the supervisor's and then one of the
/// floor's, or the other way round.
struct UnmodifiedRun {
    struct Settings {
        var programs: Int
        var rounds: Int
        var transport: Transport
        var idleSeconds: Int
        var seed: UInt64
    }

    /// How long an answer may take before it counts as lost.
    private static let patienceMilliseconds: CInt = 5_000

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> UnmodifiedResults {
        let supervisor = try PrivateSupervisor(runDirectory, .init(suspension: .cgroup))
        let count = settings.programs
        let callers = try PeerSockets(
            settings.transport, slots: 2 * count, path: "\(runDirectory.path)/callers")
        runDirectory.progress.say("starting \(count) programs, and as many for the floor")
        let floor = try FloorPrograms(runDirectory, callers, range: count..<2 * count)
        let before = try ProcessFigures(supervisor.worker)
        let ours = try SupervisedPrograms(runDirectory, supervisor, callers, range: 0..<count)
        var results = UnmodifiedResults(settings: settings)

        var random = SplitMix64(seed: settings.seed)
        // The first wake of each program touches pages that were never touched.
        _ = try round(0, ours, floor, callers, &random)
        try ours.waitUntilAllAsleep()
        let after = try ProcessFigures(supervisor.worker)
        results.supervisorBytes = after.writtenBytes - before.writtenBytes
        let spent = try ours.runnerTime()
        for number in 1...settings.rounds {
            let measured = try round(number, ours, floor, callers, &random)
            results.rounds.append(measured)
            runDirectory.progress.say(measured.line(number))
            try ours.waitUntilAllAsleep()
        }
        results.runnerTime = try ours.runnerTime() - spent
        runDirectory.progress.say("all asleep; watching them do nothing for \(settings.idleSeconds) s")
        results.idle = try watchIdle(supervisor.worker, ours)
        results.machine.finish()
        return results
    }

    /// Calls each program of both sides once, all of which sleep when it begins.
    private func round(
        _ number: Int, _ ours: SupervisedPrograms, _ floor: FloorPrograms, _ callers: PeerSockets,
        _ random: inout SplitMix64
    ) throws -> UnmodifiedResults.Round {
        var measured = UnmodifiedResults.Round()
        let order = Array(0..<settings.programs).shuffled(using: &random)
        for (done, index) in order.enumerated() {
            try ours.requireAsleep(index)
            for isOurs in Bool.random(using: &random) ? [true, false] : [false, true] {
                // At a random moment, after the one before has come to rest.
                try pause(nanoseconds: Int64.random(in: 1_000_000...3_000_000, using: &random))
                let program = isOurs ? index : settings.programs + index
                try callers.call(program, sequence: UInt64(number) + 1)
                let latency = try callers.echo(
                    program, sequence: UInt64(number) + 1, within: Self.patienceMilliseconds)
                measured.record(latency, isOurs: isOurs)
                if !isOurs { try floor.putToSleep(program) }
            }
            if done % 20 == 0 {
                runDirectory.progress.show("round \(number) of \(settings.rounds): \(done) calls")
                try runDirectory.requireAllRunning()
            }
        }
        return measured
    }

    private func watchIdle(_ worker: pid_t, _ ours: SupervisedPrograms) throws -> UnmodifiedResults.Idle {
        let processes = [[worker], ours.runners, ours.processes]
        let before = try processes.map(contextSwitches)
        try pause(nanoseconds: Int64(settings.idleSeconds) * 1_000_000_000)
        let switches = zip(try processes.map(contextSwitches), before).map { $0 - $1 }
        return .init(supervisor: switches[0], runners: switches[1], programs: switches[2])
    }

    private func contextSwitches(_ processes: [pid_t]) throws -> Int {
        try processes.reduce(0) { try $0 + ProcessFigures($1).contextSwitches }
    }
}
