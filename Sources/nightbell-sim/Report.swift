import NightbellCore
import Presentation
import Simulation

/// The result of all worlds, as text or as JSON.
struct Report {
    let tally: Tally
    let elapsed: Duration
    let command: SimulationCommand

    static func perSecond(_ count: Int, _ elapsed: Duration) -> Int {
        let seconds = elapsed / .seconds(1)
        return seconds > 0 ? Int(Double(count) / seconds) : 0
    }

    private var seconds: Double { ((elapsed / .seconds(1)) * 1_000).rounded() / 1_000 }

    /// The run stopped early, because too many worlds failed.
    private var isUnfinished: Bool { command.seed == nil && UInt64(tally.worlds) < command.seeds }

    /// The command that repeats the run.
    private func replay(_ run: Run) -> String {
        var words = ["nightbell-sim", "--seed", "\(run.seed)", "--steps", "\(command.steps)", "--trace"]
        if let fault = command.fault { words += ["--fault", fault.rawValue] }
        if let mutation = command.mutation { words += ["--mutation", mutation.rawValue] }
        return words.joined(separator: " ")
    }

    var text: String {
        var lines: [String] = []
        let width = tally.counts.map(\.name.count).max() ?? 0
        for (name, count) in tally.counts {
            lines.append(name + String(repeating: " ", count: width - name.count) + "  \(count)")
        }
        let rate = Self.perSecond(tally.steps, elapsed)
        lines.append("")
        lines.append("\(tally.worlds) worlds, \(tally.steps) steps in \(seconds) s: \(rate) steps/s")
        lines.append("digest of all actions: \(String(tally.digest, radix: 16))")
        if command.seed == nil, !tally.missing.isEmpty {
            lines.append("never happened: \(tally.missing.joined(separator: ", "))")
        }
        for run in tally.failures {
            guard let violation = run.violation else { continue }
            lines.append("FAILED seed \(run.seed): \(violation)")
            lines.append("    \(replay(run))")
        }
        if isUnfinished {
            let run = "\(tally.worlds) of \(command.seeds) worlds were run"
            lines.append("stopped after \(tally.failures.count) failures (--failures): \(run)")
        }
        if tally.failures.isEmpty { lines.append("everything held") }
        return lines.joined(separator: "\n")
    }

    var json: JSON {
        let failures = tally.failures.compactMap { run in
            run.violation.map { violation -> JSON in
                [
                    "seed": .unsigned(run.seed), "step": .integer(Int64(violation.step)),
                    "invariant": .string(violation.invariant.rawValue), "message": .string(violation.message),
                    "replay": .string(replay(run)),
                ]
            }
        }
        return [
            "worlds": .integer(Int64(tally.worlds)), "steps": .integer(Int64(tally.steps)),
            "seconds": .number(seconds),
            "steps_per_s": .integer(Int64(Self.perSecond(tally.steps, elapsed))),
            "jobs": .integer(Int64(command.jobs)), "digest": .string(String(tally.digest, radix: 16)),
            "failures": .array(failures), "stopped_early": .bool(isUnfinished),
            "counts": .object(tally.counts.map { .init(name: $0.name, value: .integer(Int64($0.count))) }),
        ]
    }
}
