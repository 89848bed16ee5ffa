import CAllocations
import Glibc
import Workloads

/// Checks the core's speed on any machine: counts, and ratios of two times taken in one run.
@main
enum CoreChecks {
    static func main() {
        let checks =
            [
                Check("allocations per wake, 1 client", allocationsPerWake(clients: 1), limit: 0),
                Check("allocations per wake, 1,000 clients", allocationsPerWake(clients: 1_000), limit: 0),
                // The heap is less than twice as deep; the rest is the cache, which holds a thousand and not
                // a million.
                Check("a timer of 100,000 over one of 1,000", growth(Timers.init, 1_000, 100_000), limit: 4),
                Check(
                    "a timer of 1,000,000 over one of 1,000", growth(Timers.init, 1_000, 1_000_000), limit: 12
                ),
                // A wake does not depend on the others; only the caches do (3.8, 4.1 on a busy machine).
                Check(
                    "a wake among 10,000 over one among 10", growth({ Sleepers(count: $0) }, 10, 10_000),
                    limit: 5),
                // Nor on what others observe (1.1).
                Check(
                    "a wake among 16,000 observations",
                    growth({ Sleepers(count: 1_000, observations: $0) }, 0, 16), limit: 3),
            ]
            + Judging.samples.map { sample in
                Check("allocations per \(sample.name)", allocations(sample.make), limit: 0)
            }
        for check in checks { print(check.line) }
        if !checks.allSatisfy(\.holds) { exit(1) }
    }

    /// From the traffic to the next sleep, in the core, once all tables have their size.
    private static func allocationsPerWake(clients: Int) -> Double {
        let sleepers = Sleepers(count: clients)
        let cycles = 10_000
        for _ in 0..<cycles { sleepers.cycle() }
        let before = nightbell_allocations()
        for _ in 0..<cycles { sleepers.cycle() }
        let allocations = nightbell_allocations() - before
        guard sleepers.isSound(after: 2 * cycles) else { return .infinity }
        return Double(allocations) / Double(cycles)
    }

    /// Inspecting one piece of noise, its answer included.
    private static func allocations(_ make: () throws -> Judging) -> Double {
        guard let inspecting = try? make() else { return .infinity }
        let cycles = 10_000
        for _ in 0..<cycles { inspecting.cycle() }
        let before = nightbell_allocations()
        for _ in 0..<cycles { inspecting.cycle() }
        let allocations = nightbell_allocations() - before
        return inspecting.isSound(after: 2 * cycles) ? Double(allocations) / Double(cycles) : .infinity
    }

    /// How many times as long one cycle takes among many as among few: by the best of several rounds in
    /// turns, so that other load affects both or neither.
    private static func growth<W: Workload>(_ make: (Int) -> W, _ few: Int, _ many: Int) -> Double {
        let small = make(few)
        let large = make(many)
        var best = (small: Duration.seconds(1_000), large: Duration.seconds(1_000))
        for _ in 0..<15 {
            best.small = min(best.small, time(small))
            best.large = min(best.large, time(large))
        }
        return best.large / best.small
    }

    /// Processor time, because other processes may compete for the processor.
    private static func time(_ workload: some Workload) -> Duration {
        let start = processorTime
        for _ in 0..<20_000 { workload.cycle() }
        return processorTime - start
    }

    private static var processorTime: Duration {
        var now = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now)
        return .seconds(now.tv_sec) + .nanoseconds(now.tv_nsec)
    }
}

/// A figure and its limit.
struct Check {
    let name: String
    let value: Double
    let limit: Double

    init(_ name: String, _ value: Double, limit: Double) {
        self.name = name
        self.value = value
        self.limit = limit
    }

    var holds: Bool { value <= limit }

    var line: String {
        let padding = String(repeating: " ", count: max(0, 40 - name.count))
        let rounded = (value * 100).rounded() / 100
        return "\(holds ? "ok    " : "FAILED")  \(name)\(padding)\(rounded), at most \(limit)"
    }
}
