import CChat
import Presentation

/// The results of a `chat` run.
struct ChatResults {
    struct Population {
        var connections: Int
        var bytes: Int
        var slab: Int
    }

    /// With hibernation, or without.
    struct Side {
        var populations: [Population] = []
        /// Delays of each round: to a receiver from a sender that is awake, and of the sender's first message
        /// after a pause.
        var calls: [Latencies] = []
        var firstCalls: [Latencies] = []
        var messagesPerSecond: [Double] = []
        var deliveriesPerSecond: [Double] = []
        var processorPerDelivery: [Double] = []
        var lost = 0

        mutating func note(_ throughput: cchat_throughput, processorNanoseconds: Int64) {
            let seconds = Double(throughput.nanoseconds) / 1e9
            messagesPerSecond.append(Double(throughput.messages) / seconds)
            deliveriesPerSecond.append(Double(throughput.deliveries) / seconds)
            processorPerDelivery.append(
                throughput.deliveries > 0
                    ? Double(processorNanoseconds) / 1_000 / Double(throughput.deliveries) : .nan)
            lost += Int(throughput.lost)
        }

        mutating func note(_ samples: UnsafeBufferPointer<cchat_sample>, isFirst: Bool) {
            var latencies = Latencies()
            for sample in samples {
                if sample.latency < 0 { lost += 1 } else { latencies.record(nanoseconds: sample.latency) }
            }
            if isFirst { firstCalls.append(latencies) } else { calls.append(latencies) }
        }

        /// The growth from the last population but one, which is the first ninth, to the last; nil without
        /// growth.
        private func perConnection(_ value: (Population) -> Int) -> Double? {
            guard let last = populations.last, let first = populations.dropLast().last else { return nil }
            let growth = value(last) - value(first)
            return growth >= 0 ? Double(growth) / Double(last.connections - first.connections) : nil
        }

        var bytesPerConnection: Double? { perConnection(\.bytes) }
        var slabPerConnection: Double? { perConnection(\.slab) }
        var figures: LatencyFigures { LatencyFigures(rounds: calls) }
        var firstFigures: LatencyFigures { LatencyFigures(rounds: firstCalls) }

        var curve: [(share: Double, microseconds: Double)] {
            var all = Latencies()
            for round in calls { all.add(round) }
            return all.curve
        }

        var json: JSON {
            [
                "bytes_per_connection": .rounded(bytesPerConnection, digits: 1),
                "slab_bytes_per_connection": .rounded(slabPerConnection, digits: 1),
                "base_mib": .rounded(populations.first.map { Double($0.bytes) / 1_048_576 }),
                "memory_mib": .rounded(populations.last.map { Double($0.bytes) / 1_048_576 }),
                "latency_us": figures.json,
                "first_latency_us": firstFigures.json,
                "messages_per_s": .rounded(median(messagesPerSecond), digits: 1),
                "deliveries_per_s": .rounded(median(deliveriesPerSecond), digits: 1),
                "cpu_us_per_delivery": .rounded(median(processorPerDelivery)),
                "lost": .integer(Int64(lost)),
            ]
        }
    }

    /// While connections were hibernated at random.
    struct Random {
        var deliveries = cchat_deliveries()
        var connections = 0
        var hibernations = 0
        var wakes = 0
        /// Connections that the server could not bring back.
        var connectionsLost = 0
        var seconds = 0.0

        var json: JSON {
            [
                "connections": .integer(Int64(connections)), "messages": .unsigned(deliveries.said),
                "deliveries": .unsigned(deliveries.heard), "lost": .unsigned(deliveries.lost),
                "reordered": .unsigned(deliveries.reordered), "duplicate": .unsigned(deliveries.duplicate),
                "irregular": .unsigned(deliveries.irregular), "hibernations": .integer(Int64(hibernations)),
                "wakes": .integer(Int64(wakes)), "connections_lost": .integer(Int64(connectionsLost)),
                "seconds": .rounded(seconds, digits: 1),
            ]
        }
    }

