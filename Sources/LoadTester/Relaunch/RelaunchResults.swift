import Presentation

/// The results of a `relaunch` run.
struct RelaunchResults {
    struct Round {
        var ours = Latencies()
        var floor = Latencies()
        var lost = 0
        var lostByFloor = 0

        mutating func note(_ nanoseconds: Int64, isOurs: Bool) {
            if isOurs {
                ours.record(nanoseconds: nanoseconds)
            } else {
                floor.record(nanoseconds: nanoseconds)
            }
        }

        mutating func recordLoss(isOurs: Bool) {
            if isOurs { lost += 1 } else { lostByFloor += 1 }
        }

        func line(_ number: Int) -> String {
            let (a, b) = (ours.percentile(50), floor.percentile(50))
            return "round \(number): p50 \(figure(a)) µs, floor \(figure(b))"
        }
    }

    /// Memory that worker and keeper have written, in bytes.
    struct Memory {
        var worker = 0
        var keeper = 0
    }

    /// Before any phone connects, with the first phones, and with all of them.
    struct Memories {
        var empty = Memory()
        var first = Memory()
        var all = Memory()
    }

    let settings: RelaunchRun.Settings
    var rounds: [Round] = []
    /// The first round: its times do not count, but its losses do.
    var warmingUp = Round()
    var memory = Memories()
    var answered = 0
    var allAtOnceSeconds = 0.0
    var machine = Machine()

    init(settings: RelaunchRun.Settings) {
        self.settings = settings
    }

    var lost: Int { rounds.reduce(warmingUp.lost) { $0 + $1.lost } }
    var lostByFloor: Int { rounds.reduce(warmingUp.lostByFloor) { $0 + $1.lostByFloor } }
    var figures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.ours)) }
    var floorFigures: LatencyFigures { LatencyFigures(rounds: rounds.map(\.floor)) }

    /// nil when a call was lost: the remaining ones would look faster than they were.
    func ratio(_ percentile: Double) -> Double? {
        guard lost == 0, lostByFloor == 0 else { return nil }
        return medianRatio(
            rounds.map { $0.ours.percentile(percentile) },
            over: rounds.map { $0.floor.percentile(percentile) })
    }

    /// Growth from the first phones to all of them, for each additional phone; nil if it shrank, because
    /// something else was measured then.
    private func growth(_ bytes: (Memory) -> Int) -> Double? {
        let growth = bytes(memory.all) - bytes(memory.first)
        return growth < 0 ? nil : Double(growth) / Double(settings.clients - settings.firstClients)
    }

    var bytesPerClient: Double? { growth { $0.worker + $0.keeper } }
    private var workerBytesPerClient: Double? { growth(\.worker) }
    private var keeperBytesPerClient: Double? { growth(\.keeper) }
}

extension RelaunchResults: Reportable {
    var command: String { "relaunch" }

    var json: JSON {
        [
            "command": "relaunch",
            "suspend": .string(settings.suspension.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "rounds": .integer(Int64(settings.rounds)),
            "calls": .integer(Int64(settings.calls * settings.rounds)),
            "seed": .unsigned(settings.seed),
            "lost": .integer(Int64(lost)),
            "latency_us": figures.json,
            "floor": [
                "lost": .integer(Int64(lostByFloor)),
                "latency_us": floorFigures.json,
            ],
            "ratio": ["p50": .rounded(ratio(50)), "p90": .rounded(ratio(90)), "p99": .rounded(ratio(99))],
            "memory": [
                "bytes_empty": .integer(Int64(memory.empty.worker + memory.empty.keeper)),
                "bytes_per_dormant_client": .rounded(bytesPerClient, digits: 0),
                "worker_bytes_per_dormant_client": .rounded(workerBytesPerClient, digits: 0),
                "keeper_bytes_per_dormant_client": .rounded(keeperBytesPerClient, digits: 0),
            ],
            "everybody": [
                "called": .integer(Int64(settings.clients)), "answered": .integer(Int64(answered)),
                "seconds": .rounded(allAtOnceSeconds),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        let (a, b) = (figures, floorFigures)
        var latency = ReportTable(
            title: "Packet → first byte read by a new process",
            columns: ["", "Nightbell, µs", "floor, µs", "ratio"])
        let rows = [("p50", a.p50, b.p50, 50.0), ("p90", a.p90, b.p90, 90), ("p99", a.p99, b.p99, 99)]
        for (name, ours, floor, percentile) in rows {
            latency.rows.append([
                name, figure(ours), figure(floor), ratio(percentile).map { figure($0, digits: 2) } ?? "–",
            ])
        }
        latency.rows.append(["max", figure(a.max), figure(b.max), ""])
        latency.note =
            "the floor spawns the same program with the socket; medians of \(settings.rounds) rounds"
        func bytes(_ value: Double?) -> String { value.map { figure($0, digits: 0) } ?? "–" }
        return [
            latency,
            ReportTable(
                title: "\(settings.clients) dormant phones", columns: ["", ""],
                rows: [
                    ["bytes a phone", bytes(bytesPerClient)],
                    ["of them the worker's", bytes(workerBytesPerClient)],
                    ["and the keeper's", bytes(keeperBytesPerClient)],
                    ["all called at once: answered", "\(answered)"],
                    ["within seconds", figure(allAtOnceSeconds, digits: 2)],
                ],
                note: "growth of what worker and keeper have written (Pss_Anon and Pss_Shmem)"),
        ]
    }

    var verdicts: [Verdict] {
        [
            Verdict("p50 over floor", ratio(50), atMost: 1.3),
            Verdict("lost", Double(lost), atMost: 0),
            Verdict("bytes of a dormant client", bytesPerClient, atMost: 1_024),
            Verdict("not answered", Double(settings.clients - answered), atMost: 0),
        ]
    }

    var charts: [Chart] {
        var (ours, floor) = (Latencies(), Latencies())
        for round in rounds {
            ours.add(round.ours)
            floor.add(round.floor)
        }
        return [
            .percentiles(title: "Latency by percentile", [("Nightbell", ours.curve), ("floor", floor.curve)])
        ]
    }
}
