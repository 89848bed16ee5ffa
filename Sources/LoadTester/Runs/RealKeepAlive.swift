import CFloors
import Glibc
import Nightbell

/// Real clients with short keep-alive timeouts, in real time.
struct RealKeepAlive {
    struct Settings {
        var suspension: SuspensionMethod
        var clients: Int
        var seconds: Int
        var shortest: Duration
        var longest: Duration
        var seed: UInt64
    }

    /// Runs closer together than this were one instant.
    private static let instantWidth: Int64 = 50_000_000

    let settings: Settings
    let bench: Workbench

    func run() throws -> VirtualKeepAlive.Outcome {
        let supervisor = try PrivateSupervisor(
            bench,
            .init(
                suspension: settings.suspension, linger: .milliseconds(20),
                keepAliveMinimum: settings.shortest))
        let area = try SharedArea(slots: settings.clients)
        let callers = try Callers(.unix, slots: settings.clients, directory: bench.directory)
        let range = (
            Int(settings.shortest.wholeNanoseconds / 1_000_000),
            Int(settings.longest.wholeNanoseconds / 1_000_000)
        )
        let population = try SupervisedPopulation(
            bench, supervisor, method: settings.suspension, range: 0..<settings.clients, area: area,
            callers: callers, options: SleeperOptions(keepAlive: range))
        let runsBefore = population.range.map { area[$0].runs }
        let start = monotonicNow()
        for second in 1...settings.seconds {
            try pause(nanoseconds: start + Int64(second) * 1_000_000_000 - monotonicNow())
            try bench.requireAllRunning()
            bench.progress.show("second \(second) of \(settings.seconds)")
        }
        let end = monotonicNow()
        var outcome = VirtualKeepAlive.Outcome()
        for time in area.runTimes where time >= start && time <= end {
            outcome.runs += 1
            if time - (outcome.instants.last ?? 0) > Self.instantWidth { outcome.instants.append(time) }
        }
        for (index, before) in zip(population.range, runsBefore) where area[index].runs > before {
            let slot = area[index].pointer.pointee
            outcome.late += slot.longest_gap > slot.timeout ? 1 : 0
            outcome.leastLeft = min(outcome.leastLeft, Double(slot.timeout - slot.longest_gap) / 1e9)
            outcome.earliest = max(outcome.earliest, 1 - Double(slot.shortest_gap) / Double(slot.timeout))
            let runs = Int((end - start) / slot.timeout)
            outcome.uncoalescedRuns += runs
            outcome.uncoalescedInstants += runs
        }
        outcome.lateByCore = Int(try supervisor.status().counters.keepAliveLate)
        return outcome
    }
}
