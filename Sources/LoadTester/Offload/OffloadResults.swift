import Nightbell
import Presentation

/// The results of an `offload` run.
struct OffloadResults {
    /// Nightbell, or the floor.
    struct Side {
        var processorNanoseconds: Int64 = 0
        /// Pings that the far end received from this side.
        private(set) var heard = 0
        /// Pings that this side should have sent, but did not.
        private(set) var missing = 0
        /// Pings that the far end sent, and those that were answered.
        var sent = 0
        var answered = 0
        /// Anything that the far end did not expect.
        var irregular = 0
        var latencies = Latencies()

        /// Pings sent or answered, in both directions.
        var pings: Int { heard + answered }
        /// nil: there were none.
        var microsecondsPerPing: Double? {
            pings == 0 ? nil : Double(processorNanoseconds) / 1_000 / Double(pings)
        }

        /// Records the pings received on each socket while `intervals` intervals went by. Each interval must
        /// have a ping, wherever in it the count began, and an early ping on one socket does not make up for
        /// a missing one on another.
        /// - Parameter later: the same counts a while later, because a late ping is not a missing one.
        mutating func noteHeard(_ counts: [Int], later: [Int], intervals: Int) {
            heard = counts.reduce(0, +)
            missing = later.reduce(0) { $0 + max(0, intervals - $1) }
        }

        var json: JSON {
            [
                "cpu_ms": .rounded(Double(processorNanoseconds) / 1e6), "pings_heard": .integer(Int64(heard)),
                "pings_missing": .integer(Int64(missing)),
                "pings_sent": .integer(Int64(sent)), "pings_answered": .integer(Int64(answered)),
                "irregular": .integer(Int64(irregular)),
                "cpu_us_per_ping": .rounded(microsecondsPerPing),
                "pong_us": LatencyFigures(rounds: [latencies]).json,
            ]
        }
    }

    let settings: OffloadRun.Settings
    var ours = Side()
    var floor = Side()
    var clientWakes = 0
    var bytes = 0
    var machine = Machine()

    init(settings: OffloadRun.Settings) {
        self.settings = settings
    }

    /// CPU for each ping over the floor's: the supervisor sends pings up to a fifth of an interval early, so
    /// it sends more of them. nil when pings were not sent or not answered, because the rest would look
    /// cheaper than it was.
    var ratio: Double? {
        guard ours.missing == 0, ours.answered > 0, ours.answered >= ours.sent, floor.heard > 0,
            floor.answered > 0, let our = ours.microsecondsPerPing, let their = floor.microsecondsPerPing,
            their > 0
        else { return nil }
        return our / their
    }
}

extension OffloadResults: Reportable {
    var command: String { "offload" }

    var json: JSON {
        [
            "command": "offload",
            "suspend": .string(settings.suspension.rawValue),
            "sockets": .integer(Int64(settings.sockets)),
            "clients": .integer(Int64(settings.clients)),
            "interval_s": .integer(Int64(settings.intervalSeconds)),
            "seconds": .integer(Int64(settings.seconds)),
            "ratio": ["cpu": .rounded(ratio)],
            "client_wakes": .integer(Int64(clientWakes)),
            "nightbell": ours.json,
            "floor": floor.json,
            "memory_bytes": .integer(Int64(bytes)),
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        func row(_ name: String, _ value: (Side) -> Double?, digits: Int = 0) -> [String] {
            [name] + [ours, floor].map { value($0).map { figure($0, digits: digits) } ?? "–" }
        }
        var table = ReportTable(
            title: "\(settings.sockets) sockets, a ping each way every \(settings.intervalSeconds) s, "
                + "for \(settings.seconds) s", columns: ["", "Nightbell", "floor"])
        table.rows = [
            row("pings sent for sleepers", { Double($0.heard) }),
            row("not sent, but due", { Double($0.missing) }),
            row("pings of peers", { Double($0.sent) }),
            row("answered", { Double($0.answered) }),
            row("CPU, ms", { Double($0.processorNanoseconds) / 1e6 }),
            row("CPU, µs a ping", \.microsecondsPerPing, digits: 2),
            row("pong lateness p50, µs", { $0.latencies.percentile(50) }, digits: 1),
            row("pong lateness p99, µs", { $0.latencies.percentile(99) }, digits: 1),
            row("pong lateness max, µs", { $0.latencies.maximum }, digits: 1),
        ]
        table.note =
            "the floor is an epoll loop in C with the same windows, which sends as much at a time as they allow"
        return [table]
    }

    var verdicts: [Verdict] {
        [
            Verdict("CPU a ping over the floor's", ratio, atMost: 1.5),
            Verdict("wakes of clients", Double(clientWakes), atMost: 0),
            Verdict("pings not sent", Double(ours.missing), atMost: 0),
            Verdict(
                "unanswered pings of peers", ours.sent == 0 ? nil : Double(ours.sent - ours.answered),
                atMost: 0),
            Verdict("irregular bytes", Double(ours.irregular), atMost: 0),
        ]
    }

    var charts: [Chart] { [] }
}
