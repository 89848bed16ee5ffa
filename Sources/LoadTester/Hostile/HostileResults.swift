import Presentation

/// The results of a `hostile` run.
struct HostileResults {
    struct Phase: CallPhase {
        let kind: HostileKind
        var latencies = Latencies()
        var lost = 0
        /// Keep-alive handlers that ran late.
        var late = 0
        /// Lines that the supervisor logged meanwhile.
        var logLines = 0

        var line: String {
            let times = [latencies.percentile(50), latencies.percentile(99), latencies.maximum]
            let text = times.map { figure($0) }.joined(separator: ", ")
            return "\(kind.rawValue): p50, p99, max \(text) µs; \(late) late, \(lost) lost"
        }

        /// Its p99 over that of another phase; nil: there is none, or a wake was lost.
        func ratio(to other: Phase?) -> Double? {
            guard let other, other.lost == 0, lost == 0 else { return nil }
            return latencies.percentile(99) / other.latencies.percentile(99)
        }

        func json(_ results: HostileResults) -> JSON {
            [
                "name": .string(kind.rawValue),
                "wakes": .integer(Int64(latencies.count)),
                "victim_p50_us": .rounded(latencies.percentile(50)),
                "victim_p99_us": .rounded(latencies.percentile(99)),
                "victim_max_us": .rounded(latencies.maximum),
                "p99_ratio": .rounded(ratio(to: results.busy)),
                "p99_ratio_baseline": .rounded(ratio(to: results.baseline)),
                "late": .integer(Int64(late)),
                "lost": .integer(Int64(lost)),
                "log_lines": .integer(Int64(logLines)),
            ]
        }
    }

    let settings: HostileRun.Settings
    var phases: [Phase] = []
    var machine = Machine()

    init(settings: HostileRun.Settings) {
        self.settings = settings
    }

    var attacks: [Phase] { phases.filter(\.kind.isAttack) }
    fileprivate var baseline: Phase? { phases.first { $0.kind == .none } }
    fileprivate var busy: Phase? { phases.first { $0.kind == .busy } }
    /// Not a number if none was measured, or a wake was lost.
    var worst: Double {
        guard lost == 0 else { return .nan }
        return attacks.map(\.latencies.maximum).max() ?? .nan
    }
    var worst99: Double {
        guard lost == 0 else { return .nan }
        return attacks.map { $0.latencies.percentile(99) }.max() ?? .nan
    }
    var late: Int { attacks.reduce(0) { $0 + $1.late } }
    var lost: Int { attacks.reduce(0) { $0 + $1.lost } }
    /// The worst p99 over that with as many busy processors, but an idle supervisor.
    private var ratio: Double? { worst { $0.ratio(to: busy) } }
    /// The worst p99 over that without attack, where a processor more is idle.
    private var ratioBaseline: Double? { worst { $0.ratio(to: baseline) } }

    /// nil: one of them is unknown.
    private func worst(_ figure: (Phase) -> Double?) -> Double? {
        let figures = attacks.compactMap(figure)
        return figures.count == attacks.count ? figures.max() : nil
    }
}

extension HostileResults: Reportable {
    var command: String { "hostile" }

    var json: JSON {
        [
            "command": "hostile",
            "suspend": .string(settings.suspension.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "seconds": .integer(Int64(settings.seconds)),
            "seed": .unsigned(settings.seed),
            "baseline": baseline?.json(self) ?? .null,
            "busy": busy?.json(self) ?? .null,
            "kinds": .array(attacks.map { $0.json(self) }),
            "worst_p99_us": .rounded(worst99),
            "worst_max_us": .rounded(worst),
            "p99_ratio": .rounded(ratio),
            "p99_ratio_baseline": .rounded(ratioBaseline),
            "late": .integer(Int64(late)),
            "lost": .integer(Int64(lost)),
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var table = ReportTable(
            title: "A victim's wakes, µs",
            columns: [
                "", "wakes", "p50", "p99", "max", "p99: × busy", "× baseline", "late", "lost", "log lines",
            ])
        table.rows = phases.map { phase in
            [
                phase.kind.rawValue, "\(phase.latencies.count)", figure(phase.latencies.percentile(50)),
                figure(phase.latencies.percentile(99)), figure(phase.latencies.maximum),
                figure(phase.ratio(to: busy) ?? .nan), figure(phase.ratio(to: baseline) ?? .nan),
                "\(phase.late)", "\(phase.lost)", "\(phase.logLines)",
            ]
        }
        table.note =
            "\(settings.clients) clients, half of them with a keep-alive; \(settings.seconds) s of each kind"
        return [table]
    }

    var verdicts: [Verdict] {
        [
            Verdict("worst p99, ms", worst99 / 1_000, atMost: 50),
            Verdict("worst p99, times that on a machine as busy", ratio, atMost: 5),
            Verdict("worst wake, ms", worst / 1_000, atMost: 50),
            Verdict("late", Double(late), atMost: 0),
            Verdict("lost", Double(lost), atMost: 0),
        ]
    }

    var charts: [Chart] {
        [
            .percentiles(
                title: "A victim's wakes",
                phases.filter { $0.latencies.count > 0 }.map { ($0.kind.rawValue, $0.latencies.curve) })
        ]
    }
}
