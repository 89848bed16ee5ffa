import NightbellCore
import Presentation
import Simulation

/// The result of a plan of transfers that can wait, as text or as JSON.
struct TransferReport {
    private let seed: UInt64
    private let clients: Int
    private let days: Int
    private let planned: TransferTally
    /// The same day with transfers that cannot wait.
    private let atOnce: TransferTally
    private let violations: [String]

    init(seed: UInt64, clients: Int, days: Int) {
        self.seed = seed
        self.clients = clients
        self.days = days
        func run(_ policy: TransferDay.Policy) -> (TransferTally, Violation?) {
            var day = TransferDay(seed: seed, clients: clients, days: days, policy)
            day.run()
            return (day.tally, day.violation)
        }
        let (planned, first) = run(.planned)
        let (atOnce, second) = run(.atOnce)
        self.planned = planned
        self.atOnce = atOnce
        violations = [first, second].compactMap { $0.map { "\($0)" } }
    }

    /// The targets that were missed, in words.
    var misses: [String] {
        let targets = [
            (planned.badBytes == 0, "bad_bytes is not 0"),
            (planned.idleSeconds == 0, "idle_seconds is not 0"),
            (planned.late == 0, "late is not 0"),
            (planned.finished > 0 && planned.ends > 0, "nothing was finished"),
            (planned.told == planned.ends, "told is not ends"),
            (planned.issues == planned.dueIssues, "issues is not due_issues"),
            (planned.extraShare <= 0.1, "extra_instants_share is more than 0.1"),
        ]
        return violations + targets.filter { !$0.0 }.map(\.1)
    }

    private static func rounded(_ number: Double) -> Double { (number * 10_000).rounded() / 10_000 }

    private func members(_ tally: TransferTally) -> [JSON.Member] {
        func integer(_ number: Double) -> JSON { .integer(Int64(number.rounded())) }
        func percentiles(_ sorted: [Double]) -> JSON {
            [
                "p50": integer(TransferTally.percentile(50, sorted)), "max": integer(sorted.last ?? 0),
            ]
        }
        return [
            .init(name: "transfers", value: .integer(Int64(tally.asked))),
            .init(name: "finished", value: .integer(Int64(tally.finished))),
            .init(name: "good_bytes", value: integer(tally.goodBytes)),
            .init(name: "bad_bytes", value: integer(tally.badBytes)),
            .init(name: "idle_seconds", value: integer(tally.idleSeconds)),
            .init(name: "wait_s", value: percentiles(tally.waits)),
            .init(name: "due_issues", value: .integer(Int64(tally.dueIssues))),
            .init(name: "issues", value: .integer(Int64(tally.issues))),
            .init(name: "ends", value: .integer(Int64(tally.ends))),
            .init(name: "told", value: .integer(Int64(tally.told))),
            .init(name: "late", value: .integer(Int64(tally.late))),
            .init(name: "launches", value: .integer(Int64(tally.launches))),
            .init(name: "told_after_s", value: percentiles(tally.delays)),
            .init(name: "other_instants", value: .integer(Int64(tally.otherInstants))),
            .init(name: "extra_instants", value: .integer(Int64(tally.extraInstants))),
            .init(name: "extra_instants_share", value: .number(Self.rounded(tally.extraShare))),
        ]
    }

    var json: JSON {
        .object(
            [
                .init(name: "seed", value: .unsigned(seed)),
                .init(name: "clients", value: .integer(Int64(clients))),
                .init(name: "days", value: .integer(Int64(days))),
                .init(name: "good_share", value: .number(Self.rounded(planned.goodShare))),
            ] + members(planned) + [
                .init(name: "at_once", value: .object(members(atOnce))),
                .init(name: "missed", value: .array(misses.map(JSON.string))),
            ])
    }

    var text: String {
        func percent(_ share: Double) -> String { "\((share * 1_000).rounded() / 10) %" }
        func lines(_ tally: TransferTally) -> [String] {
            let wait = TransferTally.percentile(50, tally.waits)
            let delay = TransferTally.percentile(50, tally.delays)
            return [
                "  transfers finished            \(tally.finished) of \(tally.asked)",
                "  bytes in bad moments          \(percent(tally.badShare))",
                "  time of a transfer            p50 \(Int(wait)) s, max \(Int(tally.waits.last ?? 0)) s",
                "  issues                        \(tally.issues) of \(tally.dueIssues)",
                "  ends told                     \(tally.told) of \(tally.ends), \(tally.late) late",
                "  told after                    p50 \(Int(delay)) s, max \(Int(tally.delays.last ?? 0)) s",
                "  extra wake instants           \(tally.extraInstants), \(percent(tally.extraShare))",
            ]
        }
        return
            ([
                "\(clients) clients, \(days) \(days == 1 ? "day" : "days"), seed \(seed); good moments \(percent(planned.goodShare))",
                "transfers that can wait",
            ] + lines(planned) + ["the same, at once"] + lines(atOnce)
            + misses.map { "MISSED: \($0)" }).joined(separator: "\n")
    }
}
