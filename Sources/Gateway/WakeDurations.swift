import NIOConcurrencyHelpers
import Nightbell

/// How long clients were awake, from each wake to the next suspension, as a histogram.
final class WakeDurations: Sendable {
    /// Upper bounds of the buckets, in seconds.
    static let bounds: [Double] = [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300]

    struct Histogram: Sendable {
        /// Not cumulative; the last one has no bound.
        var counts = [UInt64](repeating: 0, count: bounds.count + 1)
        var sum: Double = 0
        var count: UInt64 { counts.reduce(0, +) }
    }

    private struct State {
        var histogram = Histogram()
        /// Wall-clock nanoseconds by identifier.
        var awakeSince: [String: UInt64] = [:]
    }

    /// More clients than a supervisor can have: identifiers of clients that never sleep again must not add
    /// up.
    private static let mostAwake = 200_000
    private let state = NIOLockedValueBox(State())

    var histogram: Histogram { state.withLockedValue { $0.histogram } }

    func note(_ events: [ClientEvent]) {
        state.withLockedValue { state in
            for event in events {
                switch event.kind {
                case "wake":
                    guard state.awakeSince.count < Self.mostAwake else { continue }
                    // Another wake before the suspension belongs to the same time awake.
                    if state.awakeSince[event.identifier] == nil {
                        state.awakeSince[event.identifier] = event.unixNanoseconds
                    }
                case "state" where event.state == .suspended:
                    guard let since = state.awakeSince.removeValue(forKey: event.identifier),
                        event.unixNanoseconds >= since
                    else { continue }
                    let seconds = Double(event.unixNanoseconds - since) / 1e9
                    let bucket = Self.bounds.firstIndex { seconds <= $0 } ?? Self.bounds.count
                    state.histogram.counts[bucket] += 1
                    state.histogram.sum += seconds
                case "gone", "parked": state.awakeSince[event.identifier] = nil
                default: break
                }
            }
        }
    }

    /// Suspensions may have been missed.
    func interrupt() { state.withLockedValue { $0.awakeSince = [:] } }
}
