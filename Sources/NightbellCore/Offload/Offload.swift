/// Counts the supervisor's work on a socket while its owner slept.
public struct OffloadCounters: Sendable, Equatable {
    /// Pings sent in the owner's name.
    public var sent: UInt64 = 0
    /// Pings in `sent` that the peer has answered.
    public var confirmed: UInt64 = 0
    /// Pings of the peer that were answered.
    public var answered: UInt64 = 0
    /// Noise that was read from the socket and needed no answer, including answers to the supervisor's own
    /// pings.
    public var absorbed: UInt64 = 0
    /// Wakes that the owner was spared: one for each ping sent, and one for each time there was only noise to
    /// read.
    public var wakesAvoided: UInt64 = 0

    public init() {}

    public static func += (left: inout OffloadCounters, right: OffloadCounters) {
        left.sent += right.sent
        left.confirmed += right.confirmed
        left.answered += right.answered
        left.absorbed += right.absorbed
        left.wakesAvoided += right.wakesAvoided
    }
}

/// `OffloadCounters` of many sockets, by the numbers of their profiles.
package struct OffloadTotals: Sendable, Equatable {
    /// Numbers of profiles lie below it. Their meaning is the edge's affair.
    package static let profiles = 16
    /// Five counters for each profile.
    package typealias Words = InlineArray<80, UInt64>

    private var counters = [OffloadCounters](repeating: OffloadCounters(), count: profiles)

    package init() {}

    package subscript(profile: UInt8) -> OffloadCounters {
        get { counters[Int(profile)] }
        set { counters[Int(profile)] = newValue }
    }

    /// Those of all profiles.
    package var sum: OffloadCounters { counters.reduce(into: OffloadCounters()) { $0 += $1 } }

    /// As they are persisted.
    package var words: Words {
        Words { index in
            let counters = counters[index / 5]
            return switch index % 5 {
            case 0: counters.sent
            case 1: counters.confirmed
            case 2: counters.answered
            case 3: counters.absorbed
            default: counters.wakesAvoided
            }
        }
    }

    package init(words: Words) {
        for index in counters.indices {
            counters[index].sent = words[5 * index]
            counters[index].confirmed = words[5 * index + 1]
            counters[index].answered = words[5 * index + 2]
            counters[index].absorbed = words[5 * index + 3]
            counters[index].wakesAvoided = words[5 * index + 4]
        }
    }
}

/// When pings are sent for a socket, and which answers are expected. The edge knows their bytes.
package struct PingTerms: Sendable, Hashable {
    /// The shortest time from one ping to the next.
    package var earliest: Duration
    /// The longest time from one ping to the next.
    package var latest: Duration
    /// nil: no answer is expected.
    package var answerWithin: Duration?
    /// From a ping to its first repetition; each pause after that is twice as long.
    package var repeatAfter: Duration
    /// The maximum number of repetitions.
    package var repetitions: Int

    package init(
        earliest: Duration, latest: Duration, answerWithin: Duration? = nil, repeatAfter: Duration = .zero,
        repetitions: Int = 0
    ) {
        self.earliest = earliest
        self.latest = latest
        self.answerWithin = answerWithin
        self.repeatAfter = repeatAfter
        self.repetitions = repetitions
    }
}

/// The result of the edge's inspection of a sleeping client's socket, and what the edge has already handled.
package struct InspectionResult: Sendable, Equatable {
    /// The data left in the socket.
    package enum Rest: Sendable, Equatable {
        case nothing
        /// An incomplete message that may turn out to be noise.
        case partial
        /// Data that the owner must see, or may have to see: conditions as the kernel reports them.
        case significant(Conditions)
        /// More noise than the token bucket allows.
        case noise
        /// A ping that cannot be answered, because the peer does not read.
        case unanswerable

        // In other modules, comparisons of enumerations ask the runtime for the conformance, and copy.

        package var isNothing: Bool {
            if case .nothing = self { true } else { false }
        }

        package var isUnanswerable: Bool {
            if case .unanswerable = self { true } else { false }
        }
    }

    /// Pings of the peer that were answered.
    package var answered = 0
    /// Answers to our ping.
    package var confirmed = 0
    /// Noise of other kinds. Together with `confirmed` it is `OffloadCounters.absorbed`.
    package var otherNoise = 0
    /// The answer to one of our pings is still outstanding.
    package var isAwaitingAnswer = false
    package var rest = Rest.nothing

    package init() {}

    package var noise: Int { answered + confirmed + otherNoise }

    /// Whether there is anything for the owner, which is to be woken.
    package var wakesOwner: Bool {
        switch rest {
        case .nothing, .partial: false
        case .significant, .noise, .unanswerable: true
        }
    }
}