    let settings: ChatRun.Settings
    /// With hibernation, and without.
    var sides = [Side(), Side()]
    var random = Random()
    /// Callers' connections that were brought back by their first messages, and by other messages, which
    /// should be none.
    var callersWoken = 0
    var wakesInCalls = 0
    var began: Int64 = 0
    var machine = Machine()

    init(settings: ChatRun.Settings) {
        self.settings = settings
    }

    private var hibernated: Side { sides[0] }
    private var resident: Side { sides[1] }

    var lost: Int { hibernated.lost + resident.lost + Int(random.deliveries.lost) }

    /// nil when a message was lost: the remaining ones would look faster than they were.
    private func delayRatio(_ percentile: Double, _ rounds: (Side) -> [Latencies]) -> Double? {
        guard hibernated.lost == 0, resident.lost == 0 else { return nil }
        return medianRatio(
            rounds(hibernated).map { $0.percentile(percentile) },
            over: rounds(resident).map { $0.percentile(percentile) })
    }

    func delayRatio(_ percentile: Double) -> Double? { delayRatio(percentile, \.calls) }
    var firstRatio: Double? { delayRatio(50, \.firstCalls) }
    var throughputRatio: Double {
        medianRatio(hibernated.messagesPerSecond, over: resident.messagesPerSecond)
    }
    var processorRatio: Double {
        medianRatio(hibernated.processorPerDelivery, over: resident.processorPerDelivery)
    }

    func line(_ number: Int) -> String {
        func p50(_ side: Side) -> String { figure(side.calls.last?.percentile(50) ?? 0) }
        func rate(_ side: Side) -> String { figure(side.messagesPerSecond.last ?? 0, digits: 0) }
        return "round \(number): p50 \(p50(hibernated)) µs, resident \(p50(resident)); "
            + "\(rate(hibernated)) messages/s, \(rate(resident)) without hibernation"
    }
}

extension ChatResults: Reportable {
    var command: String { "chat" }

