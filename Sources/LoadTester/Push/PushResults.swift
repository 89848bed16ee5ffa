import Presentation

/// The results of a `push` run.
struct PushResults {
    let settings: PushRun.Settings
    var accepted = 0
    /// Answered with another status than 201.
    var refused = 0
    /// The gateway was killed before its answer: they may be stored, or not, and do not count as lost.
    var unanswered = 0
    var lost = 0
    /// Handled twice, with two numbers.
    var duplicate = 0
    /// Handled again with the same number, because something was killed before it was acknowledged.
    var repeated = 0
    /// Handled, and never sent.
    var foreign = 0
    var wakes = 0
    private(set) var kills = 0
    private(set) var killed: [String: Int] = [:]
    /// Of the phase with topics and the default hourly limit.
    var merging = PushMergingRun.Results()
    var latencies = Latencies()
    var nanoseconds: Int64 = 0
    var machine = Machine()

    init(settings: PushRun.Settings) { self.settings = settings }

    mutating func note(kill victim: String) {
        kills += 1
        killed[victim, default: 0] += 1
    }

    var wakesPerPush: Double? { accepted > 0 ? Double(wakes) / Double(accepted) : nil }
}

extension PushResults: Reportable {
    var command: String { "push" }

    var json: JSON {
        [
            "command": "push",
            "clients": .integer(Int64(settings.clients)),
            "pushes": .integer(Int64(settings.pushes)),
            "rate": .integer(Int64(settings.rate)),
            "kills": .integer(Int64(kills)),
            "killed": [
                "gateway": .integer(Int64(killed["gateway"] ?? 0)),
                "worker": .integer(Int64(killed["worker"] ?? 0)),
                "client": .integer(Int64(killed["client"] ?? 0)),
            ],
            "accepted": .integer(Int64(accepted)),
            "refused": .integer(Int64(refused)),
            "unanswered": .integer(Int64(unanswered)),
            "lost": .integer(Int64(lost)),
            "duplicate": .integer(Int64(duplicate)),
            "repeated": .integer(Int64(repeated)),
            "foreign": .integer(Int64(foreign)),
            "wakes": .integer(Int64(wakes)),
            "wakes_per_push": .rounded(wakesPerPush),
            "merging": [
                "pushes": .integer(Int64(merging.pushes)),
                "replaced": .integer(Int64(merging.replaced)),
                "delivered": .integer(Int64(merging.delivered)),
                "lost": .integer(Int64(merging.lost)),
                "wakes": .integer(Int64(merging.wakes)),
                "wakes_per_push": .rounded(merging.wakesPerPush),
            ],
            "latency_us": LatencyFigures(rounds: [latencies]).json,
            "seconds": .rounded(Double(nanoseconds) / 1e9),
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        let figures = LatencyFigures(rounds: [latencies])
        var table = ReportTable(
            title: "\(settings.pushes) messages for \(settings.clients) clients, \(kills) kills",
            columns: ["", ""])
        table.rows = [
            ["accepted", figure(Double(accepted), digits: 0)],
            ["lost", figure(Double(lost), digits: 0)],
            ["duplicate", figure(Double(duplicate), digits: 0)],
            ["repeated", figure(Double(repeated), digits: 0)],
            ["wakes per message", figure(wakesPerPush ?? .nan, digits: 3)],
            ["wakes per message, merged by topic", figure(merging.wakesPerPush ?? .nan, digits: 3)],
            ["from 201 to the handler, p50 (µs)", figure(figures.p50, digits: 0)],
            ["p99 (µs)", figure(figures.p99, digits: 0)],
        ]
        return [table]
    }

    var verdicts: [Verdict] {
        [
            Verdict("lost messages", Double(lost), atMost: 0),
            Verdict("lost last messages of topics", Double(merging.lost), atMost: 0),
            Verdict("duplicate messages", Double(duplicate), atMost: 0),
            Verdict("messages that nothing has sent", Double(foreign), atMost: 0),
        ]
    }

    var charts: [Chart] { [] }
}
