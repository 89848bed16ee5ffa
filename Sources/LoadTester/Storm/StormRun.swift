import CFloors
import Glibc
import Nightbell
import Presentation
import Simulation

/// Calls all sleepers at once.
struct StormRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        var rounds: Int
        var seed: UInt64
        /// Every other sleeper runs under this uid.
        var secondUser: uid_t?
    }

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> StormResults {
        let supervisor = try PrivateSupervisor(
            runDirectory, .init(suspension: settings.suspension, linger: .milliseconds(500)))
        let clients = settings.clients
        let sharedMemory = try SharedMemory(slots: 2 * clients)
        let callers = try Callers(settings.transport, slots: 2 * clients, runDirectory)
        runDirectory.progress.say("starting \(clients) sleepers, and as many for the floor")
        let floor = try FloorPopulation(
            runDirectory, method: settings.suspension, range: clients..<2 * clients,
            sharedMemory: sharedMemory, callers: callers)
        let ours = try SupervisedPopulation(
            runDirectory, supervisor, method: settings.suspension, range: 0..<clients,
            sharedMemory: sharedMemory, callers: callers,
            options: SleeperOptions(secondUser: settings.secondUser))
        runDirectory.progress.say("all asleep by \(try supervisor.status().suspension)")

        var results = StormResults(settings: settings)
        var random = SplitMix64(seed: settings.seed)
        for round in 0...settings.rounds {
            for isOurs in round % 2 == 0 ? [true, false] : [false, true] {
                let population: any Population = isOurs ? ours : floor
                try population.waitUntilAllAsleep()
                // At a moment that does not depend on the last sleeper's suspension, which the waker may
                // still be finishing.
                try pause(nanoseconds: Int64.random(in: 50_000_000...150_000_000, using: &random))
                let storm = try callAll(population, &random)
                // The first storm touches pages that were never touched; it does not count.
                guard round > 0 else { continue }
                if isOurs { results.ours.append(storm) } else { results.floor.append(storm) }
            }
            guard round > 0, let ours = results.ours.last, let floor = results.floor.last else { continue }
            runDirectory.progress.say(
                "round \(round): \(figure(ours.wakesPerSecond, digits: 0)) wakes/s, "
                    + "floor \(figure(floor.wakesPerSecond, digits: 0))")
        }
        results.duplicate = Int(ours.duplicates)
        results.duplicateByFloor = Int(floor.duplicates)
        results.machine.finish()
        return results
    }

    private func callAll(_ population: any Population, _ random: inout SplitMix64) throws
        -> StormResults.Storm
    {
        let order = population.range.shuffled(using: &random)
        let sharedMemory = population.sharedMemory
        let expected = order.map { sharedMemory[$0].received + 1 }
        let start = monotonicNow()
        try population.callers.call(order)
        var missing = order.indices[...]
        do {
            try wait(for: "all to be woken", atMost: .seconds(20), firstPause: 5_000_000) {
                missing = missing.drop { sharedMemory[order[$0]].received >= expected[$0] }
                if let first = missing.first { try population.requireAlive(order[first]) }
                return missing.isEmpty
            }
        } catch LoadError.timedOut {
            // A missing sleeper counts as lost only while its process is alive.
            try population.requireAllAlive()
        }
        var storm = StormResults.Storm()
        for (place, index) in order.enumerated() {
            guard sharedMemory[index].received >= expected[place] else {
                storm.lost += 1
                continue
            }
            let time = sharedMemory[index].pointer.pointee.received_at - start
            storm.times.append(time)
            // Fairness counts from each sleeper's own packet, because the packets are sent one after the
            // other.
            let isSecond = settings.secondUser != nil && index % 2 == 1
            storm.latencies[isSecond ? 1 : 0].record(nanoseconds: sharedMemory[index].latency)
        }
        return storm
    }
}

struct StormResults {
    struct Storm {
        /// From the first packet to each handler's first read, in nanoseconds.
        var times: [Int64] = []
        /// From packet to read, of the sleepers of each uid.
        var latencies = [Latencies(), Latencies()]
        var lost = 0

        var lastHandler: Double { times.max().map { Double($0) / 1e9 } ?? .nan }
        var wakesPerSecond: Double { times.isEmpty ? 0 : Double(times.count) / lastHandler }

