import Presentation

/// The results of a `torture` run.
struct TortureResults {
    struct Side {
        var calls = 0
        /// Calls without an answer in time, timers that never ended, and deaths of children that were not
        /// noticed.
        var lost = 0
        var timers = 0
        /// Timers that ended more than 50 ms late.
        var late = 0
        var latest: Double = 0
        /// Reads and writes that returned with a part, as they would after SIGSTOP and SIGCONT.
        var cut = 0
        /// Errors, wrong statuses and early timers that the programs have met.
        var noticed = 0
        var latencies = Latencies()

        var json: JSON {
            [
                "calls": .integer(Int64(calls)),
                "lost": .integer(Int64(lost)),
                "timers": .integer(Int64(timers)),
                "late": .integer(Int64(late)),
                "latest_ms": .rounded(latest),
                "noticed": .integer(Int64(noticed)),
                "cut_short": .integer(Int64(cut)),
                "answer_p50_us": .rounded(latencies.percentile(50)),
                "answer_p99_us": .rounded(latencies.percentile(99)),
            ]
        }
    }

    let settings: TortureRun.Settings
    var ours = Side()
    var free = Side()
    var cycles = 0
    /// Calls of programs that were frozen, and of such as were about to be.
    var calledAsleep = 0
    var calledFreezing = 0
    var kills = 0
    /// Programs that were still frozen after their supervisor, or `nightbell run`, had ended.
    var leftFrozen = 0
    /// Descriptions of the first faults.
    var faults: [String] = []
    var seconds: Double = 0
    var machine = Machine()

    init(settings: TortureRun.Settings) { self.settings = settings }

    var line: String {
        "\(cycles) sleeps, \(ours.calls) calls, \(ours.timers) timers; \(ours.lost) lost, \(ours.late) late "
            + "(\(free.late) without Nightbell), \(ours.noticed) noticed"
    }
}

extension TortureResults: Reportable {
    var command: String { "torture" }

    var json: JSON {
        [
            "command": "torture",
            "programs": .integer(Int64(settings.programs)),
            "seed": .unsigned(settings.seed),
            "cycles": .integer(Int64(cycles)),
            "kills": .integer(Int64(kills)),
            "called_asleep": .integer(Int64(calledAsleep)),
            "called_freezing": .integer(Int64(calledFreezing)),
            "lost": .integer(Int64(ours.lost)),
            "late": .integer(Int64(ours.late)),
            "left_frozen": .integer(Int64(leftFrozen)),
            "noticed": .integer(Int64(ours.noticed)),
            "unmodified": ours.json,
            "free": free.json,
            "faults": .array(faults.map { .string($0) }),
            "seconds": .rounded(seconds),
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var table = ReportTable(title: "Faults", columns: ["", "under Nightbell", "without"])
        table.rows = [
            ["sleeps", "\(cycles)", ""],
            ["calls", "\(ours.calls)", "\(free.calls)"],
            ["… asleep", "\(calledAsleep)", ""],
            ["… while they froze", "\(calledFreezing)", ""],
            ["lost", "\(ours.lost)", "\(free.lost)"],
            ["timers", "\(ours.timers)", "\(free.timers)"],
            ["… more than 50 ms late", "\(ours.late)", "\(free.late)"],
            ["the latest, ms", figure(ours.latest), figure(free.latest)],
            ["left frozen", "\(leftFrozen)", ""],
            ["noticed", "\(ours.noticed)", "\(free.noticed)"],
            ["reads and writes cut short", "\(ours.cut)", "\(free.cut)"],
        ]
        table.note =
            "\(settings.programs) programs, \(figure(seconds)) s; the worker was killed \(kills) times"
        guard !faults.isEmpty else { return [table] }
        return [table, ReportTable(title: "The first faults", columns: [""], rows: faults.map { [$0] })]
    }

    var verdicts: [Verdict] {
        [
            Verdict("lost", Double(ours.lost), atMost: 0),
            Verdict("late", Double(ours.late), atMost: 0),
            Verdict("left frozen", Double(leftFrozen), atMost: 0),
            Verdict("noticed", Double(ours.noticed), atMost: 0),
        ]
    }

    var charts: [Chart] {
        [
            .percentiles(
                title: "From a call to its answer",
                [("under Nightbell", ours.latencies.curve), ("without", free.latencies.curve)])
        ]
    }
}
