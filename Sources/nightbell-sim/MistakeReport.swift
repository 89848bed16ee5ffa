import Presentation
import Simulation

/// Which world finds each mistake, as text or as JSON.
struct MistakeReport {
    private let findings: [(mistake: Mistake, finding: Mistake.Finding?)]

    /// Makes all mistakes, at most `jobs` at a time.
    static func make(jobs: Int) async -> MistakeReport {
        let mistakes = Mistake.all
        var findings: [Mistake: Mistake.Finding] = [:]
        await withTaskGroup(of: (Mistake, Mistake.Finding?).self) { group in
            var waiting = mistakes[...]
            for _ in 0..<jobs {
                if let next = waiting.popFirst() { group.addTask { await find(next) } }
            }
            for await (mistake, finding) in group {
                findings[mistake] = finding
                if let next = waiting.popFirst() { group.addTask { await find(next) } }
            }
        }
        return MistakeReport(findings: mistakes.map { ($0, findings[$0]) })
    }

    @concurrent
    private static func find(_ mistake: Mistake) async -> (Mistake, Mistake.Finding?) {
        (mistake, mistake.find())
    }

    /// The names of those that no world finds.
    var missed: [String] { findings.filter { $0.finding == nil }.map(\.mistake.name) }

    var text: String {
        let lines = findings.map { mistake, finding in
            let told = finding.map { "seed \($0.seed), \($0.violation)" } ?? "NOT FOUND"
            return "\(mistake.name): \(told)"
        }
        let sum = "\(findings.count - missed.count) of \(findings.count) mistakes are found"
        return (lines + ["", sum]).joined(separator: "\n")
    }

    var json: JSON {
        [
            "mistakes": .array(
                findings.map { mistake, finding in
                    [
                        "name": .string(mistake.name),
                        "seed": finding.map { .unsigned($0.seed) } ?? .null,
                        "invariant": finding.map { .string($0.violation.invariant.rawValue) } ?? .null,
                    ]
                }),
            "missed": .array(missed.map(JSON.string)),
        ]
    }
}
