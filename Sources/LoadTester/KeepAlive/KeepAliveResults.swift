import Presentation

/// The results of a `keepalive` run.
struct KeepAliveResults {
    var isVirtual: Bool
    var clients: Int
    var hours: Double
    var seed: UInt64
    var outcome: VirtualKeepAlive.Outcome
    var machine: Machine

    /// nil when no handler ran, or none would have.
    var instantsReduction: Double? {
        outcome.instants.isEmpty || outcome.uncoalescedInstants == 0
            ? nil : Double(outcome.uncoalescedInstants) / Double(outcome.instants.count)
    }
    var runsRatio: Double? {
        outcome.uncoalescedRuns == 0 ? nil : Double(outcome.runs) / Double(outcome.uncoalescedRuns)
    }
    var late: Int { max(outcome.late, outcome.lateByCore) }
}

extension KeepAliveResults: Reportable {
    var command: String { "keepalive" }

    var json: JSON {
        [
            "command": "keepalive",
            "virtual": .bool(isVirtual),
            "clients": .integer(Int64(clients)),
            "hours": .rounded(hours, digits: 4),
            "seed": .unsigned(seed),
            "instants": .integer(Int64(outcome.instants.count)),
            "runs": .integer(Int64(outcome.runs)),
            "instants_reduction": .rounded(instantsReduction),
            "runs_ratio": .rounded(runsRatio, digits: 4),
            "late": .integer(Int64(late)),
            "earliest_share": .rounded(outcome.earliest, digits: 4),
            "least_left_s": .rounded(outcome.leastLeft),
            "uncoalesced": [
                "instants": .integer(Int64(outcome.uncoalescedInstants)),
                "runs": .integer(Int64(outcome.uncoalescedRuns)),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var table = ReportTable(title: "Keep-alive", columns: ["", "Nightbell", "a timer each", "ratio"])
        table.rows = [
            [
                "wake instants", "\(outcome.instants.count)", "\(outcome.uncoalescedInstants)",
                instantsReduction.map { "1 : " + figure($0) } ?? "–",
            ],
            [
                "handler runs", "\(outcome.runs)", "\(outcome.uncoalescedRuns)",
                runsRatio.map { figure($0, digits: 4) } ?? "–",
            ],
            ["late, or still to come", "\(late)"],
            ["earliest, % before the end", figure(outcome.earliest * 100)],
            ["latest, s before the end", figure(outcome.leastLeft, digits: 3)],
        ]
        table.note =
            "\(clients) clients, \(figure(hours, digits: 3)) h of \(isVirtual ? "virtual" : "real") time"
        return [table]
    }

    var verdicts: [Verdict] {
        // Without handlers, none can have been late.
        let late = late == 0 && outcome.runs == 0 ? nil : Double(late)
        guard isVirtual else { return [Verdict("late", late, atMost: 0)] }
        return [
            Verdict("instants, times fewer", instantsReduction, atLeast: 60),
            Verdict("runs, times more", runsRatio, atMost: 1.07),
            Verdict("late", late, atMost: 0),
        ]
    }

    var charts: [Chart] {
        guard let first = outcome.instants.first else { return [] }
        let unit = isVirtual ? 3.6e12 : 1e9
        return [
            Chart(
                title: "Wake instants over time", horizontal: isVirtual ? "hours" : "seconds",
                vertical: "instants so far", style: .lines,
                series: [
                    .init(
                        name: "Nightbell",
                        points: outcome.instants.enumerated().map {
                            .init(x: Double($0.element - first) / unit, y: Double($0.offset + 1))
                        })
                ])
        ]
    }
}
