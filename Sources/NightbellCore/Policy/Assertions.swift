/// Two of a client's reasons not to be suspended, its background tasks and its media activity.
/// `Supervision.suspendIfIdle` has all.
struct Assertions: Sendable, Equatable {
    struct Task: Sendable, Equatable {
        var id: UInt64
        /// The request that began the task.
        var request: UInt64
        var name: String
    }

    private(set) var tasks: [Task] = []
    private(set) var nextTask: UInt64 = 1
    /// Media counts as playing until then; `unlimited`: until its end is reported.
    private(set) var mediaUntil: Instant?
    /// The evidence of it.
    private(set) var mediaWitness: MediaWitness?
    private(set) var time = Time.full

    init() {}

    /// Restores recovered assertions.
    init(tasks: [Task], nextTask: UInt64, mediaUntil: Instant?, time: Time) {
        self.tasks = tasks
        self.nextTask = nextTask
        self.mediaUntil = mediaUntil
        mediaWitness = mediaUntil.map { _ in .earlier }
        self.time = time
    }

    static let unlimited = Instant(nanoseconds: .max)

    /// The time shared by all tasks of one stay in the background.
    enum Time: Sendable, Equatable {
        /// No task was held in the background yet.
        case full
        /// The clock runs: it began with the first task and does not stop with the last.
        case running(until: Instant, notified: Bool)
    }

    /// The part of the time that has ended.
    enum Due {
        case nothing
        case notice(remaining: Duration)
        case overrun
    }

    var hasTasks: Bool { !tasks.isEmpty }

    /// Media counts as playing until its end is reported.
    var mediaEndIsOpen: Bool { mediaUntil == Self.unlimited }

    func mediaPlays(at now: Instant) -> Bool {
        mediaUntil.map { now < $0 } ?? false
    }

    func holds(at now: Instant) -> Bool {
        hasTasks || mediaPlays(at: now)
    }

    /// Whether too little time of this stay is left to grant another task: the notice of the end would come
    /// with less time than promised, or was given already.
    func isTimeUp(at now: Instant, notice: Duration) -> Bool {
        switch time {
        case .full: false
        case .running(let until, let notified): notified || now >= until - notice
        }
    }

    mutating func begin(_ name: String, request: UInt64) -> UInt64 {
        defer { nextTask += 1 }
        tasks.append(Task(id: nextTask, request: request, name: name))
        return nextTask
    }

    /// The task that this request began.
    func task(begunBy request: UInt64) -> UInt64? {
        tasks.first { $0.request == request }?.id
    }

    mutating func end(_ id: UInt64) -> Bool {
        guard let index = tasks.firstIndex(where: { $0.id == id }) else { return false }
        tasks.remove(at: index)
        return true
    }

    /// The client says that media is active: the clock of the tasks stops until the activity lapses.
    mutating func renewMedia(until instant: Instant) {
        if mediaUntil.map({ $0 < instant }) ?? true {
            mediaUntil = instant
            mediaWitness = .word
        }
        time = .full
    }

    /// Media is active, by this evidence, until its end is reported.
    mutating func holdMedia(_ witness: MediaWitness) {
        mediaUntil = Self.unlimited
        mediaWitness = witness
        time = .full
    }

    /// Media counts as playing no longer than until then.
    mutating func endMedia(by instant: Instant) {
        mediaUntil = mediaUntil.map { min($0, instant) }
    }

    /// The client is in the background: the clock runs if tasks are held and no media plays.
    mutating func runClock(at now: Instant, budget: Duration) {
        if let mediaUntil, now >= mediaUntil {
            self.mediaUntil = nil
            mediaWitness = nil
        }
        guard mediaUntil == nil, hasTasks, case .full = time else { return }
        time = .running(until: now + budget, notified: false)
    }

    /// The client was suspended or is in the foreground: the next stay has the whole time again.
    mutating func restoreTime() {
        time = .full
    }

    /// Returns what is due at `now` in the background. The notice always comes first, with its whole time: no
    /// client is terminated without it because the machine slept or the loop was busy.
    mutating func takeDue(at now: Instant, notice: Duration) -> Due {
        guard hasTasks, case .running(var until, let notified) = time else { return .nothing }
        if notified { return now >= until ? .overrun : .nothing }
        guard now >= until - notice else { return .nothing }
        until = max(until, now + notice)
        time = .running(until: until, notified: true)
        return .notice(remaining: until.since(now))
    }

    /// As `takeDue`, for a client that was warned but may not have received the warning.
    mutating func warnAgain(at now: Instant, notice: Duration) -> Duration? {
        guard hasTasks, case .running(let until, notified: true) = time else { return nil }
        let later = max(until, now + notice)
        time = .running(until: later, notified: true)
        return later.since(now)
    }

    /// When something becomes due in the background.
    func nextDeadline(notice: Duration) -> Instant? {
        if let mediaUntil { return mediaUntil == Self.unlimited ? nil : mediaUntil }
        guard hasTasks, case .running(let until, let notified) = time else { return nil }
        return notified ? until : until - notice
    }

    /// The time left; `nil` is unlimited.
    func timeLeft(at now: Instant, budget: Duration) -> Duration? {
        if mediaPlays(at: now) { return nil }
        return switch time {
        case .full: budget
        case .running(let until, _): max(.zero, until.since(now))
        }
    }
}
