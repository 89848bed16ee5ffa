import Nightbell
import Presentation

/// What a `calls` run showed.
struct CallsResults {
    let settings: CallsRun.Settings
    var answerDelay = Latencies()
    var answered = 0
    var failed = 0
    /// Neither answered nor failed when the time was up.
    var lost = 0
    var mostConcurrent = 0
    /// Of each phone, the share of the time that it was asleep.
    private(set) var asleepShares: [Double] = []
    private(set) var wakes = 0
    var machine = Machine()

    init(settings: CallsRun.Settings) {
        self.settings = settings
    }

    mutating func noteSleep(_ before: [ClientInfo], _ after: [ClientInfo], _ time: Duration) {
        var asleepBefore: [String: ClientInfo] = [:]
        for client in before { asleepBefore[client.identifier] = client }
        for client in after {
            guard let earlier = asleepBefore[client.identifier] else { continue }
            let asleep = client.counters.asleep - earlier.counters.asleep
            asleepShares.append(min(1, asleep.inSeconds / time.inSeconds))
            wakes += Int(client.counters.wakes) - Int(earlier.counters.wakes)
        }
        asleepShares.sort()
    }
}

extension CallsResults: Reportable {
    var command: String { "calls" }

    private var figures: LatencyFigures { LatencyFigures(rounds: [answerDelay]) }

    var json: JSON {
        [
            "command": "calls",
            "suspend": .string(settings.suspension.rawValue),
            "transport": .string(settings.transport.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "calls": .integer(Int64(settings.calls)),
            "rate": .number(settings.rate),
            "seed": .unsigned(settings.seed),
            "answered": .integer(Int64(answered)),
            "failed": .integer(Int64(failed)),
            "lost": .integer(Int64(lost)),
            "concurrent": .integer(Int64(mostConcurrent)),
            "wakes": .integer(Int64(wakes)),
            "answer_us": figures.json,
            "asleep_share": [
                "min": .rounded(asleepShares.first ?? 0), "median": .rounded(median(asleepShares)),
                "max": .rounded(asleepShares.last ?? 0),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        func milliseconds(_ microseconds: Double) -> String { figure(microseconds / 1_000, digits: 2) }
        let percent =
            asleepShares.isEmpty
            ? [0, 0, 0] : [asleepShares[0], median(asleepShares), asleepShares.last ?? 0]
        return [
            ReportTable(
                title: "Calls", columns: ["", ""],
                rows: [
                    ["placed", "\(settings.calls)"], ["answered", "\(answered)"], ["failed", "\(failed)"],
                    ["lost", "\(lost)"], ["at once, at most", "\(mostConcurrent)"],
                    [
                        "asleep, %: least, median, most",
                        percent.map { figure($0 * 100) }.joined(separator: ", "),
                    ],
                ]),
            ReportTable(
                title: "From the moment the call was due → answered", columns: ["", "ms"],
                rows: [
                    ["p50", milliseconds(figures.p50)], ["p90", milliseconds(figures.p90)],
                    ["p99", milliseconds(figures.p99)], ["max", milliseconds(figures.max)],
                ],
                note: "through a SIP proxy in the load tester: INVITE, wake, 180, 200"),
        ]
    }

    var verdicts: [Verdict] {
        [Verdict("failed", Double(failed), atMost: 0), Verdict("lost", Double(lost), atMost: 0)]
    }

    var charts: [Chart] {
        [
            .percentiles(title: "Answer delay by percentile", [("Nightbell", answerDelay.curve)]),
            Chart(
                title: "Time asleep", horizontal: "phones, from the one that slept least",
                vertical: "% of the time",
                style: .lines,
                series: [
                    .init(
                        name: "",
                        points: asleepShares.enumerated().map {
                            .init(x: Double($0.offset + 1), y: $0.element * 100)
                        })
                ]),
        ]
    }
}
