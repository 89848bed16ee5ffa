import NightbellCore

/// All that happens on a machine within some days, whatever is transferred.
struct DrawnDay {
    /// A reason why it is no moment for transfers that can wait.
    enum Hindrance: CaseIterable {
        case battery
        case meteredNetwork
        case noNetwork
        case shortage
    }

    enum Happening {
        case begin(Hindrance)
        case end(Hindrance)
        /// A client is woken because of something else.
        case wake(Int)
        /// A client asks for transfers; the sizes in bytes.
        case ask(Int, [Int64])
        /// A client's process fails.
        case failure(Int)
    }

    private static let day = 86_400
    private static let megabyte: Int64 = 1_000_000

    private let start: Instant
    /// Sorted, the first one last.
    private(set) var happenings: [(instant: Instant, happening: Happening)] = []

    /// - Parameters:
    ///   - askers: clients that ask for transfers.
    ///   - subscribers: clients that run only when there is something for them.
    init(
        days: Int, askers: Range<Int>, subscribers: Range<Int>, from start: Instant,
        _ random: inout SplitMix64
    ) {
        self.start = start
        for day in 0..<days {
            drawHindrances(on: day, &random)
            for client in askers { drawWakes(of: client, on: day, &random) }
            for client in subscribers where random.once(in: 3) {
                add(.failure(client), at: instant(day, hour: 1, spread: 22, &random))
            }
        }
        // A stable order of equal instants.
        happenings = happenings.enumerated().sorted {
            ($0.element.instant, $0.offset) > ($1.element.instant, $1.offset)
        }.map(\.element)
    }

    mutating func next(at now: Instant) -> Happening? {
        guard let next = happenings.last, next.instant <= now else { return nil }
        return happenings.removeLast().happening
    }

    private mutating func add(_ happening: Happening, at instant: Instant) {
        happenings.append((instant, happening))
    }

    /// Within `spread` hours after this one.
    private func instant(_ day: Int, hour: Int, spread: Int, _ random: inout SplitMix64) -> Instant {
        start + .seconds(day * Self.day + hour * 3_600 + random.below(spread * 3_600))
    }

    /// A portable computer, which its user takes to work.
    private mutating func drawHindrances(on day: Int, _ random: inout SplitMix64) {
        func draw(_ hindrance: Hindrance, hour: Int, spread: Int, minutes: ClosedRange<Int>) -> Span {
            let begin = instant(day, hour: hour, spread: spread, &random)
            let length = minutes.lowerBound + random.below(minutes.count)
            return Span(hindrance: hindrance, begin: begin, end: begin + .seconds(length * 60))
        }
        var spans: [Span] = []
        // The ways to and from work, by a telephone's network.
        for hour in [7, 17] {
            let way = draw(.meteredNetwork, hour: hour, spread: 1, minutes: 30...60)
            spans += [way, Span(hindrance: .battery, begin: way.begin, end: way.end)]
        }
        for _ in 0..<2 + random.below(3) {
            spans.append(draw(.battery, hour: 9, spread: 12, minutes: 30...150))
        }
        if random.once(in: 2) { spans.append(draw(.meteredNetwork, hour: 10, spread: 6, minutes: 60...120)) }
        for _ in 0..<1 + random.below(3) {
            spans.append(draw(.noNetwork, hour: 0, spread: 23, minutes: 2...20))
        }
        for _ in 0..<2 + random.below(4) {
            spans.append(draw(.shortage, hour: 8, spread: 14, minutes: 5...20))
        }
        for span in spans {
            add(.begin(span.hindrance), at: span.begin)
            add(.end(span.hindrance), at: span.end)
        }
    }

    private struct Span {
        let hindrance: Hindrance
        let begin: Instant
        let end: Instant
    }

    /// It has traffic now and then, and on some of these occasions it asks for one to five transfers.
    private mutating func drawWakes(of client: Int, on day: Int, _ random: inout SplitMix64) {
        for _ in 0..<4 + random.below(12) {
            add(.wake(client), at: instant(day, hour: 0, spread: 24, &random))
        }
        for _ in 0..<1 + random.below(4) {
            let sizes = (0..<1 + random.below(5)).map { _ in Int64(1 + random.below(80)) * Self.megabyte }
            add(.ask(client, sizes), at: instant(day, hour: 0, spread: 22, &random))
        }
    }
}
