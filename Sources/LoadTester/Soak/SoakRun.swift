import CFloors
import Glibc
import Nightbell
import Presentation
import Simulation

/// A mix of everything for a long time: single calls, storms, keep-alives, sockets coming and going. Shows
/// what grows.
///
/// Half of the clients are called, and the other half have keep-alives. A client with both would read its
/// packets at the next run of its handler, even if the packets had not woken it.
struct SoakRun {
    struct Settings {
        var suspension: SuspensionMethod
        var transport: Transport
        var clients: Int
        var minutes: Double
        var seed: UInt64
    }

    /// Single calls in each cycle.
    private static let calls = 40
    static let passingSockets = 500

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> SoakResults {
        let supervisor = try PrivateSupervisor(
            runDirectory,
            .init(suspension: settings.suspension, linger: .milliseconds(5), keepAliveMinimum: .seconds(3)))
        let sharedMemory = try SharedMemory(slots: settings.clients)
        let callers = try Callers(settings.transport, slots: settings.clients, runDirectory)
        let population = try SupervisedPopulation(
            runDirectory, supervisor, method: settings.suspension, range: 0..<settings.clients,
            sharedMemory: sharedMemory,
            callers: callers,
            options: SleeperOptions(keepAlive: (3_000, 9_000), keepsHalfAlive: true, seed: settings.seed))
        let called = Self.called(settings.clients)
        let adoption = AdoptRun(
            settings: .init(transport: .unix, sockets: Self.passingSockets, batch: 1, rounds: 1),
            runDirectory: runDirectory
        )
        var random = SplitMix64(seed: settings.seed)
        var results = SoakResults(settings: settings)
        let start = monotonicNow()
        let end = start + Int64(settings.minutes * 6e10)
        while monotonicNow() < end {
            try runDirectory.requireAllRunning()
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
            runDirectory.progress.show("\(figure(seconds / 60)) of \(figure(settings.minutes)) minutes")
        }
        try population.requireAllAlive()
        results.calls = population.range.reduce(0) { $0 + Int(callers.sent(to: $1)) }
        let slots = population.range.map { sharedMemory[$0].pointer.pointee }
        // An empty wake is no fault here: a sleeper that lingers reads for itself.
        results.duplicate = slots.reduce(0) { $0 + Int($1.duplicates) }
        results.keepAliveRuns = slots.reduce(0) { $0 + Int($1.runs) }
        results.late = RealKeepAlive.lateRuns(of: slots, at: monotonicNow())
        results.lateBySupervisor = Int(try supervisor.status().counters["keep_alive_late"])
        results.machine.finish()
        return results
    }

    /// The sleepers that are called: every other one, beginning with the first.
    static func called(_ clients: Int) -> [Int] { Array(stride(from: 0, to: clients, by: 2)) }

    /// Returns the number of lost calls. Sleepers need not be asleep: another call may have woken them.
    private func call(
        _ indices: [Int], _ population: SupervisedPopulation, _ latencies: inout Latencies
    ) throws -> Int {
        let sharedMemory = population.sharedMemory
        let before = indices.map { sharedMemory[$0].received }
        try population.callers.call(indices)
        var lost = 0
        for (place, index) in indices.enumerated() {
            do {
                try wait(for: "a packet", atMost: WakeRun.patience, firstPause: 500_000) {
                    sharedMemory[index].received > before[place]
                }
                latencies.record(nanoseconds: sharedMemory[index].latency)
            } catch LoadError.timedOut {
                try population.requireAlive(index)
                lost += 1
            }
        }
        return lost
    }
}
