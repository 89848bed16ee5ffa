import CFloors
import Glibc
import Nightbell
import Presentation
import Simulation

/// Everything at once for a long time: single calls, storms, keep-alives, sockets coming and going. What grows?
///
/// Half of the clients are called, and the others have keep-alives: one that had both would read what was sent to it at the
/// next run of its handler, also when nothing had woken it for that.
struct SoakRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        var minutes: Double
        var seed: UInt64
    }

    /// In each cycle.
    private static let calls = 40
    static let passingSockets = 500

    let settings: Settings
    let bench: Workbench

    func run() throws -> SoakResults {
        let supervisor = try PrivateSupervisor(
            bench,
            .init(suspension: settings.suspension, linger: .milliseconds(5), keepAliveMinimum: .seconds(3)))
        let area = try SharedArea(slots: settings.clients)
        let callers = try Callers(settings.transport, slots: settings.clients, bench)
        let population = try SupervisedPopulation(
            bench, supervisor, method: settings.suspension, range: 0..<settings.clients, area: area,
            callers: callers,
            options: SleeperOptions(keepAlive: (3_000, 9_000), keepsHalfAlive: true, seed: settings.seed))
        let called = Self.called(settings.clients)
        let adoption = AdoptRun(
            settings: .init(transport: .unix, sockets: Self.passingSockets, batch: 1, rounds: 1), bench: bench
        )
        var random = SplitMix64(seed: settings.seed)
        var results = SoakResults(settings: settings)
        let start = monotonicNow()
        let end = start + Int64(settings.minutes * 6e10)
        while monotonicNow() < end {
            try bench.requireAllRunning()
            var latencies = Latencies()
            for _ in 0..<Self.calls {
                guard let index = called.randomElement(using: &random) else { break }
                try pause(nanoseconds: Int64.random(in: 200_000..<2_000_000, using: &random))
                results.lost += try call([index], population, &latencies)
            }
            var storm = Latencies()
            results.lost += try call(called.shuffled(using: &random), population, &storm)
            try adoption.handOverOnce(to: supervisor)
            let seconds = Double(monotonicNow() - start) / 1e9
            results.cycles.append(
                .init(
                    seconds: seconds, figures: try ProcessFigures(supervisor.worker),
                    latency: latencies.percentile(50)))
            bench.progress.show("\(figure(seconds / 60)) of \(figure(settings.minutes)) minutes")
        }
        try population.requireAllAlive()
        results.calls = population.range.reduce(0) { $0 + Int(callers.sent(to: $1)) }
        let slots = population.range.map { area[$0].pointer.pointee }
        // Here an empty wake is none too many: a sleeper that lingers reads for itself.
        results.duplicate = slots.reduce(0) { $0 + Int($1.duplicates) }
        results.keepAliveRuns = slots.reduce(0) { $0 + Int($1.runs) }
        results.late = RealKeepAlive.lateRuns(of: slots, at: monotonicNow())
        results.lateBySupervisor = Int(try supervisor.status().counters.keepAliveLate)
        results.machine.finish()
        return results
    }

    /// Every other one, the first among them.
    static func called(_ clients: Int) -> [Int] { Array(stride(from: 0, to: clients, by: 2)) }

    /// Returns how many were lost. Sleepers need not be asleep: another call may have woken them.
    private func call(
        _ indices: [Int], _ population: SupervisedPopulation, _ latencies: inout Latencies
    ) throws -> Int {
        let area = population.area
        let before = indices.map { area[$0].received }
        try population.callers.call(indices)
        var lost = 0
        for (place, index) in indices.enumerated() {
            do {
                try wait(for: "a packet", atMost: WakeRun.patience, firstPause: 500_000) {
                    area[index].received > before[place]
                }
                latencies.record(nanoseconds: area[index].latency)
            } catch LoadError.timedOut {
                try population.requireAlive(index)
                lost += 1
            }
        }
        return lost
    }
}