/// Conditions of the owner's last wake that the kernel does not report, and the mark of that wake.
struct FoundConditions: Sendable, Equatable {
    var conditions: Conditions
    var wake: UInt32
}

/// The keep-alive state of a socket with a profile. It is stored apart from `ParkedSocket`, because most
/// sockets have no profile. 40 bytes, because there may be tens of thousands.
struct Offload: Sendable, Equatable {
    /// When the last ping was sent; before the first ping, when the socket was handed over.
    var lastPing: Instant
    /// The token bucket: one piece of noise is allowed for each interval since this instant, up to a burst.
    private var allowedSince: Instant
    private var sums = Sums()
    /// A number in `TermsTable`, because thousands of sockets have the same terms.
    var terms = TermsTable.none
    /// Its number in `OffloadTotals`.
    let profile: UInt8
    private var flags: Flags = []

    private struct Flags: OptionSet, Sendable {
        let rawValue: UInt8

        static let isActive = Flags(rawValue: 1)
        static let hasLeftBeginning = Flags(rawValue: 2)

        mutating func set(_ flag: Flags, to isSet: Bool) {
            if isSet { insert(flag) } else { remove(flag) }
        }
    }

    /// The owner sleeps, and has confirmed that the socket may be used.
    var isActive: Bool {
        get { flags.contains(.isActive) }
        set { flags.set(.isActive, to: newValue) }
    }

    /// The owner was woken while the socket held an incomplete message.
    var hasLeftBeginning: Bool {
        get { flags.contains(.hasLeftBeginning) }
        set { flags.set(.hasLeftBeginning, to: newValue) }
    }

    /// The events that a socket waits for. Few sockets wait for any at a given moment.
    struct Pending: Sendable, Equatable {
        var awaited: Awaited?
        /// The deadline for the rest of an incomplete message.
        var partialUntil: Instant?

        var nextDeadline: Instant? {
            earlier(partialUntil, earlier(awaited?.until, awaited?.repeatAt))
        }
    }

    /// A ping without an answer so far.
    struct Awaited: Sendable, Equatable {
        var until: Instant
        var repeatAt: Instant?
        var pause: Duration
        var left: Int
    }

    /// `OffloadCounters` of one socket. Each counter stops at 4,294,967,295.
    private struct Sums: Sendable, Equatable {
        var sent: UInt32 = 0
        var confirmed: UInt32 = 0
        var answered: UInt32 = 0
        var absorbed: UInt32 = 0
        var wakesAvoided: UInt32 = 0
    }

    init(_ profile: UInt8, at now: Instant, _ rate: NoiseRate) {
        self.profile = profile
        lastPing = now
        allowedSince = rate.fullAllowance(at: now)
    }

    var counters: OffloadCounters {
        get {
            var counters = OffloadCounters()
            (counters.sent, counters.confirmed) = (UInt64(sums.sent), UInt64(sums.confirmed))
            (counters.answered, counters.absorbed) = (UInt64(sums.answered), UInt64(sums.absorbed))
            counters.wakesAvoided = UInt64(sums.wakesAvoided)
            return counters
        }
        set {
            sums.sent = UInt32(clamping: newValue.sent)
            sums.confirmed = UInt32(clamping: newValue.confirmed)
            sums.answered = UInt32(clamping: newValue.answered)
            sums.absorbed = UInt32(clamping: newValue.absorbed)
            sums.wakesAvoided = UInt32(clamping: newValue.wakesAvoided)
        }
    }

    // MARK: Rate limit for noise

    /// The number of pieces of noise that may be handled now.
    func allowance(at now: Instant, _ rate: NoiseRate) -> Int {
        let since = max(allowedSince, rate.fullAllowance(at: now))
        let (passed, overflow) = now.nanoseconds.subtractingReportingOverflow(since.nanoseconds)
        return Int(clamping: max(0, overflow ? .max : passed) / rate.pause)
    }

    mutating func use(_ count: Int, at now: Instant, _ rate: NoiseRate) {
        let used = Int64(min(count, allowance(at: now, rate))) * rate.pause
        allowedSince = max(allowedSince, rate.fullAllowance(at: now)).advanced(byNanoseconds: used)
    }
}

/// The settings of the token bucket in nanoseconds, converted once and not with each ping.
struct NoiseRate: Sendable, Equatable {
    /// The time in which one token is added.
    let pause: Int64
    /// The time in which an empty bucket becomes full.
    private let capacity: Int64

    init(_ settings: Settings.Offload) {
        pause = max(1, settings.noiseInterval.nanoseconds)
        let (length, overflows) = pause.multipliedReportingOverflow(by: Int64(max(1, settings.noiseBurst)))
        capacity = overflows ? .max : length
    }

    /// The value of `allowedSince` at which the bucket is full now.
    func fullAllowance(at now: Instant) -> Instant { now.advanced(byNanoseconds: -capacity) }
}
