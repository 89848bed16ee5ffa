import LinuxSystem
import Logging
import NightbellCore

/// Wakes the machine from its sleep for the next keep-alive handler. The timer of the loop begins the turn
/// then.
struct MachineAlarm: ~Copyable {
    /// nil: no keep-alive has needed it yet, or it is impossible.
    private var timer: TimerDescriptor?
    private var isPrepared = false
    private var isReported = false
    private var armed: Instant?
    /// Why the machine does not wake; empty: it does, or nothing has needed it yet.
    private(set) var problem = ""

    /// - Parameter deadline: in elapsed time; nil: never.
    /// - Returns: why it cannot be set, once.
    mutating func set(_ deadline: Instant?) -> String? {
        guard deadline != armed else { return nil }
        armed = deadline
        if !isPrepared, deadline != nil { prepare() }
        do throws(SystemError) {
            try timer?.set(absoluteNanoseconds: deadline?.nanoseconds)
        } catch {
            preconditionFailure("a timer of our own can be set: \(error)")
        }
        defer { isReported = isReported || !problem.isEmpty }
        return isReported || problem.isEmpty ? nil : problem
    }

    private mutating func prepare() {
        isPrepared = true
        do throws(SystemError) {
            timer = try TimerDescriptor(wakesMachine: true)
            if !TimerDescriptor.canWakeMachine { problem = "it has no real-time clock that can wake it" }
        } catch {
            problem = "the supervisor needs CAP_WAKE_ALARM (\(error))"
        }
    }
}

extension Supervisor {
    /// The machine wakes from its sleep for keep-alive handlers; those inside their windows then run
    /// together.
    func setAlarm() {
        let next = ask { core in core.nextKeepAlive.map { $0 - core.machineSlept } }
        if let problem = alarm.set(next.map { $0 + .nanoseconds(clocks.nanosecondsSlept) }) {
            logger.notice("the machine does not wake from its sleep for keep-alives: \(problem)")
        }
    }

    var alarmProblem: String { alarm.problem }
}
