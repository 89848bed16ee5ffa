/// Durations, counted by ranges.
struct Histogram: Sendable {
    /// Upper bounds of the ranges, in seconds.
    let bounds: [Double]
    /// Not cumulative; the last one has no bound.
    private(set) var counts: [UInt64]
    private(set) var sum: Double = 0

    init(bounds: [Double]) {
        self.bounds = bounds
        counts = [UInt64](repeating: 0, count: bounds.count + 1)
    }

    var count: UInt64 { counts.reduce(0, +) }

    mutating func note(seconds: Double) {
        counts[bounds.firstIndex { seconds <= $0 } ?? bounds.count] += 1
        sum += seconds
    }
}
