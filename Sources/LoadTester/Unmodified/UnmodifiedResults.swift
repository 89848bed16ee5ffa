import Presentation

/// The results of an `unmodified` run.
struct UnmodifiedResults {
    struct Round {
        var ours = Latencies()
        var floor = Latencies()
        var lost = 0
        var lostByFloor = 0

        /// Records a call's latency in nanoseconds; nil: no answer came.
        mutating func record(_ latency: Int64?, isOurs: Bool) {
            switch (latency, isOurs) {
            case (let latency?, true): ours.record(nanoseconds: latency)
            case (let latency?, false): floor.record(nanoseconds: latency)
            case (nil, true): lost += 1
            case (nil, false): lostByFloor += 1
            }
        }

        func line(_ number: Int) -> String {
            let (a, b) = (ours.percentile(50), floor.percentile(50))
            let (c, d) = (ours.percentile(99), floor.percentile(99))
            return
                "round \(number): p50 \(figure(a)) µs, floor \(figure(b)); p99 \(figure(c)), floor \(figure(d))"
        }
    }

    /// Context switches while all sleep.
    struct Idle {
        var supervisor = 0
        /// Of the processes of `nightbell run`.
        var runners = 0
        var programs = 0
    }

    let settings: UnmodifiedRun.Settings
    var rounds: [Round] = []
    var idle = Idle()
    /// Processor time of all processes of `nightbell run` during the rounds, in nanoseconds.
    var runnerTime: Int64 = 0
    /// Memory that the supervisor's worker has written for all programs.
    var supervisorBytes = 0
    var machine = Machine()

    init(settings: UnmodifiedRun.Settings) { self.settings = settings }

    private var lost: Int { rounds.reduce(0) { $0 + $1.lost } }
    private var lostByFloor: Int { rounds.reduce(0) { $0 + $1.lostByFloor } }
    private var figures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.ours)) }
    private var floorFigures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.floor)) }

    /// nil when a call was lost: the remaining ones would look faster than they were.
    private func ratio(_ percentile: Double) -> Double? {
        guard lost == 0, lostByFloor == 0 else { return nil }
        return medianRatio(
            rounds.map { $0.ours.percentile(percentile) },
            over: rounds.map { $0.floor.percentile(percentile) })
    }

    /// Microseconds of processor time for each sleep of a program: the looks, the decision, and the wake
    /// before.
    private var decision: Double {
        Double(runnerTime) / 1e3 / Double(max(1, settings.programs * settings.rounds))
    }

    private var bytes: Double { Double(supervisorBytes) / Double(settings.programs) }
}

extension UnmodifiedResults: Reportable {
    var command: String { "unmodified" }

    var json: JSON {
        [
            "command": "unmodified",
            "programs": .integer(Int64(settings.programs)),
            "rounds": .integer(Int64(settings.rounds)),
            "transport": .string(settings.transport.rawValue),
            "seed": .unsigned(settings.seed),
            "lost": .integer(Int64(lost)),
            "latency_us": figures.json,
            "floor": ["lost": .integer(Int64(lostByFloor)), "latency_us": floorFigures.json],
            "ratio": ["p50": .rounded(ratio(50)), "p90": .rounded(ratio(90)), "p99": .rounded(ratio(99))],
            "decision_cpu_us": .rounded(decision),
            "supervisor_bytes_per_program": .rounded(bytes),
            "idle": [
                "seconds": .integer(Int64(settings.idleSeconds)),
                "supervisor_switches": .integer(Int64(idle.supervisor)),
                "runner_switches": .integer(Int64(idle.runners)),
                "program_switches": .integer(Int64(idle.programs)),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        let (a, b) = (figures, floorFigures)
        var latency = ReportTable(
            title: "Packet → its answer", columns: ["", "Nightbell, µs", "floor, µs", "ratio"])
        for (name, ours, floor, ratio) in [
            ("p50", a.p50, b.p50, ratio(50)), ("p90", a.p90, b.p90, ratio(90)),
            ("p99", a.p99, b.p99, ratio(99)), ("max", a.max, b.max, nil),
        ] {
            latency.rows.append([
                name, figure(ours), figure(floor), ratio.map { figure($0, digits: 2) } ?? "",
            ])
        }
        latency.note =
            "\(settings.rounds) rounds with one call to each of \(settings.programs) programs a side"
        let costs = ReportTable(
            title: "Costs", columns: ["", ""],
            rows: [
                ["lost", "\(lost)"], ["lost by the floor", "\(lostByFloor)"],
                ["processor time for each sleep, µs", figure(decision)],
                ["supervisor's memory for a program, bytes", figure(bytes)],
                ["idle: context switches of the supervisor", "\(idle.supervisor)"],
                ["idle: of nightbell run", "\(idle.runners)"], ["idle: of the programs", "\(idle.programs)"],
            ],
            note:
                "processor time: of nightbell run, from one sleep to the next; idle: in \(settings.idleSeconds) s"
        )
        return [latency, costs]
    }

    var verdicts: [Verdict] {
        [
            Verdict("lost", Double(lost), atMost: 0),
            Verdict("p50 over floor", ratio(50), atMost: 1.5),
            Verdict("p99 over floor", ratio(99), atMost: 2),
            Verdict("processor time for each sleep, µs", decision, atMost: 1_000),
            Verdict("supervisor's memory for a program, bytes", bytes, atMost: 4_096),
            Verdict(
                "context switches while all sleep",
                Double(idle.supervisor + idle.runners + idle.programs), atMost: 0),
        ]
    }

    var charts: [Chart] {
        var (ours, floor) = (Latencies(), Latencies())
        for round in rounds {
            ours.add(round.ours)
            floor.add(round.floor)
        }
        return [
            .percentiles(
                title: "Latency by percentile", [("Nightbell", ours.curve), ("floor", floor.curve)])
        ]
    }
}
