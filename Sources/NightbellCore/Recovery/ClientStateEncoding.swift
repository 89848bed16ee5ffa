/// The frequently changing state of a client, as words of the shared state that outlives the supervisor.
public enum ClientStateEncoding {
    /// The state; these words are only valid together.
    public typealias Words = InlineArray<16, UInt64>
    /// Independent numbers: counters and the latest wakes.
    public typealias Statistics = InlineArray<30, UInt64>
    public typealias CounterWords = InlineArray<14, UInt64>

    /// The version of the layout below.
    static let version: UInt64 = 4
    static let wakeCount = 16
    static let counterWords = 14
    /// The number of figures that are nonzero for a client that went to sleep or became dormant and was never woken.
    /// Its other figures are zero.
    public static let usualStatistics = 4

    /// Stands for a missing instant.
    static let never = UInt64(bitPattern: .min)

    static func word(_ instant: Instant?) -> UInt64 {
        instant.map { UInt64(bitPattern: $0.nanoseconds) } ?? never
    }

    static func instant(_ word: UInt64) -> Instant? {
        word == never ? nil : Instant(nanoseconds: Int64(bitPattern: word))
    }

    static func duration(_ word: UInt64) -> Duration { .nanoseconds(Int64(bitPattern: word)) }

    static func word(_ duration: Duration) -> UInt64 { UInt64(bitPattern: duration.nanoseconds) }

    /// Reasons are nine bits; the last one has its own place.
    static func bits(of reasons: WakeReasons, at place: UInt64, last: UInt64) -> UInt64 {
        UInt64(reasons.rawValue & 0xFF) << place | UInt64(reasons.rawValue >> 8 & 1) << last
    }

    static func reasons(in head: UInt64, at place: UInt64, last: UInt64) -> WakeReasons {
        WakeReasons(rawValue: UInt16(head >> place & 0xFF) | UInt16(head >> last & 1) << 8)
    }

    /// Whether the words are about this client, and not about one before it in the same slot.
    public static func words(_ words: Words, areAbout client: ClientID) -> Bool {
        words[1] >> 32 == UInt64(client.id.generation)
    }
}

extension Supervision {
    /// The state that another supervisor needs to recover a client.
    public func progress(of id: ClientID) -> ClientStateEncoding.Words { clients[id.id].progress(id) }

    /// The counters and latest wakes of a client.
    public func statistics(of id: ClientID) -> ClientStateEncoding.Statistics { clients[id.id].statistics }

    /// The number of the last wake decided.
    public func wakeID(of client: ClientID) -> UInt64 { clients[client.id].lastWakeID }

    /// The background tasks that a client holds.
    public func tasks(of client: ClientID) -> [RecoverySnapshot.Task] {
        clients[client.id].assertions.tasks.map {
            RecoverySnapshot.Task(id: $0.id, request: $0.request, name: $0.name)
        }
    }

    /// The record that another supervisor needs to recover an ownership.
    public func owner(of identifier: ClientIdentifier) -> RecoverySnapshot.Owner? {
        owners[identifier].map {
            RecoverySnapshot.Owner(
                identifier: identifier, user: $0.user, number: $0.number, givenUp: $0.givenUp,
                isQuit: $0.isQuit)
        }
    }

    /// The sum of the counters of clients that are gone.
    public var statisticsOfGone: ClientStateEncoding.CounterWords { PackedCounters(goneCounters).words }

    /// The number of the last wake delivered, provided that all wakes decided before this turn were.
    public func toldWakeID(of client: ClientID) -> UInt64 {
        clients[client.id].lastWakeID - (clients[client.id].pendingWake == nil ? 0 : 1)
    }
}

extension Client {
    fileprivate func progress(_ id: ClientID) -> ClientStateEncoding.Words {
        let (state, details) = lifecycle.words
        var head = ClientStateEncoding.version | UInt64(state) << 8
        head |= UInt64(min(backoff.failures, 63)) << 16
        head |= ClientStateEncoding.bits(of: lastWakeReasons, at: 24, last: 14)
        head |= UInt64(min(limiter.excessWakes, 255)) << 40
        let timeUntil: Instant?
        switch assertions.time {
        case .full: timeUntil = nil
        case .running(let until, let notified):
            timeUntil = until
            head |= notified ? 1 << 48 : 0
        }
        if keepAlive != nil { head |= 1 << 49 }
        head |= launches.headBits | (hibernates ? 1 << 53 : 0)
        let names = UInt64(id.id.generation) << 32 | UInt64(UInt32(clamping: assertions.nextTask))
        return [
            head, names, lastEpoch, lastWakeID, ClientStateEncoding.word(lastAsleepFor),
            ClientStateEncoding.word(enteredStateAt),
            ClientStateEncoding.word(backgroundSince), details[0], details[1], details[2], details[3],
            ClientStateEncoding.word(keepAlive?.timeout ?? .zero), ClientStateEncoding.word(keepAlive?.base),
            ClientStateEncoding.word(assertions.mediaUntil), ClientStateEncoding.word(timeUntil), lastRequest,
        ]
    }

