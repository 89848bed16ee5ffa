/// What was done for the owner of a socket while it slept.
public struct OffloadCounters: Sendable, Equatable {
    /// Pings sent in the owner's name.
    public var sent: UInt64 = 0
    /// Those of them that the peer has answered.
    public var confirmed: UInt64 = 0
    /// Pings of the peer that were answered.
    public var answered: UInt64 = 0
    /// Noise that was taken from the socket and wanted no answer, answers to our own pings included.
    public var absorbed: UInt64 = 0
    /// How often the owner would have been woken otherwise: once for each ping that was sent, and for each time
    /// that there was nothing but noise to read.
    public var wakesAvoided: UInt64 = 0

    public init() {}

    package static func += (left: inout OffloadCounters, right: OffloadCounters) {
        left.sent += right.sent
        left.confirmed += right.confirmed
        left.answered += right.answered
        left.absorbed += right.absorbed
        left.wakesAvoided += right.wakesAvoided
    }
}

/// When pings are sent for a socket, and what is to be heard of them. What they are, the edge knows.
public struct PingTerms: Sendable, Hashable {
    /// A ping is sent so long after the one before, not earlier …
    public var earliest: Duration
    /// … and not later.
    public var latest: Duration
    /// None: no answer is expected.
    public var answerWithin: Duration?
    /// From a ping to its first repetition; each pause after that is twice as long.
    public var repeatAfter: Duration
    /// How many repetitions there are at most.
    public var repetitions: Int

    public init(
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

/// What the edge has found in a socket of a sleeper, and has done about it.
public struct Judgement: Sendable, Equatable {
    /// What is left in the socket.
    public enum Rest: Sendable, Equatable {
        case nothing
        /// The beginning of what may become noise.
        case partial
        /// What the owner has to see, or might have to: conditions as the kernel tells them.
        case significant(Conditions)
        /// Noise, and more of it than was allowed.
        case noise
        /// A ping that cannot be answered, because the peer takes nothing.
        case unanswerable
    }

    /// Pings of the peer that were answered.
    public var answered = 0
    /// Answers to our ping.
    public var confirmed = 0
    /// Noise of other kinds.
    public var absorbed = 0
    /// A ping of ours still waits for its answer.
    public var isAwaitingAnswer = false
    public var rest = Rest.nothing

    public init() {}

    public var noise: Int { answered + confirmed + absorbed }
}

/// What the owner of a socket was woken for last that the kernel does not tell, and the mark of that wake.
struct Finding: Sendable, Equatable {
    var conditions: Conditions
    var wake: UInt32
}

/// What is kept of a socket whose pings are dealt with while its owner sleeps. Kept apart from what is known of every
/// socket: most have no profile. 40 bytes, because there may be tens of thousands.
struct Offload: Sendable, Equatable {
    /// When a ping was sent last, or else when the socket was handed over.
    var lastPing: Instant
    /// Noise is dealt with once for each interval that has passed since, up to a burst.
    private var allowedSince: Instant
    private var sums = Sums()
    /// A number of the table's: sockets by the thousand have the same terms.
    var terms = TermsTable.none
    /// The owner sleeps, and has vouched for the socket.
    var isActive = false
    /// The owner has been woken, and the beginning of a message was there.
    var hasLeftBeginning = false

    /// What of a socket is waited for. Few sockets wait for anything at any moment.
    struct Pending: Sendable, Equatable {
        var awaited: Awaited?
        /// The beginning of a message is there, and until when the rest of it may take.
        var partialUntil: Instant?

        var nextDeadline: Instant? {
            earlier(partialUntil, earlier(awaited?.until, awaited?.repeatAt))
        }
    }

    /// A ping that was not answered yet.
    struct Awaited: Sendable, Equatable {
        var until: Instant
        var repeatAt: Instant?
        var pause: Duration
        var left: Int
    }

    /// `OffloadCounters` of one socket: 4,294,967,295 are as good as more.
    private struct Sums: Sendable, Equatable {
        var sent: UInt32 = 0
        var confirmed: UInt32 = 0
        var answered: UInt32 = 0
        var absorbed: UInt32 = 0
        var wakesAvoided: UInt32 = 0
    }

    init(at now: Instant, _ settings: Settings.Offload) {
        lastPing = now
        allowedSince = settings.fullAllowance(at: now)
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

    // MARK: How much noise is dealt with

    /// How many pieces of noise may be dealt with at this moment.
    func allowance(at now: Instant, _ settings: Settings.Offload) -> Int {
        let passed = now.since(max(allowedSince, settings.fullAllowance(at: now))).nanoseconds
        return Int(clamping: max(0, passed) / settings.noisePause)
    }

    mutating func use(_ count: Int, at now: Instant, _ settings: Settings.Offload) {
        let used = Int64(min(count, allowance(at: now, settings))) * settings.noisePause
        allowedSince = max(allowedSince, settings.fullAllowance(at: now)) + .nanoseconds(used)
    }
}

extension Settings.Offload {
    fileprivate var noisePause: Int64 { max(1, noiseInterval.nanoseconds) }

    /// Since when there must have been no noise for a whole burst to be allowed now.
    fileprivate func fullAllowance(at now: Instant) -> Instant {
        let (length, overflows) = noisePause.multipliedReportingOverflow(by: Int64(max(1, noiseBurst)))
        return now - .nanoseconds(overflows ? .max : length)
    }
}
