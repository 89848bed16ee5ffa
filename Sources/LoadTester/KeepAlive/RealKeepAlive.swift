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

    /// Runs closer together than this count as one instant.
    private static let instantWidth: Int64 = 50_000_000

    let settings: Settings
    let runDirectory: RunDirectory

    func run() throws -> VirtualKeepAlive.Outcome {
        let supervisor = try PrivateSupervisor(
            runDirectory,
            .init(
                suspension: settings.suspension, linger: .milliseconds(20),
                keepAliveMinimum: settings.shortest))
        let sharedMemory = try SharedMemory(slots: settings.clients)
        let callers = try Callers(.unix, slots: settings.clients, runDirectory)
        let range = (
            Int(settings.shortest.wholeNanoseconds / 1_000_000),
            Int(settings.longest.wholeNanoseconds / 1_000_000)
        )
        let population = try SupervisedPopulation(
            runDirectory, supervisor, method: settings.suspension, range: 0..<settings.clients,
            sharedMemory: sharedMemory,
            callers: callers, options: SleeperOptions(keepAlive: range, seed: settings.seed))
        let start = monotonicNow()
        for second in 1...settings.seconds {
            try pause(nanoseconds: max(0, start + Int64(second) * 1_000_000_000 - monotonicNow()))
            try runDirectory.requireAllRunning()
            try population.requireAllAlive()
            runDirectory.progress.show("second \(second) of \(settings.seconds)")
        }
        var outcome = Self.outcome(
            of: population.range.map { sharedMemory[$0].pointer.pointee }, runTimes: sharedMemory.runTimes,
            from: start, to: monotonicNow())
        outcome.lateByCore = Int(try supervisor.status().counters["keep_alive_late"])
        return outcome
    }

    /// The runs that the clients recorded, compared with a timer for each client, set when the client set its
    /// timeout.
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

    /// Runs that came too late, and runs that should have come by now.
    static func lateRuns(of slots: [cfloors_slot], at end: Int64) -> Int {
        slots.reduce(0) { late, slot in
            // A run that never came records nothing itself.
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

/// The time that a handler may take from being due to having recorded its run, in nanoseconds: an observer
/// from outside sees the run that much later.
let keepAliveSlack: Int64 = 50_000_000
