import NightbellCore

/// A client of a `FetchWorld`: its person, how it fetches, and its other wakes.
struct FetchingClient {
    enum Behaviour: String, CaseIterable {
        /// Done in seconds, and says what it has found.
        case honest
        /// Uses up most of its time, and always claims to have new data.
        case boastful
        /// Fails more often than not.
        case failing
        /// Does not complete every second fetch.
        case hung
    }

    let person: Person
    let behaviour: Behaviour
    let interval: FetchInterval
    /// nil: it has no keep-alive handler.
    let keepAlive: Duration?
    /// The average time between two wakes by its peers.
    let quiet: Duration

    // Measured.
    var isForeground = false
    var lastFetch: Instant?
    var lastKeepAlive = Instant(nanoseconds: 0)
    /// When it last left the foreground, or asked for fetches.
    var floorBase: Instant
    /// When its latest completed fetch began.
    var freshSince: Instant?
    var running: (began: Instant, result: FetchResult?)?
    var fetchesByDay: [Int: Int] = [:]

    init(_ random: inout SplitMix64, firstDay: Int, days: Int, at now: Instant) {
        person = Person(&random, firstDay: firstDay, days: days)
        switch random.below(100) {
        case 0..<94: behaviour = .honest
        case 94..<97: behaviour = .boastful
        case 97..<99: behaviour = .failing
        default: behaviour = .hung
        }
        switch random.below(100) {
        case 0..<88: interval = .minimum
        case 88..<93: interval = .atLeast(.seconds(1_200))
        case 93..<98: interval = .atLeast(.seconds(1_800))
        default: interval = .atLeast(.seconds(3_600))
        }
        // Half of the clients are reachable by calls: they have a handler, and peers.
        let isReachable = random.once(in: 2)
        keepAlive = isReachable ? .seconds(600 + random.below(1_201)) : nil
        quiet = .seconds(isReachable ? 3_600 * (2 + random.below(11)) : 86_400)
        floorBase = now
    }

    /// The shortest pause that the client has asked for.
    var floor: Duration {
        switch interval {
        case .never, .minimum: .zero
        case .atLeast(let duration): duration
        }
    }

    /// How long a fetch takes and its result; nil: it is not completed.
    func fetch(_ random: inout SplitMix64) -> (took: Duration, result: FetchResult?) {
        switch behaviour {
        case .honest:
            (.milliseconds(500 + random.below(7_500)), random.once(in: 3) ? .newData : .noData)
        case .boastful:
            (.milliseconds(12_000 + random.below(16_000)), .newData)
        case .failing:
            (.milliseconds(2_000 + random.below(8_000)), random.below(10) < 6 ? .failed : .noData)
        case .hung:
            random.once(in: 2) ? (.seconds(30), nil) : (.milliseconds(2_000 + random.below(8_000)), .noData)
        }
    }
}
