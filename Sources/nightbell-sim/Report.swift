import NightbellCore
import Simulation

/// What came of all worlds, for people and for scripts.
struct Report {
    let tally: Tally
    let elapsed: Duration
    let command: SimulationCommand

    static func perSecond(_ count: Int, _ elapsed: Duration) -> Int {
        let seconds = elapsed / .seconds(1)
        return seconds > 0 ? Int(Double(count) / seconds) : 0
    }

    private var seconds: Double { ((elapsed / .seconds(1)) * 1_000).rounded() / 1_000 }

    /// The arguments that do the same again.
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
        if tally.failures.isEmpty { lines.append("everything held") }
        return lines.joined(separator: "\n")
    }

    var json: String {
        let failures = tally.failures.compactMap { run in
            run.violation.map { violation in
                """
                {"seed":\(run.seed),"step":\(violation.step),"invariant":"\(violation.invariant.rawValue)",\
                "message":"\(Self.escaped(violation.message))","replay":"\(replay(run))"}
                """
            }
        }
        let counts = tally.counts.map { "\"\($0.name)\":\($0.count)" }
        return """
            {"worlds":\(tally.worlds),"steps":\(tally.steps),"seconds":\(seconds),\
            "steps_per_s":\(Self.perSecond(tally.steps, elapsed)),"jobs":\(command.jobs),\
            "digest":"\(String(tally.digest, radix: 16))","failures":[\(failures.joined(separator: ","))],\
            "counts":{\(counts.joined(separator: ","))}}
            """
    }

    private static func escaped(_ text: String) -> String {
        text.reduce(into: "") { result, character in
            switch character {
            case "\"", "\\": result += "\\\(character)"
            case "\n": result += "\\n"
            default: result.append(character)
            }
        }
    }
}