    fileprivate var statistics: ClientStateEncoding.Statistics {
        var statistics = ClientStateEncoding.Statistics(repeating: 0)
        let words = counterWords
        for index in words.indices { statistics[index] = words[index] }
        // Stored plus one, because zero stands for none.
        limiter.forEachLatest(ClientStateEncoding.wakeCount) { index, wake in
            statistics[ClientStateEncoding.counterWords + index] = UInt64(bitPattern: wake.nanoseconds &+ 1)
        }
        return statistics
    }

    /// Restores the values of `progress` and `statistics`. False: they cannot be decoded.
    mutating func take(
        _ words: ClientStateEncoding.Words, _ statistics: ClientStateEncoding.Statistics,
        tasks: [Assertions.Task],
        _ settings: Settings.Wakes
    ) -> Bool {
        let head = words[0]
        guard head & 0xFF == ClientStateEncoding.version,
            let lifecycle = Lifecycle(
                UInt8(head >> 8 & 0x3F), [words[7], words[8], words[9], words[10]])
        else { return false }
        self.lifecycle = lifecycle
        backoff = Backoff(failures: Int(head >> 16 & 0x3F))
        lastWakeReasons = ClientStateEncoding.reasons(in: head, at: 24, last: 14)
        launches.take(head)
        hibernates = head & 1 << 53 != 0
        lastEpoch = words[2]
        lastWakeID = words[3]
        lastAsleepFor = ClientStateEncoding.duration(words[4])
        enteredStateAt = ClientStateEncoding.instant(words[5]) ?? enteredStateAt
        backgroundSince = ClientStateEncoding.instant(words[6]) ?? backgroundSince
        keepAlive = nil
        if head & 1 << 49 != 0, let base = ClientStateEncoding.instant(words[12]) {
            keepAlive = KeepAlive(timeout: ClientStateEncoding.duration(words[11]), base: base)
        }
        let time = ClientStateEncoding.instant(words[14]).map { until in
            Assertions.Time.running(until: until, notified: head & 1 << 48 != 0)
        }
        assertions = Assertions(
            tasks: tasks, nextTask: max(words[1] & 0xFFFF_FFFF, (tasks.map(\.id).max() ?? 0) + 1),
            mediaUntil: ClientStateEncoding.instant(words[13]), time: time ?? .full)
        lastRequest = words[15]
        packedCounters = PackedCounters(words: ClientStateEncoding.CounterWords { statistics[$0] })
        let wakes = (ClientStateEncoding.counterWords..<statistics.count).compactMap { index -> Instant? in
            statistics[index] == 0 ? nil : Instant(nanoseconds: Int64(bitPattern: statistics[index]) &- 1)
        }
        limiter = WakeLimiter(recent: wakes, excess: Int(head >> 40 & 0xFF), settings)
        activity.tidy()
        return true
    }
}

extension Client.Launches {
    /// The bits that belong to the first word of the state.
    fileprivate var headBits: UInt64 {
        var bits = ClientStateEncoding.bits(of: reasons, at: 32, last: 15)
        if isInBackground { bits |= 1 << 23 }
        if neverSpoke { bits |= 1 << 22 }
        if isRejoined { bits |= 1 << 50 }
        if kind.isUrgent { bits |= 1 << 51 }
        if hasSettled { bits |= 1 << 52 }
        return bits | UInt64(inRow) << 54 | UInt64(min(failuresAtStart, 3)) << 62
    }

    fileprivate mutating func take(_ head: UInt64) {
        reasons = ClientStateEncoding.reasons(in: head, at: 32, last: 15)
        isInBackground = head & 1 << 23 != 0
        neverSpoke = head & 1 << 22 != 0
        isRejoined = head & 1 << 50 != 0
        kind.isUrgent = head & 1 << 51 != 0
        hasSettled = head & 1 << 52 != 0
        inRow = UInt8(head >> 54 & 0xFF)
        failuresAtStart = UInt8(head >> 62)
    }
}

extension Lifecycle {
    static let freezingNumber: UInt64 = 5
    static let suspendedNumber: UInt64 = 6

