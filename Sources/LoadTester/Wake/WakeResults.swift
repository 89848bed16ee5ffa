import Presentation

/// The results of a `wake` run.
struct WakeResults {
    struct Sample {
        /// When it was sent, and how long it took, in nanoseconds.
        var at: Int64
        var latency: Int64
    }

    struct Round {
        var ours = Latencies()
        var floor = Latencies()
        var samples: [Sample] = []
        /// From the first read to the moment at which it was seen asleep again.
        var asleep = Latencies()
        var lost = 0
        var lostByFloor = 0

        mutating func note(_ sample: Sample, isOurs: Bool) {
            if isOurs {
                ours.record(nanoseconds: sample.latency)
                samples.append(sample)
            } else {
                floor.record(nanoseconds: sample.latency)
            }
        }

        mutating func recordLoss(isOurs: Bool) {
            if isOurs { lost += 1 } else { lostByFloor += 1 }
        }

        func line(_ number: Int) -> String {
            let (a, b) = (ours.percentile(50), floor.percentile(50))
            let (c, d) = (ours.percentile(99), floor.percentile(99))
            return
                "round \(number): p50 \(figure(a)) µs, floor \(figure(b)); p99 \(figure(c)), floor \(figure(d))"
        }
    }

    let settings: WakeRun.Settings
    var rounds: [Round] = []
    var began: Int64 = 0
    var duplicate = 0
    var duplicateByFloor = 0
    private(set) var machine = Machine()

    init(settings: WakeRun.Settings) {
        self.settings = settings
    }

    mutating func finish(_ ours: any Population, _ floor: any Population) {
        duplicate = Int(ours.duplicates)
        duplicateByFloor = Int(floor.duplicates)
        machine.finish()
    }

    var lost: Int { rounds.reduce(0) { $0 + $1.lost } }
    var lostByFloor: Int { rounds.reduce(0) { $0 + $1.lostByFloor } }
    private var asleepFigures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.asleep)) }
    var figures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.ours)) }
    var floorFigures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.floor)) }

    /// nil when a wake was lost: the remaining ones would look faster than they were.
    func ratio(_ percentile: Double) -> Double? {
        guard lost == 0, lostByFloor == 0 else { return nil }
        return medianRatio(
            rounds.map { $0.ours.percentile(percentile) },
            over: rounds.map { $0.floor.percentile(percentile) })
    }
}

extension WakeResults: Reportable {
    var command: String { "wake" }

    var json: JSON {
        [
            "command": "wake",
            "suspend": .string(settings.suspension.rawValue),
            "transport": .string(settings.transport.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "rounds": .integer(Int64(settings.rounds)),
            "calls": .integer(Int64(settings.calls * settings.rounds)),
            "seed": .unsigned(settings.seed),
            "lost": .integer(Int64(lost)),
            "duplicate": .integer(Int64(duplicate)),
            "latency_us": figures.json,
            "asleep_us": asleepFigures.json,
            "floor": [
                "lost": .integer(Int64(lostByFloor)),
                "duplicate": .integer(Int64(duplicateByFloor)),
                "latency_us": floorFigures.json,
            ],
            "ratio": [
                "p50": .rounded(ratio(50)), "p90": .rounded(ratio(90)), "p99": .rounded(ratio(99)),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        let (a, b) = (figures, floorFigures)
        let rows: [(String, Double, Double)] = [
            ("p50", a.p50, b.p50), ("p90", a.p90, b.p90), ("p99", a.p99, b.p99), ("p99.9", a.p999, b.p999),
            ("max", a.max, b.max),
        ]
        let ratios = ["p50": ratio(50), "p90": ratio(90), "p99": ratio(99)]
        var latency = ReportTable(
            title: "Packet → first byte read by the handler",
            columns: ["", "Nightbell, µs", "floor, µs", "ratio"])
        for (name, ours, floor) in rows {
            let ratio = ratios[name].map { $0.map { figure($0, digits: 2) } ?? "–" } ?? ""
            latency.rows.append([name, figure(ours), figure(floor), ratio])
        }
        latency.note =
            "\(settings.rounds) interleaved rounds of \(settings.calls) calls each; percentiles and ratios are "
            + "medians of the rounds', p99.9 and max of all calls together"
        let counts = ReportTable(
            title: "Wakes", columns: ["", "Nightbell", "floor"],
            rows: [
                ["lost", "\(lost)", "\(lostByFloor)"],
                ["duplicate", "\(duplicate)", "\(duplicateByFloor)"],
                ["asleep again, p50, µs", figure(asleepFigures.p50)],
            ],
            note: "asleep again: from the first read, as seen from outside at growing pauses")
        return [latency, counts]
    }

    var verdicts: [Verdict] {
        [
            Verdict("p50 over floor", ratio(50), atMost: 1.15),
            Verdict("p99 over floor", ratio(99), atMost: 1.25),
            Verdict("lost", Double(lost), atMost: 0),
            Verdict("duplicate", Double(duplicate), atMost: 0),
        ]
    }

    var charts: [Chart] {
        var (ours, floor) = (Latencies(), Latencies())
        for round in rounds {
            ours.add(round.ours)
            floor.add(round.floor)
        }
        let samples = rounds.flatMap(\.samples)
        return [
            .percentiles(
                title: "Latency by percentile", [("Nightbell", ours.curve), ("floor", floor.curve)]),
            .dots(
                title: "Wakes over time", horizontal: "seconds", vertical: "µs",
                samples.map { (Double($0.at - began) / 1e9, Double($0.latency) / 1e3) }),
        ]
    }
}