        /// How much longer the sleepers of one uid waited than those of the other; 1 is fair.
        var unfairness: Double? {
            let medians = latencies.filter { $0.count > 0 }.map { $0.percentile(50) }.sorted()
            guard medians.count == 2, medians[0] > 0 else { return nil }
            return medians[1] / medians[0]
        }
    }

    let settings: StormRun.Settings
    var ours: [Storm] = []
    var floor: [Storm] = []
    var duplicate = 0
    var duplicateByFloor = 0
    var machine = Machine()

    init(settings: StormRun.Settings) {
        self.settings = settings
    }

    var lost: Int { ours.reduce(0) { $0 + $1.lost } }
    var lostByFloor: Int { floor.reduce(0) { $0 + $1.lost } }
    /// nil when a wake was lost: the last handler would be another one.
    var ratio: Double? {
        guard lost == 0, lostByFloor == 0 else { return nil }
        return medianRatio(ours.map(\.wakesPerSecond), over: floor.map(\.wakesPerSecond))
    }
    private var unfairness: Double? {
        let values = ours.compactMap(\.unfairness)
        return values.isEmpty ? nil : median(values)
    }
}

extension StormResults: Reportable {
    var command: String { "storm" }

    var json: JSON {
        [
            "command": "storm",
            "suspend": .string(settings.suspension.rawValue),
            "transport": .string(settings.transport.rawValue),
            "clients": .integer(Int64(settings.clients)),
            "rounds": .integer(Int64(settings.rounds)),
            "seed": .unsigned(settings.seed),
            "lost": .integer(Int64(lost)),
            "duplicate": .integer(Int64(duplicate)),
            "wakes_per_s": .rounded(median(ours.map(\.wakesPerSecond)), digits: 0),
            "last_handler_ms": .rounded(median(ours.map(\.lastHandler)) * 1_000),
            "unfairness": unfairness.map { .rounded($0) } ?? .null,
            "floor": [
                "lost": .integer(Int64(lostByFloor)),
                "duplicate": .integer(Int64(duplicateByFloor)),
                "wakes_per_s": .rounded(median(floor.map(\.wakesPerSecond)), digits: 0),
                "last_handler_ms": .rounded(median(floor.map(\.lastHandler)) * 1_000),
            ],
            "ratio": ["wakes_per_s": .rounded(ratio)],
            "machine": machine.json,
        ]
    }

    var tables: [ReportTable] {
        var table = ReportTable(title: "Storm", columns: ["", "Nightbell", "floor", "ratio"])
        table.rows = [
            [
                "wakes/s", figure(median(ours.map(\.wakesPerSecond)), digits: 0),
                figure(median(floor.map(\.wakesPerSecond)), digits: 0),
                ratio.map { figure($0, digits: 2) } ?? "–",
            ],
            [
                "last handler, ms", figure(median(ours.map(\.lastHandler)) * 1_000),
                figure(median(floor.map(\.lastHandler)) * 1_000),
            ],
            ["lost", "\(lost)", "\(lostByFloor)"],
            ["duplicate", "\(duplicate)", "\(duplicateByFloor)"],
            ["one uid over the other", unfairness.map { figure($0, digits: 2) } ?? "–"],
        ]
        table.note = "\(settings.clients) sleepers, medians of \(settings.rounds) interleaved rounds"
        return [table]
    }

    var verdicts: [Verdict] {
        [
            Verdict("wakes/s over floor", ratio, atLeast: 0.7), Verdict("lost", Double(lost), atMost: 0),
            Verdict("duplicate", Double(duplicate), atMost: 0),
        ]
    }

    var charts: [Chart] {
        func series(_ name: String, _ storm: Storm?) -> Chart.Series {
            let times = (storm?.times ?? []).sorted()
            let step = max(1, times.count / 400)
            let callPlan = Array(stride(from: 0, to: times.count - 1, by: step)) + times.indices.suffix(1)
            return .init(
                name: name, points: callPlan.map { .init(x: Double(times[$0]) / 1e6, y: Double($0 + 1)) })
        }
        return [
            Chart(
                title: "Wakes over time, in the last round", horizontal: "ms since the first packet",
                vertical: "sleepers awake",
                style: .lines, series: [series("Nightbell", ours.last), series("floor", floor.last)])
        ]
    }
}
