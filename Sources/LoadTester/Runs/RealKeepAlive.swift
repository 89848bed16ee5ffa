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
        let callers = try Callers(.unix, slots: settings.clients, bench)
        let range = (
            Int(settings.shortest.wholeNanoseconds / 1_000_000),
            Int(settings.longest.wholeNanoseconds / 1_000_000)
        )
        let population = try SupervisedPopulation(
            bench, supervisor, method: settings.suspension, range: 0..<settings.clients, area: area,
            callers: callers, options: SleeperOptions(keepAlive: range, seed: settings.seed))
        let start = monotonicNow()
        for second in 1...settings.seconds {
            try pause(nanoseconds: max(0, start + Int64(second) * 1_000_000_000 - monotonicNow()))
            try bench.requireAllRunning()
            try population.requireAllAlive()
            bench.progress.show("second \(second) of \(settings.seconds)")
        }
        var outcome = Self.outcome(
            of: population.range.map { area[$0].pointer.pointee }, runTimes: area.runTimes,
            from: start, to: monotonicNow())
        outcome.lateByCore = Int(try supervisor.status().counters.keepAliveLate)
        return outcome
    }

    /// What the clients have noted, against a timer for each that was set when the client set its timeout.
    static func outcome(
        of slots: [cfloors_slot], runTimes: [Int64], from start: Int64, to end: Int64
    ) -> VirtualKeepAlive.Outcome {
        var outcome = VirtualKeepAlive.Outcome()
        let runs = runTimes.filter { $0 >= start && $0 <= end }
        outcome.runs = runs.count
        outcome.instants = instants(runs)
        var expiries: [Int64] = []
        outcome.late = lateRuns(of: slots, at: end)
        for slot in slots {
            let first = max(1, (start - slot.began_at + slot.timeout - 1) / slot.timeout)
            expiries += stride(
                from: slot.began_at + first * slot.timeout, through: end, by: Int(slot.timeout))
            guard slot.runs > 0 else { continue }
            outcome.leastLeft = min(outcome.leastLeft, Double(slot.timeout - slot.longest_gap) / 1e9)
            outcome.earliest = max(outcome.earliest, 1 - Double(slot.shortest_gap) / Double(slot.timeout))
        }
        outcome.uncoalescedRuns = expiries.count
        outcome.uncoalescedInstants = instants(expiries.sorted()).count
        return outcome
    }

    /// What came too late, and what should have come by now.
    static func lateRuns(of slots: [cfloors_slot], at end: Int64) -> Int {
        slots.reduce(0) { late, slot in
            // One that never came says nothing itself.
            let isOverdue = slot.timeout > 0 && end - slot.ran_at > slot.timeout + keepAliveSlack
            return late + Int(slot.late_runs) + (isOverdue ? 1 : 0)
        }
    }

    /// The first of each group of times that are too close together to tell them apart.
    private static func instants(_ sorted: [Int64]) -> [Int64] {
        sorted.reduce(into: []) { instants, time in
            if let last = instants.last, time - last <= instantWidth { return }
            instants.append(time)
        }
    }
}

/// So long may a handler take from its being due to its having noted that it ran, in nanoseconds: who looks from
/// outside sees it that much later.
let keepAliveSlack: Int64 = 50_000_000