    var json: JSON {
        [
            "command": "chat",
            "connections": .integer(Int64(settings.connections)),
            "active": .integer(Int64(settings.active)),
            "rounds": .integer(Int64(settings.rounds)),
            "calls": .integer(Int64(settings.calls * settings.rounds)),
            "messages": .integer(Int64(settings.messages)),
            "hibernate_after_ms": .integer(settings.idle.wholeNanoseconds / 1_000_000),
            "seed": .unsigned(settings.seed),
            "lost": .integer(Int64(lost)),
            "reordered": .unsigned(random.deliveries.reordered),
            "hibernated": hibernated.json,
            "resident": resident.json,
            "ratio": [
                "delay_p50": .rounded(delayRatio(50)), "delay_p99": .rounded(delayRatio(99)),
                "first_delay_p50": .rounded(firstRatio), "throughput": .rounded(throughputRatio),
                "cpu": .rounded(processorRatio),
            ],
            "callers_woken": .integer(Int64(callersWoken)),
            "wakes_in_calls": .integer(Int64(wakesInCalls)),
            "random": random.json,
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] { [memoryTable, delayTable, throughputTable, randomTable] }

    private var memoryTable: ReportTable {
        let kibibyte = 1_024.0
        return ReportTable(
            title: "Memory of the server", columns: ["", "hibernated", "resident"],
            rows: [
                row("bytes a connection", \.bytesPerConnection, digits: 0),
                row("of the kernel, both ends", \.slabPerConnection, digits: 0),
                row("in all, MiB") { $0.populations.last.map { Double($0.bytes) / kibibyte / kibibyte } },
            ],
            note: "what grows from \(settings.firstPopulation) to \(settings.quiet) connections")
    }

    private var delayTable: ReportTable {
        func ratio(_ value: Double?) -> String { value.map { figure($0, digits: 2) } ?? "–" }
        let (a, b) = (hibernated.figures, resident.figures)
        let (c, d) = (hibernated.firstFigures, resident.firstFigures)
        let rows: [(String, Double, Double, String)] = [
            ("p50", a.p50, b.p50, ratio(delayRatio(50))), ("p90", a.p90, b.p90, ratio(delayRatio(90))),
            ("p99", a.p99, b.p99, ratio(delayRatio(99))), ("p99.9", a.p999, b.p999, ""),
            ("max", a.max, b.max, ""), ("sender asleep, too: p50", c.p50, d.p50, ratio(firstRatio)),
            ("p99", c.p99, d.p99, ""),
        ]
        return ReportTable(
            title: "Sender → receiver", columns: ["", "hibernated, µs", "resident, µs", "ratio"],
            rows: rows.map { [$0.0, figure($0.1), figure($0.2), $0.3] },
            note: "\(settings.rounds) interleaved rounds of \(settings.calls) messages each way")
    }

    private var throughputTable: ReportTable {
        ReportTable(
            title: "\(settings.active) active connections",
            columns: ["", "with hibernation", "without"],
            rows: [
                row("messages/s", { median($0.messagesPerSecond) }, digits: 0),
                row("deliveries/s", { median($0.deliveriesPerSecond) }, digits: 0),
                row("CPU a delivery, µs", { median($0.processorPerDelivery) }, digits: 2),
            ],
            note:
                "rooms of \(ChatRun.RoomSize.throughput); medians of \(settings.rounds) rounds, each with two servers of its own"
        )
    }

    private var randomTable: ReportTable {
        let deliveries = random.deliveries
        let rows: [(String, String)] = [
            ("messages", "\(deliveries.said)"), ("deliveries", "\(deliveries.heard)"),
            ("lost", "\(deliveries.lost)"),
            ("reordered", "\(deliveries.reordered)"), ("duplicate", "\(deliveries.duplicate)"),
            ("irregular", "\(deliveries.irregular)"), ("hibernations", "\(random.hibernations)"),
            ("wakes", "\(random.wakes)"), ("connections lost", "\(random.connectionsLost)"),
            ("seconds", figure(random.seconds)),
        ]
        return ReportTable(
            title: "Hibernated at random", columns: ["", ""], rows: rows.map { [$0.0, $0.1] },
            note:
                "\(random.connections) connections in rooms of \(ChatRun.RoomSize.soak), each hibernated when idle "
                + "for \(ChatRun.Soak.idle.wholeNanoseconds / 1_000_000) ms; the server has "
                + "\(ChatRun.Soak.threads) event loops")
    }

    private func row(_ name: String, _ value: (Side) -> Double?, digits: Int = 1) -> [String] {
        [name] + [hibernated, resident].map { value($0).map { figure($0, digits: digits) } ?? "–" }
    }

    var verdicts: [Verdict] {
        [
            Verdict("bytes a hibernated connection", hibernated.bytesPerConnection, atMost: 280),
            Verdict("delay p50 over a resident receiver's", delayRatio(50), atMost: 2),
            Verdict("the same of a hibernated sender's first message", firstRatio, atMost: 3),
            Verdict("throughput over that without hibernation", throughputRatio, atLeast: 0.95),
            Verdict("lost", Double(lost), atMost: 0),
            Verdict("reordered", Double(random.deliveries.reordered), atMost: 0),
            Verdict(
                "duplicate or irregular", Double(random.deliveries.duplicate + random.deliveries.irregular),
                atMost: 0),
            Verdict("connections lost", Double(random.connectionsLost), atMost: 0),
        ]
    }

    var charts: [Chart] {
        [
            .percentiles(
                title: "Delay by percentile",
                [("hibernated", hibernated.curve), ("resident", resident.curve)]),
            Chart(
                title: "Memory against connections", horizontal: "connections", vertical: "MiB",
                style: .lines,
                series: [("hibernated", hibernated), ("resident", resident)].map { name, side in
                    Chart.Series(
                        name: name,
                        points: side.populations.map {
                            .init(x: Double($0.connections), y: Double($0.bytes) / 1_048_576)
                        })
                }),
        ]
    }
}
