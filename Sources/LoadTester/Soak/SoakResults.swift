import Presentation

/// The results of a `soak` run.
struct SoakResults {
    struct Cycle {
        var seconds: Double
        var figures: ProcessFigures
        /// The median of the cycle's single calls, in microseconds; not a number if all were lost. A cycle
        /// keeps no more of them: the load tester itself must not grow.
        var latency: Double
    }

    let settings: SoakRun.Settings
    var cycles: [Cycle] = []
    var calls = 0
    var lost = 0
    var duplicate = 0
    var keepAliveRuns = 0
    /// Late runs as the clients recorded them, and as the supervisor counted them.
    var late = 0
    var lateBySupervisor = 0
    var machine = Machine()

    init(settings: SoakRun.Settings) {
        self.settings = settings
    }

    /// The first cycles are warm-up.
    private var settled: ArraySlice<Cycle> { cycles.dropFirst(cycles.count / 5) }

    /// Growth of the memory that the worker has written, KiB an hour.
    var memoryDrift: Double {
        slope(settled.map { ($0.seconds / 3_600, Double($0.figures.writtenBytes) / 1_024) })
    }

    /// The median of the last third less that of the first: a single sample may see one descriptor more. In
    /// whole descriptors: a median may lie half way between two samples.
    var descriptorDrift: Double? {
        firstAndLastThird(settled.map { Double($0.figures.openDescriptors) }).map {
            ($0.last - $0.first).rounded(.towardZero)
        }
    }

    /// Median latency of the last third over that of the first.
    var latencyDrift: Double? {
        firstAndLastThird(settled.map(\.latency).filter(\.isFinite)).flatMap {
            $0.first > 0 ? $0.last / $0.first : nil
        }
    }
}

/// The medians of the first and of the last third; nil of fewer than two values.
package func firstAndLastThird(_ values: [Double]) -> (first: Double, last: Double)? {
    guard values.count > 1 else { return nil }
    let third = max(1, values.count / 3)
    return (median(Array(values.prefix(third))), median(Array(values.suffix(third))))
}

/// The slope of the line that fits these points best.
package func slope(_ points: [(x: Double, y: Double)]) -> Double {
    guard points.count > 1 else { return 0 }
    let count = Double(points.count)
    let (meanX, meanY) = (points.reduce(0) { $0 + $1.x } / count, points.reduce(0) { $0 + $1.y } / count)
    let spread = points.reduce(0) { $0 + ($1.x - meanX) * ($1.x - meanX) }
    guard spread > 0 else { return 0 }
    return points.reduce(0) { $0 + ($1.x - meanX) * ($1.y - meanY) } / spread
}

extension SoakResults: Reportable {
    var command: String { "soak" }

    var json: JSON {
        [
            "command": "soak",
            "suspend": .string(settings.suspension.rawValue),
            "transport": .string(settings.transport.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "minutes": .number(settings.minutes),
            "seed": .unsigned(settings.seed),
            "cycles": .integer(Int64(cycles.count)),
            "calls": .integer(Int64(calls)),
            "lost": .integer(Int64(lost)),
            "duplicate": .integer(Int64(duplicate)),
            "handlers": .integer(Int64(keepAliveRuns)),
            "late": .integer(Int64(late)),
            "counted_late": .integer(Int64(lateBySupervisor)),
            "drift": [
                "memory_kib_per_hour": .rounded(memoryDrift, digits: 1),
                "descriptors": .rounded(descriptorDrift),
                "latency_p50": .rounded(latencyDrift),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        [
            ReportTable(
                title: "Soak", columns: ["", ""],
                rows: [
                    ["cycles", "\(cycles.count)"], ["calls", "\(calls)"], ["lost", "\(lost)"],
                    ["duplicate", "\(duplicate)"], ["keep-alives", "\(keepAliveRuns)"],
                    ["late, also by the supervisor's count", "\(late), \(lateBySupervisor)"],
                    ["memory, KiB an hour", figure(memoryDrift)],
                    ["descriptors", descriptorDrift.map { figure($0) } ?? "–"],
                    ["p50, last third over first", latencyDrift.map { figure($0, digits: 2) } ?? "–"],
                ],
                note: "the first fifth of the time is left out of drifts; short runs say little about hours")
        ]
    }

    var verdicts: [Verdict] {
        [
            Verdict("lost", Double(lost), atMost: 0), Verdict("duplicate", Double(duplicate), atMost: 0),
            // Without handlers, none can have been late.
            Verdict(
                "late", keepAliveRuns == 0 && late == 0 ? nil : Double(max(late, lateBySupervisor)),
                atMost: 0),
            Verdict("descriptors that did not come back", descriptorDrift, atMost: 0),
        ]
    }

    var charts: [Chart] {
        func chart(_ title: String, _ vertical: String, _ value: (Cycle) -> Double) -> Chart {
            Chart(
                title: title, horizontal: "seconds", vertical: vertical, style: .lines,
                series: [.init(name: "", points: cycles.map { .init(x: $0.seconds, y: value($0)) })])
        }
        return [
            chart("Memory", "MiB") { Double($0.figures.writtenBytes) / 1_048_576 },
            chart("Descriptors", "open") { Double($0.figures.openDescriptors) },
            chart("Latency, p50", "µs", \.latency),
            chart("CPU", "ticks so far") { Double($0.figures.processorTicks) },
        ]
    }
}
