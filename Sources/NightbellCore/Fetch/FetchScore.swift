/// The cost of a client's fetches so far: quick ones are good, slow ones, failures and those without an end
/// are bad. A claim of new data counts no more than its absence, because the supervisor cannot check it.
package struct FetchScore: Sendable, Hashable, BitwiseCopyable {
    /// From 0 to 65,535.
    package private(set) var value: UInt16
    /// Consecutive fetches without a completion, at most 255.
    package private(set) var overruns: UInt8
    /// The last fetch ended without a completion in the foreground.
    package private(set) var wasInterrupted: Bool

    /// A new client is neither trusted nor mistrusted.
    package init(value: UInt16 = 52_428, overruns: UInt8 = 0, wasInterrupted: Bool = false) {
        self.value = value
        self.overruns = overruns
        self.wasInterrupted = wasInterrupted
    }

    /// From 0 to 1.
    package var share: Double { Double(value) / Double(UInt16.max) }

    package var percent: Int { Int((share * 100).rounded()) }

    /// The share of the new value in the average: of the last eight fetches or so.
    private static let pace = 0.125
    /// A fetch that takes this share of its budget is still quick.
    private static let quick = 1.0 / 3

    mutating func add(_ result: FetchResult, took: Duration, budget: Duration) {
        overruns = 0
        wasInterrupted = false
        switch result {
        case .newData, .noData: move(to: Self.quality(took, budget))
        case .failed: move(to: Self.quality(took, budget) / 4)
        }
    }

    mutating func addOverrun() {
        overruns = min(overruns, .max - 1) + 1
        value /= 2
    }

    /// It was brought to the foreground during a fetch and has not completed it. Its user may do that at any
    /// time; one that does nothing else wants to escape the verdict.
    mutating func addInterruption() {
        if wasInterrupted { addOverrun() }
        wasInterrupted = true
    }

    /// From 1 for a quick fetch down to a quarter for one that took all of its budget.
    private static func quality(_ took: Duration, _ budget: Duration) -> Double {
        guard budget > .zero else { return 1 }
        let used = min(max(took / budget, 0), 1)
        return used <= quick ? 1 : 1 - 0.75 * (used - quick) / (1 - quick)
    }

    private mutating func move(to quality: Double) {
        let share = share + (quality - share) * Self.pace
        value = UInt16(clamping: Int((share * Double(UInt16.max)).rounded()))
    }
}

/// The result of a fetch, as the client reports it.
package enum FetchResult: Sendable, Hashable, CaseIterable {
    case newData
    case noData
    case failed
}

/// How often a client wants to fetch at most.
package enum FetchInterval: Sendable, Hashable {
    case never
    /// As often as the supervisor likes.
    case minimum
    /// Not more often than that.
    case atLeast(Duration)
}
