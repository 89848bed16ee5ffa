/// The counters of a client and its latest wakes by traffic, as independent numbers of the shared state that
/// outlives the supervisor.
package struct ClientStatistics: Sendable {
    package typealias CounterWords = InlineArray<17, UInt64>

    /// The counters, and then the latest wakes: in nanoseconds, plus one, because zero stands for none.
    package var words = InlineArray<33, UInt64>(repeating: 0)

    /// The number of words that are nonzero for a client that went to sleep or became dormant and was never
    /// woken. Its other words are zero.
    package static let usualCount = 4
    /// Two counters a word, and one for the time asleep.
    package static let counterCount = Counters.capacity / 2 + 1
    static let wakeCount = 16

    package init() {}

    init(_ counters: CounterWords, _ limiter: WakeLimiter) {
        for index in counters.indices { words[index] = counters[index] }
        limiter.forEachLatest(Self.wakeCount) { index, wake in
            words[Self.counterCount + index] = UInt64(bitPattern: wake.nanoseconds &+ 1)
        }
    }

    var counters: CounterWords { CounterWords { words[$0] } }

    package var latestWakes: [Instant] {
        (Self.counterCount..<words.count).compactMap { index in
            words[index] == 0 ? nil : Instant(nanoseconds: Int64(bitPattern: words[index]) &- 1)
        }
    }
}

/// The counters of a client, as they are persisted: two saturating counters per word; one word is the
/// nanoseconds asleep. A client that was never woken rarely has more than the usual words.
struct PackedCounters: Sendable, Equatable {
    private var usual = InlineArray<4, UInt64>(repeating: 0)
    /// The words after the usual ones; empty while all of them are zero.
    private var others: [UInt64] = []

    private static let asleepWord = 3

    init() {}

    init(words: ClientStatistics.CounterWords) {
        for index in words.indices where words[index] != 0 { self[word: index] = words[index] }
    }

    /// Counters of more than 32 bits are cut off.
    init(_ counters: Counters) {
        for counter in Counter.allCases where counters[counter] != 0 {
            let (word, isUpper) = Self.place(of: counter)
            let half = UInt64(UInt32(clamping: counters[counter]))
            self[word: word] |= isUpper ? half << 32 : half
        }
        countSleep(counters.asleepNanoseconds)
    }

    var words: ClientStatistics.CounterWords { ClientStatistics.CounterWords { self[word: $0] } }

    private subscript(word index: Int) -> UInt64 {
        get {
            if index < usual.count { return usual[index] }
            return others.isEmpty ? 0 : others[index - usual.count]
        }
        set {
            if index < usual.count { return usual[index] = newValue }
            if others.isEmpty {
                others = [UInt64](repeating: 0, count: ClientStatistics.counterCount - usual.count)
            }
            others[index - usual.count] = newValue
        }
    }

    /// The word that a counter is in, and whether it is the upper half.
    private static func place(of counter: Counter) -> (word: Int, isUpper: Bool) {
        let pair = counter.rawValue / 2
        return (pair < asleepWord ? pair : pair + 1, !counter.rawValue.isMultiple(of: 2))
    }

    mutating func count(_ counter: Counter) {
        let (word, isUpper) = Self.place(of: counter)
        let both = self[word: word]
        let half = UInt32(truncatingIfNeeded: isUpper ? both >> 32 : both)
        guard half < .max else { return }
        self[word: word] = both + (isUpper ? 1 << 32 : 1)
    }

    mutating func countSleep(_ nanoseconds: UInt64) { self[word: Self.asleepWord] += nanoseconds }

    var counters: Counters {
        var counters = Counters()
        for counter in Counter.allCases {
            let (word, isUpper) = Self.place(of: counter)
            counters[counter] = isUpper ? self[word: word] >> 32 : self[word: word] & 0xFFFF_FFFF
        }
        counters.asleepNanoseconds = self[word: Self.asleepWord]
        return counters
    }

    static func == (one: PackedCounters, other: PackedCounters) -> Bool {
        (0..<ClientStatistics.counterCount).allSatisfy { one[word: $0] == other[word: $0] }
    }
}
