import EventLoop
import LinuxSystem
import NightbellCore

/// The one timer of the supervisor: it begins a turn when something is due.
struct TurnTimer: ~Copyable {
    private let timer: TimerDescriptor
    private let watch: Watch
    private var armed: Instant?

    /// It fires at once: the first turn begins, or recovers.
    init(_ loop: LoopExecutor) throws {
        let timer = try TimerDescriptor()
        let watch = try loop.watch(timer.rawValue, .read, .persistent, token: WatchToken(.timer).rawValue)
        try timer.set(absoluteNanoseconds: 0)
        try watch.arm()
        self.timer = timer
        self.watch = watch
    }

    /// - Parameter deadline: in elapsed time; nil: never.
    mutating func set(_ deadline: Instant?) {
        guard deadline != armed else { return }
        armed = deadline
        do {
            try timer.set(absoluteNanoseconds: deadline?.nanoseconds)
        } catch {
            preconditionFailure("a timer of our own can be set: \(error)")
        }
    }

    /// Sets an earlier deadline, in elapsed time; nil: none.
    mutating func bringForward(to deadline: Instant?) {
        guard let deadline else { return }
        if let armed, armed <= deadline { return }
        set(deadline)
    }

    /// Whether it is about to fire.
    func isDue(at elapsed: Instant) -> Bool {
        guard let armed else { return false }
        return armed <= elapsed
    }

    /// It has fired.
    mutating func clear() {
        armed = nil
        do {
            try timer.clear()
        } catch {
            preconditionFailure("a timer of our own can be read: \(error)")
        }
    }
}
