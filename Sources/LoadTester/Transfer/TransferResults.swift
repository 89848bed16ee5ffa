import Presentation

/// The results of a `transfer` run.
struct TransferResults {
    let settings: TransferRun.Settings
    /// Bytes of all files.
    var payload = 0
    /// Bytes that the server has sent, to Nightbell, in all rounds.
    var fetched = 0
    private(set) var kills = 0
    /// By what was killed.
    private(set) var killed: [String: Int] = [:]
    /// Wakes and launches of clients because of their transfers; nil: no client slept.
    var wakes: Int?
    var lost = 0
    var corrupt = 0
    var failed = 0
    /// Results that were reported again, because the process was killed before it knew of the release.
    var repeated = 0
    struct Round {
        let nanoseconds: Int64
        /// curl's; nil: it was not run.
        let floorNanoseconds: Int64?
    }

    var rounds: [Round] = []
    var machine = Machine()

    init(settings: TransferRun.Settings) { self.settings = settings }

    mutating func note(kill victim: String) {
        kills += 1
        killed[victim, default: 0] += 1
    }

    /// Of all rounds.
    var payloadOfRounds: Int { payload * rounds.count }
    var bytesRatio: Double? {
        payloadOfRounds > 0 ? Double(fetched) / Double(payloadOfRounds) : nil
    }
    /// The medians of the rounds.
    var nanoseconds: Int64 { Self.median(rounds.map(\.nanoseconds)) ?? 0 }
    var floorNanoseconds: Int64? { Self.median(rounds.compactMap(\.floorNanoseconds)) }

    private static func median(_ times: [Int64]) -> Int64? {
        times.isEmpty ? nil : times.sorted()[times.count / 2]
    }

    /// Over curl's throughput.
    var throughputRatio: Double? {
        floorNanoseconds.map { Double($0) / Double(max(1, nanoseconds)) }
    }
    var bytesPerSecond: Double { Double(payload) * 1e9 / Double(max(1, nanoseconds)) }
}

extension TransferResults: Reportable {
    var command: String { "transfer" }

    var json: JSON {
        [
            "command": "transfer",
            "files": .integer(Int64(settings.files)),
            "sessions": .integer(Int64(settings.sessions)),
            "parallel": .integer(Int64(settings.parallel)),
            "kills": .integer(Int64(kills)),
            "killed": [
                "transfer_process": .integer(Int64(killed["transferProcess"] ?? 0)),
                "worker": .integer(Int64(killed["worker"] ?? 0)),
                "client": .integer(Int64(killed["client"] ?? 0)),
            ],
            "wakes": wakes.map { .integer(Int64($0)) } ?? .null,
            "payload_bytes": .integer(Int64(payloadOfRounds)),
            "fetched_bytes": .integer(Int64(fetched)),
            "lost": .integer(Int64(lost)),
            "corrupt": .integer(Int64(corrupt)),
            "failed": .integer(Int64(failed)),
            "repeated": .integer(Int64(repeated)),
            "seconds": .rounded(Double(nanoseconds) / 1e9),
            "bytes_per_second": .rounded(bytesPerSecond, digits: 0),
            "floor_seconds": .rounded(floorNanoseconds.map { Double($0) / 1e9 }),
            "rounds": .array(
                rounds.map { round in
                    [
                        "seconds": .rounded(Double(round.nanoseconds) / 1e9),
                        "floor_seconds": .rounded(round.floorNanoseconds.map { Double($0) / 1e9 }),
                    ]
                }),
            "ratio": ["bytes": .rounded(bytesRatio), "throughput": .rounded(throughputRatio)],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var table = ReportTable(
            title: "\(settings.files) files, \(settings.parallel) at the same time, \(kills) kills",
            columns: ["", "Nightbell", "curl"])
        let floor = floorNanoseconds.map { figure(Double($0) / 1e9, digits: 2) } ?? "–"
        table.rows = [
            ["seconds", figure(Double(nanoseconds) / 1e9, digits: 2), floor],
            ["MB/s", figure(bytesPerSecond / 1e6, digits: 1), "–"],
            ["bytes of the files", figure(Double(payloadOfRounds), digits: 0), "–"],
            ["bytes that the server sent", figure(Double(fetched), digits: 0), "–"],
            ["lost", figure(Double(lost), digits: 0), "–"],
            ["corrupt", figure(Double(corrupt), digits: 0), "–"],
        ]
        if let wakes {
            table.rows.append([
                "sessions of sleeping clients", figure(Double(settings.sessions), digits: 0), "–",
            ])
            table.rows.append(["wakes for them", figure(Double(wakes), digits: 0), "–"])
        }
        table.note = "the floor is curl --parallel with the same files; seconds are medians of the rounds"
        return [table]
    }

    var verdicts: [Verdict] {
        let verdicts = [
            Verdict("lost files", Double(lost), atMost: 0),
            Verdict("corrupt files", Double(corrupt), atMost: 0),
            Verdict("bytes fetched over those of the files", bytesRatio, atMost: 1.05),
        ]
        guard let wakes else {
            return verdicts + [
                Verdict("curl's time over ours, inverted", throughputRatio.map { 1 / $0 }, atMost: 1 / 0.9)
            ]
        }
        return verdicts + [
            Verdict(
                "wakes more or less than one for each session", Double(abs(wakes - settings.sessions)),
                atMost: 0)
        ]
    }

    var charts: [Chart] { [] }
}
