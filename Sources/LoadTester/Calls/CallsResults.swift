import Nightbell
import Presentation

/// The results of a `calls` run.
struct CallsResults {
    let settings: CallsRun.Settings
    private(set) var answerDelay = Latencies()
    private(set) var placed = 0
    private(set) var answered = 0
    /// Without an answer.
    private(set) var failed = 0
    /// Answered, and then failed, or unfinished when the time was up.
    private(set) var notEnded = 0
    private(set) var mostConcurrent = 0
    /// Whether a call in progress was answered.
    private var calls: [String: Call] = [:]

    private struct Call {
        /// When the call was to be placed, even if it was placed later.
        var due: ContinuousClock.Instant
        var isAnswered = false
    }

    /// The share of the time that each phone was asleep.
    private(set) var asleepShares: [Double] = []
    private(set) var wakes = 0
    var machine = Machine()

    init(settings: CallsRun.Settings) {
        self.settings = settings
    }

    // Every call is one of these: answered, failed, lost, or not placed.

    /// Neither answered nor failed.
    var lost: Int { placed - answered - failed }
    /// Calls that were not due, or could not be placed, before the time was up.
    var notPlaced: Int { settings.calls - placed }
    var areAllOver: Bool { notPlaced == 0 && calls.isEmpty }

    mutating func notePlaced(_ callID: String, due: ContinuousClock.Instant) {
        placed += 1
        calls[callID] = Call(due: due)
        mostConcurrent = max(mostConcurrent, calls.count)
    }

    mutating func noteAnswered(_ callID: String, at now: ContinuousClock.Instant) {
        guard let call = calls[callID], !call.isAnswered else { return }
        calls[callID]?.isAnswered = true
        answered += 1
        answerDelay.record(nanoseconds: (now - call.due).wholeNanoseconds)
    }

    mutating func noteEnded(_ callID: String) {
        // A caller that hears of an end without an answer has not been answered.
        guard let call = calls.removeValue(forKey: callID), !call.isAnswered else { return }
        failed += 1
    }

    mutating func noteFailed(_ callID: String) {
        guard let call = calls.removeValue(forKey: callID) else { return }
        if call.isAnswered { notEnded += 1 } else { failed += 1 }
    }

    /// Ends the run: the time is up, or all calls are over.
    mutating func finishCalls() {
        notEnded += calls.values.count(where: \.isAnswered)
        calls = [:]
    }

    mutating func noteSleep(_ before: [ClientInfo], _ after: [ClientInfo], _ time: Duration) {
        var asleepBefore: [String: ClientInfo] = [:]
        for client in before { asleepBefore[client.identifier] = client }
        for client in after {
            guard let earlier = asleepBefore[client.identifier] else { continue }
            let asleep = client.counters.asleep - earlier.counters.asleep
            asleepShares.append(min(1, asleep.inSeconds / time.inSeconds))
            wakes += Int(client.counters["wakes"]) - Int(earlier.counters["wakes"])
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
            "not_placed": .integer(Int64(notPlaced)),
            "not_ended": .integer(Int64(notEnded)),
            "concurrent": .integer(Int64(mostConcurrent)),
            "wakes": .integer(Int64(wakes)),
            "answer_us": figures.json,
            "asleep_share": [
                "min": .rounded(asleepShares.first), "median": .rounded(median(asleepShares)),
                "max": .rounded(asleepShares.last),
            ],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        func milliseconds(_ microseconds: Double) -> String { figure(microseconds / 1_000, digits: 2) }
        let percent = [asleepShares.first ?? .nan, median(asleepShares), asleepShares.last ?? .nan]
        return [
            ReportTable(
                title: "Calls", columns: ["", ""],
                rows: [
                    ["answered", "\(answered)"], ["failed", "\(failed)"], ["lost", "\(lost)"],
                    ["not placed", "\(notPlaced)"], ["answered, but not ended", "\(notEnded)"],
                    ["at once, at most", "\(mostConcurrent)"],
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
        [
            Verdict("failed", Double(failed), atMost: 0), Verdict("lost", Double(lost), atMost: 0),
            Verdict("not placed", Double(notPlaced), atMost: 0),
            Verdict("answered, but not ended", Double(notEnded), atMost: 0),
        ]
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
