/// A client's reasons not to be suspended: its background tasks and its media activity.
struct Assertions: Sendable, Equatable {
    struct Task: Sendable, Equatable {
        var id: UInt64
        /// The request that began it.
        var request: UInt64
        var name: String
    }

    private(set) var tasks: [Task] = []
    private(set) var nextTask: UInt64 = 1
    /// Media counts as playing until then.
    private(set) var mediaUntil: Instant?
    private(set) var time = Time.full

    init() {}

    /// Where other ones left off.
    init(tasks: [Task], nextTask: UInt64, mediaUntil: Instant?, time: Time) {
        self.tasks = tasks
        self.nextTask = nextTask
        self.mediaUntil = mediaUntil
        self.time = time
    }

    /// The time that all tasks of one stay in the background share.
    enum Time: Sendable, Equatable {
        /// No task was held in the background yet.
        case full
        /// The clock runs: it began with the first task and does not stop with the last.
        case running(until: Instant, notified: Bool)
    }

    /// What has become due.
    enum Due {
        case nothing
        case notice(remaining: Duration)
        case overrun
    }

    var hasTasks: Bool { !tasks.isEmpty }

    func mediaPlays(at now: Instant) -> Bool {
        mediaUntil.map { now < $0 } ?? false
    }

    func holds(at now: Instant) -> Bool {
        hasTasks || mediaPlays(at: now)
    }

    /// Whether so little of the time of this stay is left that no further task can be granted: its client would be told
    /// of the end with less time than was promised, or has been told already.
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

    /// Media shows a sign of life: the clock of the tasks stands still until it lapses.
    mutating func renewMedia(until instant: Instant) {
        mediaUntil = instant
        time = .full
    }

    /// The client is in the background: the clock runs if tasks are held and no media plays.
    mutating func runClock(at now: Instant, budget: Duration) {
        if let mediaUntil, now >= mediaUntil { self.mediaUntil = nil }
        guard mediaUntil == nil, hasTasks, case .full = time else { return }
        time = .running(until: now + budget, notified: false)
    }

    /// The client was suspended or is in the foreground: the next stay has all its time again.
    mutating func restoreTime() {
        time = .full
    }

    /// What is due at `now` in the background. The notice comes first in any case, with its whole time: nobody is
    /// ended without one because the machine slept or the loop was busy.
    mutating func takeDue(at now: Instant, notice: Duration) -> Due {
        guard hasTasks, case .running(var until, let notified) = time else { return .nothing }
        if notified { return now >= until ? .overrun : .nothing }
        guard now >= until - notice else { return .nothing }
        until = max(until, now + notice)
        time = .running(until: until, notified: true)
        return .notice(remaining: until.since(now))
    }

    /// As `takeDue`, for somebody who was warned and may not have heard it.
    mutating func warnAgain(at now: Instant, notice: Duration) -> Duration? {
        guard hasTasks, case .running(let until, notified: true) = time else { return nil }
        let later = max(until, now + notice)
        time = .running(until: later, notified: true)
        return later.since(now)
    }

    /// When something becomes due in the background.
    func nextDeadline(notice: Duration) -> Instant? {
        if let mediaUntil { return mediaUntil }
        guard hasTasks, case .running(let until, let notified) = time else { return nil }
        return notified ? until : until - notice
    }

    /// What is left of the time; `nil` is unlimited.
    func timeLeft(at now: Instant, budget: Duration) -> Duration? {
        if mediaPlays(at: now) { return nil }
        return switch time {
        case .full: budget
        case .running(let until, _): max(.zero, until.since(now))
        }
    }
}
