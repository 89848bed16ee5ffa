import Glibc
import Simulation

/// Runs worlds in parallel: they share no state.
struct Worlds {
    /// Worlds that one task runs after another.
    private static let share: UInt64 = 25

    let command: SimulationCommand

    func run() async -> Tally {
        var tally = Tally()
        var progress = Progress(worlds: command.seeds)
        await withTaskGroup(of: Tally.self) { group in
            let jobs = command.jobs
            // The last seed may be `UInt64.max`; `next` then wraps around, and is not used again.
            var next = command.first
            var left = command.seeds
            var running = 0
            while running > 0 || left > 0 {
                while running < jobs, left > 0, tally.failures.count < command.failures {
                    let count = min(Self.share, left)
                    let seeds = next...next + (count - 1)
                    left -= count
                    next &+= count
                    running += 1
                    group.addTask { await run(seeds) }
                }
                guard let part = await group.next() else { break }
                running -= 1
                tally.add(part)
                if !command.json { progress.show(tally) }
            }
        }
        // Keeps the failures with the lowest seeds, so that the result does not depend on scheduling.
        tally.keepFirstFailures(command.failures)
        return tally
    }

    @concurrent
    private func run(_ seeds: ClosedRange<UInt64>) async -> Tally {
        var tally = Tally()
        for seed in seeds where tally.failures.count < command.failures {
            tally.add(
                Run(seed: seed, steps: command.steps, mutation: command.mutation, fault: command.fault))
        }
        return tally
    }
}

/// Prints the progress from time to time.
private struct Progress {
    let worlds: UInt64
    let start = ContinuousClock.now
    var shown = ContinuousClock.now

    mutating func show(_ tally: Tally) {
        guard shown.duration(to: .now) >= .seconds(5) else { return }
        shown = .now
        let rate = Report.perSecond(tally.steps, start.duration(to: shown))
        print("\(tally.worlds) of \(worlds) worlds, \(rate) steps/s")
        // Standard output is buffered if it is a file or a pipe, which a user may be watching.
        fflush(nil)
    }
}
