import Glibc
import Simulation

/// Runs worlds side by side: they have nothing in common.
struct Worlds {
    /// Worlds that one task runs after another.
    private static let share: UInt64 = 25
    /// Enough to see whether they have something in common.
    private static let mostFailures = 5

    let command: SimulationCommand

    func run() async -> Tally {
        var tally = Tally()
        var progress = Progress(worlds: command.seeds)
        let end = command.first + command.seeds
        await withTaskGroup(of: Tally.self) { group in
            var next = command.first
            var running = 0
            while running > 0 || next < end {
                while running < command.jobs, next < end, tally.failures.count < Self.mostFailures {
                    let seeds = next..<next + min(Self.share, end - next)
                    next = seeds.upperBound
                    running += 1
                    group.addTask { await run(seeds) }
                }
                guard let part = await group.next() else { break }
                running -= 1
                tally.add(part)
                if !command.json { progress.show(tally) }
            }
        }
        // Those that would be found whatever ran at the same time.
        tally.keepFirstFailures(Self.mostFailures)
        return tally
    }

    @concurrent
    private func run(_ seeds: Range<UInt64>) async -> Tally {
        var tally = Tally()
        for seed in seeds where tally.failures.count < Self.mostFailures {
            tally.add(
                Run(seed: seed, steps: command.steps, mutation: command.mutation, fault: command.fault))
        }
        return tally
    }
}

/// A line now and then.
private struct Progress {
    let worlds: UInt64
    let start = ContinuousClock.now
    var shown = ContinuousClock.now

    mutating func show(_ tally: Tally) {
        guard shown.duration(to: .now) >= .seconds(5) else { return }
        shown = .now
        let rate = Report.perSecond(tally.steps, start.duration(to: shown))
        print("\(tally.worlds) of \(worlds) worlds, \(rate) steps/s")
        // Also into a file or a pipe, where somebody may be watching.
        fflush(nil)
    }
}
