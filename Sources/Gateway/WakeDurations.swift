import NIOConcurrencyHelpers
import Nightbell

/// How long clients were awake, from each wake to the next suspension, as a histogram.
final class WakeDurations: Sendable {
    private struct State {
        var histogram = Histogram(bounds: [0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300])
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
                // Suspensions may be among those that were lost before this one.
                if event.dropped > 0 { state.awakeSince = [:] }
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
                    state.histogram.note(seconds: Double(event.unixNanoseconds - since) / 1e9)
                case "gone", "parked": state.awakeSince[event.identifier] = nil
                default: break
                }
            }
        }
    }

    /// Suspensions may have been missed.
    func interrupt() { state.withLockedValue { $0.awakeSince = [:] } }
}
