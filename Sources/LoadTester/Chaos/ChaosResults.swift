import Presentation

/// The results of a `chaos` run.
struct ChaosResults {
    let settings: ChaosRun.Settings
    /// The sockets that were made: the same number for each client.
    var sockets: Int { settings.sockets / settings.clients * settings.clients }
    var kills = 0
    var stops = 0
    var upgrades = 0
    var crashes = 0
    /// Sleepers that the supervisor ended under memory pressure, and processes that it launched in their
    /// place.
    var endedUnderPressure = 0
    var returns: UInt64 = 0
    var bytes: UInt64 = 0
    var wrongBytes = 0
    var connectionsLost = 0
    var wakes: UInt64 = 0
    /// Calls to isolated clients: see `IsolatedCalls`.
    var isolatedCalls: UInt64 = 0
    /// Isolated calls that were not read while nothing happened to the worker, and other sockets with unread
    /// bytes at the end.
    var wakesLost = 0
    var wakesRepeated: UInt64 = 0
    var keepAliveRuns: UInt64 = 0
    /// Late runs as the clients recorded them; they compete for a processor with everything else.
    var handlersLate: UInt64 = 0
    /// Late runs as the supervisor counted them.
    var countedLate = 0
    var stuckFrozen = 0
    /// From the kill to the first answer of another worker.
    var recovery = Latencies()
    /// Memory of the worker and of the keeper at the end, each with its share of the pages that they share.
    var memory = 0
    var keeperMemory = 0
    var machine = Machine()

    init(settings: ChaosRun.Settings) {
        self.settings = settings
    }
}

extension ChaosResults: Reportable {
    var command: String { "chaos" }

    var json: JSON {
        [
            "command": "chaos",
            "suspend": .string(settings.suspension.rawValue),
            "transport": .string(settings.transport.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "sockets": .integer(Int64(sockets)),
            "seed": .unsigned(settings.seed),
            "kills": .integer(Int64(kills)),
            "stops": .integer(Int64(stops)),
            "upgrades": .integer(Int64(upgrades)),
            "client_crashes": .integer(Int64(crashes)),
            "clients_ended_under_pressure": .integer(Int64(endedUnderPressure)),
            "clients_launched_again": .unsigned(returns),
            "bytes": .unsigned(bytes),
            "wrong_bytes": .integer(Int64(wrongBytes)),
            "connections_lost": .integer(Int64(connectionsLost)),
            "wakes": .unsigned(wakes),
            "lone_calls": .unsigned(isolatedCalls),
            "wakes_lost": .integer(Int64(wakesLost)),
            "wakes_repeated": .unsigned(wakesRepeated),
            "handlers": .unsigned(keepAliveRuns),
            "handlers_late": .unsigned(handlersLate),
            "handlers_counted_late": .integer(Int64(countedLate)),
            "recovery_ms": [
                "p50": .rounded(recovery.percentile(50) / 1_000),
                "p99": .rounded(recovery.percentile(99) / 1_000),
                "max": .rounded(recovery.maximum / 1_000),
            ],
            "stuck_frozen": .integer(Int64(stuckFrozen)),
            "memory_bytes": ["worker": .integer(Int64(memory)), "keeper": .integer(Int64(keeperMemory))],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        [
            ReportTable(
                title: "Chaos", columns: ["", ""],
                rows: [
                    ["workers killed", "\(kills)"], ["workers stopped", "\(stops)"],
                    ["upgrades", "\(upgrades)"], ["clients crashed", "\(crashes)"],
                    ["clients ended under pressure", "\(endedUnderPressure)"],
                    ["clients launched again", "\(returns)"],
                    ["bytes", "\(bytes)"], ["wrong bytes", "\(wrongBytes)"],
                    ["connections lost", "\(connectionsLost)"], ["wakes", "\(wakes)"],
                    ["isolated calls", "\(isolatedCalls)"],
                    ["wakes lost", "\(wakesLost)"], ["wakes repeated", "\(wakesRepeated)"],
                    ["keep-alives", "\(keepAliveRuns)"], ["keep-alives late", "\(handlersLate)"],
                    ["recovery p50, ms", figure(recovery.percentile(50) / 1_000)],
                    ["recovery p99, ms", figure(recovery.percentile(99) / 1_000)],
                    ["left frozen", "\(stuckFrozen)"],
                    ["worker, MiB", figure(Double(memory) / 1_048_576)],
                    ["keeper, MiB", figure(Double(keeperMemory) / 1_048_576)],
                ],
                note: "recovery is from the kill to the first answer of another worker")
        ]
    }

    var verdicts: [Verdict] {
        [
            Verdict("connections lost", Double(connectionsLost), atMost: 0),
            Verdict("wakes lost", isolatedCalls > 0 ? Double(wakesLost) : nil, atMost: 0),
            Verdict("wrong bytes", Double(wrongBytes), atMost: 0),
            Verdict(
                "keep-alives late",
                handlersLate > 0 || keepAliveRuns > 0 ? Double(handlersLate) : nil, atMost: 0),
            Verdict("left frozen", Double(stuckFrozen), atMost: 0),
            Verdict(
                "recovery p99, ms", recovery.count == 0 ? nil : recovery.percentile(99) / 1_000,
                atMost: 50),
        ]
    }

    var charts: [Chart] {
        [
            Chart(
                title: "Recovery", horizontal: "share of kills", vertical: "ms", style: .lines,
                series: [
                    .init(
                        name: "",
                        points: recovery.curve.map { .init(x: $0.share, y: $0.microseconds / 1_000) })
                ])
        ]
    }
}
