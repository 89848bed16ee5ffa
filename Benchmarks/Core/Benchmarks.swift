import Benchmark
import Workloads

/// Times, for reading and for comparing two versions on one machine. `core-checks` holds limits for any
/// machine.
let benchmarks: @Sendable () -> Void = {
    Benchmark.defaultConfiguration = .init(
        metrics: [.wallClock, .throughput], scalingFactor: .kilo, maxDuration: .seconds(2))

    for count in [1, 1_000] {
        Benchmark("Suspend and wake, \(count) clients") { benchmark, sleepers in
            for _ in benchmark.scaledIterations { sleepers.cycle() }
        } setup: {
            Sleepers(count: count)
        }
    }

    Benchmark("Suspend and wake, 1000 clients, 16 observations each") { benchmark, sleepers in
        for _ in benchmark.scaledIterations { sleepers.cycle() }
    } setup: {
        Sleepers(count: 1_000, observations: 16)
    }

    Benchmark("A movement among 16000 regions", configuration: .init(scalingFactor: .one)) {
        benchmark, sleepers in
        for _ in benchmark.scaledIterations { sleepers.move() }
    } setup: {
        Sleepers(count: 1_000, observations: 16)
    }

    for sample in Judging.samples {
        Benchmark("Judge: \(sample.name)") { benchmark, inspecting in
            for _ in benchmark.scaledIterations { inspecting.cycle() }
        } setup: {
            try sample.make()
        }
    }

    for count in [1_000, 100_000, 1_000_000] {
        Benchmark("Keep-alive expires and is set again, \(count) timers") { benchmark, timers in
            for _ in benchmark.scaledIterations { timers.cycle() }
        } setup: {
            Timers(count: count)
        }
    }
}