    /// The state's number and its details.
    fileprivate var words: (UInt8, InlineArray<4, UInt64>) {
        var details = InlineArray<4, UInt64>(repeating: ClientStateEncoding.never)
        switch self {
        case .notRunning: return (0, details)
        case .inactive: return (1, details)
        case .active: return (2, details)
        case .background(let background):
            details[0] = ClientStateEncoding.word(background.enteringUntil)
            details[1] = ClientStateEncoding.word(background.wake?.until)
            details[2] = background.wake?.wakeID ?? 0
            details[3] = ClientStateEncoding.word(background.holdUntil)
            return (3, details)
        case .suspending(let suspending):
            details[2] = suspending.epoch
            switch suspending.phase {
            case .preparing(let until):
                details[0] = ClientStateEncoding.word(until)
                return (4, details)
            case .freezing(let until, let lookAt, let pause):
                details[0] = ClientStateEncoding.word(until)
                details[1] = ClientStateEncoding.word(lookAt)
                details[3] = ClientStateEncoding.word(pause)
                return (5, details)
            }
        case .suspended(let since):
            details[0] = ClientStateEncoding.word(since)
            return (6, details)
        case .terminating(.noticed(let until, let reason)):
            details[0] = ClientStateEncoding.word(until)
            details[1] = reason.number
            return (7, details)
        case .terminating(.killed(let reason)):
            details[1] = reason.number
            return (8, details)
        case .dormant(.resting): return (9, details)
        case .dormant(.waiting(let until)):
            details[0] = ClientStateEncoding.word(until)
            return (10, details)
        case .dormant(.queued): return (11, details)
        case .launching(let until):
            details[0] = ClientStateEncoding.word(until)
            return (12, details)
        }
    }

    fileprivate init?(_ state: UInt8, _ details: InlineArray<4, UInt64>) {
        let first = ClientStateEncoding.instant(details[0])
        let second = ClientStateEncoding.instant(details[1])
        switch (state, first) {
        case (0, _): self = .notRunning
        case (1, _): self = .inactive
        case (2, _): self = .active
        case (3, _):
            let wake = second.map { Background.OpenWake(wakeID: details[2], until: $0) }
            self = .background(
                Background(
                    enteringUntil: first, wake: wake, holdUntil: ClientStateEncoding.instant(details[3])))
        case (4, let until?):
            self = .suspending(Suspending(epoch: details[2], phase: .preparing(until: until)))
        case (5, let until?):
            guard let second else { return nil }
            let pause = ClientStateEncoding.duration(details[3])
            self = .suspending(
                Suspending(
                    epoch: details[2], phase: .freezing(until: until, lookAt: second, pause: pause)))
        case (6, let since?): self = .suspended(since: since)
        case (7, let until?):
            guard let reason = TerminationReason(number: details[1]) else { return nil }
            self = .terminating(.noticed(until: until, reason))
        case (8, _):
            guard let reason = TerminationReason(number: details[1]) else { return nil }
            self = .terminating(.killed(reason))
        case (9, _): self = .dormant(.resting)
        case (10, let until?): self = .dormant(.waiting(until: until))
        case (11, _): self = .dormant(.queued)
        case (12, _): self = .launching(until: first)
        default: return nil
        }
    }
}

extension TerminationReason {
    fileprivate var number: UInt64 {
        switch self {
        case .quitByUser: 1
        case .backgroundTasksOverran: 2
        case .tooManyWakes: 3
        case .memoryPressure: 4
        case .hibernation: 5
        case .exitsOnSuspend: 6
        case .launchOverran: 7
        }
    }

    fileprivate init?(number: UInt64) {
        switch number {
        case 1: self = .quitByUser
        case 2: self = .backgroundTasksOverran
        case 3: self = .tooManyWakes
        case 4: self = .memoryPressure
        case 5: self = .hibernation
        case 6: self = .exitsOnSuspend
        case 7: self = .launchOverran
        default: return nil
        }
    }
}

/// The counters of a client, as they are persisted: two saturating counters per word; one word is the nanoseconds
/// asleep. A client that was never woken rarely has more than the usual words.
struct PackedCounters: Sendable, Equatable {
    private var usual = InlineArray<4, UInt64>(repeating: 0)
    /// The words after the usual ones; empty while all of them are zero.
    private var others: [UInt64] = []

    private static let asleepWord = 3

    init() {}

    init(words: ClientStateEncoding.CounterWords) {
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

    var words: ClientStateEncoding.CounterWords { ClientStateEncoding.CounterWords { self[word: $0] } }

    private subscript(word index: Int) -> UInt64 {
        get {
            if index < usual.count { return usual[index] }
            return others.isEmpty ? 0 : others[index - usual.count]
        }
        set {
            if index < usual.count { return usual[index] = newValue }
            if others.isEmpty {
                others = [UInt64](repeating: 0, count: ClientStateEncoding.counterWords - usual.count)
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
        (0..<ClientStateEncoding.counterWords).allSatisfy { one[word: $0] == other[word: $0] }
    }
}
