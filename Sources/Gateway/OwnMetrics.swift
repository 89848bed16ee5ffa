import CoreMetrics
import NIOConcurrencyHelpers

/// Keeps what is measured in this process by swift-metrics until the page of metrics shows it: counters, and
/// histograms of durations. The supervisor's figures are not among them: it keeps them itself.
final class OwnMetrics: MetricsFactory {
    /// A name and its labels, as they are shown.
    private struct Key: Hashable {
        let name: String
        let labels: [String]

        init(_ name: String, _ dimensions: [(String, String)]) {
            self.name = name
            labels = dimensions.flatMap { [$0.0, $0.1] }
        }

        var pairs: [(name: String, value: String)] {
            stride(from: 0, to: labels.count, by: 2).map { (labels[$0], labels[$0 + 1]) }
        }
    }

    private struct State {
        var counters: [Key: OwnCounter] = [:]
        var timers: [Key: OwnTimer] = [:]
    }

    /// Upper bounds for durations, in seconds.
    private static let bounds: [Double] = [0.001, 0.005, 0.025, 0.1, 0.5, 1, 5]
    private let state = NIOLockedValueBox(State())

    func makeCounter(label: String, dimensions: [(String, String)]) -> any CounterHandler {
        state.withLockedValue { state in
            let key = Key(label, dimensions)
            if let known = state.counters[key] { return known }
            let new = OwnCounter()
            state.counters[key] = new
            return new
        }
    }

    func makeTimer(label: String, dimensions: [(String, String)]) -> any TimerHandler {
        state.withLockedValue { state in
            let key = Key(label, dimensions)
            if let known = state.timers[key] { return known }
            let new = OwnTimer(bounds: Self.bounds)
            state.timers[key] = new
            return new
        }
    }

    /// Nothing here is measured by those.
    func makeRecorder(
        label: String, dimensions: [(String, String)], aggregate: Bool
    ) -> any RecorderHandler { NOOPMetricsHandler.instance }

    /// All are shown as long as the process lasts.
    func destroyCounter(_ handler: any CounterHandler) {}
    func destroyTimer(_ handler: any TimerHandler) {}
    func destroyRecorder(_ handler: any RecorderHandler) {}

    func counts(_ name: String) -> [(labels: [(name: String, value: String)], count: Int64)] {
        let counters = state.withLockedValue { $0.counters.filter { $0.key.name == name } }
        return counters.sorted { $0.key.labels.lexicographicallyPrecedes($1.key.labels) }
            .map { ($0.key.pairs, $0.value.count) }
    }

    /// Of all labels together.
    func durations(_ name: String) -> Histogram? {
        state.withLockedValue { state in state.timers.first { $0.key.name == name }?.value.histogram }
    }
}

private final class OwnCounter: CounterHandler {
    private let value = NIOLockedValueBox(Int64(0))
    var count: Int64 { value.withLockedValue { $0 } }

    func increment(by amount: Int64) { value.withLockedValue { $0 += amount } }
    func reset() { value.withLockedValue { $0 = 0 } }
}

private final class OwnTimer: TimerHandler {
    private let value: NIOLockedValueBox<Histogram>
    var histogram: Histogram { value.withLockedValue { $0 } }

    init(bounds: [Double]) { value = NIOLockedValueBox(Histogram(bounds: bounds)) }

    func recordNanoseconds(_ duration: Int64) {
        value.withLockedValue { $0.note(seconds: Double(duration) / 1e9) }
    }
}
