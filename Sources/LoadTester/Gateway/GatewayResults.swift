import Presentation

/// The results of a `gateway` run.
struct GatewayResults {
    /// The load on the gateway while clients are called one at a time.
    enum Kind: String, CaseIterable {
        case quiet
        /// As many busy processes as an attack takes, none of them at the gateway: how long a wake waits for a
        /// processor is the kernel's decision.
        case busy
        /// Connections that follow events and read nothing.
        case slowBrowsers = "slow_browsers"
        /// Requests of strangers at push endpoints.
        case garbage
    }

    struct Phase: CallPhase {
        let kind: Kind
        var latencies = Latencies()
        var lost = 0

        var line: String {
            let times = [latencies.percentile(50), latencies.percentile(99), latencies.maximum]
            return "\(kind.rawValue): p50, p99, max \(times.map { figure($0) }.joined(separator: ", ")) µs"
        }

        var json: JSON {
            [
                "name": .string(kind.rawValue), "wakes": .integer(Int64(latencies.count)),
                "p50_us": .rounded(latencies.percentile(50)), "p99_us": .rounded(latencies.percentile(99)),
                "max_us": .rounded(latencies.maximum), "lost": .integer(Int64(lost)),
            ]
        }
    }

    let settings: GatewayRun.Settings
    /// Of each load of the page, in milliseconds: to the first paint, and to the frame with the clients.
    var painted: [Double] = []
    var shown: [Double] = []
    /// From each call to the frame that shows its wake, in milliseconds.
    var visible: [Double] = []
    /// While the processor time was measured.
    var wakesPerSecond = Double.nan
    /// Of one processor.
    var gatewayShare = Double.nan
    var supervisorShare = Double.nan
    var phases = Kind.allCases.map { Phase(kind: $0) }
    /// Requests of strangers, in the last round.
    var sentPerSecond = Double.nan
    var answersPerSecond = Double.nan
    var machine = Machine()

    init(settings: GatewayRun.Settings) { self.settings = settings }

    var lost: Int { phases.reduce(0) { $0 + $1.lost } }

    private func p99(_ kind: Kind) -> Double {
        phases.first { $0.kind == kind }?.latencies.percentile(99) ?? .nan
    }
}

extension GatewayResults: Reportable {
    var command: String { "gateway" }

    var json: JSON {
        func times(_ values: [Double]) -> JSON {
            ["p50": .rounded(median(values)), "max": .rounded(values.max())]
        }
        return [
            "command": "gateway",
            "suspend": .string(settings.suspension.rawValue),
            "clients": .integer(Int64(settings.clients + settings.sleepers)),
            "seconds": .integer(Int64(settings.seconds)),
            "seed": .unsigned(settings.seed),
            "first_paint_ms": times(painted),
            "clients_shown_ms": times(shown),
            "wake_shown_ms": times(visible),
            "wakes_per_second": .rounded(wakesPerSecond, digits: 0),
            "gateway_cpu_share": .rounded(gatewayShare),
            "supervisor_cpu_share": .rounded(supervisorShare),
            "phases": .array(phases.map(\.json)),
            "garbage_sent_per_second": .rounded(sentPerSecond, digits: 0),
            "garbage_answered_per_second": .rounded(answersPerSecond, digits: 0),
            "ratio": [
                "slow_browsers_p99": .rounded(p99(.slowBrowsers) / p99(.quiet)),
                "garbage_p99": .rounded(p99(.garbage) / p99(.quiet)),
                "garbage_p99_over_busy": .rounded(p99(.garbage) / p99(.busy)),
            ],
            "lost": .integer(Int64(lost)),
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var page = ReportTable(
            title: "The dashboard of \(settings.clients + settings.sleepers) clients",
            columns: ["", "p50", "max"])
        page.rows = [
            ("first paint, ms", painted), ("clients shown, ms", shown), ("a wake shown, ms", visible),
        ]
        .map { [$0.0, figure(median($0.1)), figure($0.1.max() ?? .nan)] }
        page.note = settings.browser.map { "in \($0)" } ?? "there is no browser"
        var work = ReportTable(
            title: "Processor time at \(figure(wakesPerSecond, digits: 0)) wakes a second, %",
            columns: ["", ""])
        work.rows = [
            ["the gateway", figure(100 * gatewayShare)],
            ["the supervisor's worker", figure(100 * supervisorShare)],
        ]
        work.note = "one dashboard is open"
        var attacks = ReportTable(
            title: "Wakes of clients that are called one at a time, µs",
            columns: ["", "wakes", "p50", "p99", "max", "lost"])
        attacks.rows = phases.map { phase in
            [
                phase.kind.rawValue, "\(phase.latencies.count)", figure(phase.latencies.percentile(50)),
                figure(phase.latencies.percentile(99)), figure(phase.latencies.maximum), "\(phase.lost)",
            ]
        }
        attacks.note =
            "garbage: \(figure(sentPerSecond, digits: 0)) requests a second were sent, "
            + "\(figure(answersPerSecond, digits: 0)) were answered"
        return [page, work, attacks]
    }

    var verdicts: [Verdict] {
        [
            Verdict("clients shown, ms, the slowest", shown.max(), atMost: 1_000),
            Verdict("a wake shown, ms, the slowest", visible.max(), atMost: 1_000),
            Verdict("the gateway's share of a processor", gatewayShare, atMost: 0.05),
            Verdict(
                "wake p99 beside slow browsers, over quiet", p99(.slowBrowsers) / p99(.quiet), atMost: 1.5),
            Verdict("wake p99 beside garbage, over quiet", p99(.garbage) / p99(.quiet), atMost: 1.5),
            Verdict("garbage sent a second", sentPerSecond, atLeast: Double(settings.garbage) * 0.95),
            Verdict("lost", Double(lost), atMost: 0),
        ]
    }

    var charts: [Chart] {
        [
            .percentiles(
                title: "Wakes beside an attacked gateway",
                phases.filter { $0.latencies.count > 0 }.map { ($0.kind.rawValue, $0.latencies.curve) })
        ]
    }
}
