/// A part of a run in which clients are called one at a time.
protocol CallPhase {
    /// Latencies of the called clients.
    var latencies: Latencies { get set }
    var lost: Int { get set }
}

extension CallPhase {
    /// - Parameter latency: in nanoseconds; nil: the wake was lost.
    mutating func note(_ latency: Int64?) {
        if let latency { latencies.record(nanoseconds: latency) } else { lost += 1 }
    }
}
