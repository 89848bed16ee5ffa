import Histogram
package import Presentation

/// Latencies of one kind, in nanoseconds.
package struct Latencies: Sendable {
    private var histogram = Histogram<UInt64>(
        highestTrackableValue: 3_600_000_000_000, numberOfSignificantValueDigits: .three)

    package init() {}

    package var count: Int { Int(histogram.totalCount) }

    package mutating func record(nanoseconds: Int64) {
        histogram.record(UInt64(max(0, nanoseconds)))
    }

    package mutating func add(_ other: Latencies) {
        histogram.add(other.histogram)
    }

    /// In microseconds; not a number if there are none, which is reported as missing.
    package func percentile(_ percentile: Double) -> Double {
        count == 0 ? .nan : Double(histogram.valueAtPercentile(percentile)) / 1_000
    }

    package var maximum: Double { count == 0 ? .nan : Double(histogram.max) / 1_000 }

    /// The percentile curve: shares below one, and microseconds.
    package var curve: [(share: Double, microseconds: Double)] {
        guard count > 0 else { return [] }
        // The maximum is at 100 %, which an axis of nines cannot show: it is drawn just below.
        let last = 1 - 0.5 / Double(count)
        return histogram.percentiles(ticksPerHalfDistance: 5).map { step in
            (min(step.percentile / 100, last), Double(step.value) / 1_000)
        }
    }
}

/// Figures of a series of rounds: percentiles are medians of the rounds' percentiles; the far tail is that of
/// all rounds together, because a single round has too few samples for it. A round that lost everything has
/// no figures, and `lost` says so.
package struct LatencyFigures: Sendable, Equatable {
    package var p50: Double
    package var p90: Double
    package var p99: Double
    package var p999: Double
    package var max: Double

    package init(rounds: [Latencies]) {
        var all = Latencies()
        for round in rounds { all.add(round) }
        let rounds = rounds.filter { $0.count > 0 }
        p50 = median(rounds.map { $0.percentile(50) })
        p90 = median(rounds.map { $0.percentile(90) })
        p99 = median(rounds.map { $0.percentile(99) })
        p999 = all.percentile(99.9)
        max = all.maximum
    }

    package var json: JSON {
        [
            "p50": .rounded(p50), "p90": .rounded(p90), "p99": .rounded(p99), "p999": .rounded(p999),
            "max": .rounded(max),
        ]
    }
}

/// The median: the middle value, or the mean of the two in the middle; not a number for no values, or if one
/// is not a number.
package func median(_ values: [Double]) -> Double {
    guard !values.isEmpty, !values.contains(where: \.isNaN) else { return .nan }
    let sorted = values.sorted()
    let middle = sorted.count / 2
    return sorted.count % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2
}

/// The median of the rounds' own ratios: a disturbance hits both sides of a round. Not a number if a round
/// has no ratio, because something in it was not measured.
package func medianRatio(_ ours: [Double], over floor: [Double]) -> Double {
    median(zip(ours, floor).map { $1 > 0 ? $0 / $1 : .nan })
}

extension JSON {
    /// Rounded to the significant digits.
    package static func rounded(_ value: Double?, digits: Int = 3) -> JSON {
        guard let value, value.isFinite else { return .null }
        var factor = 1.0
        for _ in 0..<digits { factor *= 10 }
        return .number((value * factor).rounded() / factor)
    }
}
