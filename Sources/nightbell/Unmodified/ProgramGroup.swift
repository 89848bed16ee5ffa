import CLinux
import Glibc
import LinuxSystem
import ProcessWaits
import Suspension

/// The processes of an unmodified program: all that are in the cgroup of its first one, or only that one
/// where it has none of its own.
struct ProgramGroup {
    let pid: pid_t
    /// The directory of the cgroup that the supervisor has made for it; nil: it is stopped by signals.
    let cgroup: String?
    /// Whether the cgroup is a manager's, which freezes and thaws it.
    private let isManaged: Bool

    /// - Parameter cgroup: the directory of the cgroup of a unit.
    init(_ pid: pid_t, unit cgroup: String) {
        self.pid = pid
        self.cgroup = cgroup
        isManaged = true
    }

    init(_ pid: pid_t) {
        self.pid = pid
        isManaged = false
        let directory = CgroupMount.find()?.directory(of: pid)
        let isOwn = directory?.split(separator: "/").last?.hasPrefix("client-") ?? false
        cgroup = isOwn ? directory : nil
    }

    /// A reason why the program cannot be looked at.
    struct Failure: Error { let reason: String }

    func processes() throws(Failure) -> [pid_t] {
        guard let cgroup else {
            guard ProcFS.children(pid).isEmpty else {
                throw Failure(
                    reason: "it has several processes, and only single ones can be stopped by signals")
            }
            return [pid]
        }
        let found: [pid_t]
        do throws(SystemError) {
            found = try Self.processes(in: cgroup)
        } catch {
            throw Failure(reason: "its processes cannot be listed: \(error)")
        }
        guard found.contains(pid) else { throw Failure(reason: "it was moved to another cgroup") }
        return found
    }

    static func processes(in cgroup: String) throws(SystemError) -> [pid_t] {
        var found = try SmallFile.readText(cgroup + "/cgroup.procs").split(separator: "\n").compactMap {
            pid_t($0)
        }
        // A program may make cgroups below its own.
        for child in try CgroupMount.children(of: cgroup) { found += try processes(in: child) }
        return found
    }

    /// Takes processes in that do not belong to it yet, and those that they start meanwhile.
    ///
    /// - Parameter members: all that are to belong to it now.
    func include(_ members: () -> [pid_t]) throws(Failure) {
        guard let cgroup else {
            let count = members().count(where: Self.mayRun)
            guard count <= 1 else {
                throw Failure(
                    reason: "it has \(count) processes, and only single ones can be stopped by signals")
            }
            return
        }
        for _ in 0..<Self.mostPasses {
            let known = Set(try processes())
            let missing = members().filter { !known.contains($0) && Self.mayRun($0) }
            if missing.isEmpty { return }
            for member in missing { try move(member, to: cgroup) }
        }
        throw Failure(reason: "it starts processes faster than they can be taken in")
    }

    private static let mostPasses = 64

    /// Whether it has not ended. One that its parent has not waited for yet stays where it is.
    private static func mayRun(_ pid: pid_t) -> Bool {
        ProcFS.state(pid).map { $0 != "Z" && $0 != "X" } ?? false
    }

    private func move(_ member: pid_t, to cgroup: String) throws(Failure) {
        do throws(SystemError) {
            try SmallFile.write("\(member)", to: cgroup + "/cgroup.procs")
        } catch {
            // It has ended.
            guard error.code != ESRCH else { return }
            throw Failure(reason: "its process \(member) cannot be put to sleep with it: \(error)")
        }
    }

    /// Lets it run, without a supervisor.
    func thaw() {
        guard !isManaged else { return }
        if let cgroup {
            try? SmallFile.write("0", to: cgroup + "/cgroup.freeze")
        } else {
            kill(pid, SIGCONT)
        }
    }
}

/// All processes of a program at one moment.
struct GroupLook {
    var processes: [ProcessLook]
    /// When it began, in nanoseconds of `CLOCK_MONOTONIC`.
    let at: Int64

    init(_ group: ProgramGroup) throws(ProgramGroup.Failure) {
        at = RunningClock.now()
        processes = []
        for pid in try group.processes() {
            do throws(SystemError) {
                if let look = try ProcessLook.take(pid, .waits) { processes.append(look) }
            } catch {
                throw ProgramGroup.Failure(reason: "it cannot be looked at: \(error)")
            }
        }
        guard !processes.isEmpty else { throw ProgramGroup.Failure(reason: "it has ended") }
    }

    /// How each thread waits, and how often it has run.
    var threads: [pid_t: ProcessLook.Thread] {
        var threads: [pid_t: ProcessLook.Thread] = [:]
        for process in processes { for thread in process.threads { threads[thread.id] = thread } }
        return threads
    }

    /// Something that has happened between two looks.
    struct Change {
        /// A thread that has run, has come or gone.
        let thread: pid_t
        /// It has only woken up by itself, looked around and waits again: how often a second. nil: it has
        /// done more.
        let ticksPerSecond: Int?
    }

    /// The most telling change since an earlier look; nil: none.
    ///
    /// - Parameter ignoresTicks: whether threads that have only woken up by themselves do not count.
    func change(since earlier: GroupLook, ignoresTicks: Bool) -> Change? {
        let (before, after) = (earlier.threads, threads)
        var tick: Change?
        for (id, thread) in after {
            guard let old = before[id] else { return Change(thread: id, ticksPerSecond: nil) }
            if thread.activity != nil, thread.activity == old.activity, thread.state == old.state {
                continue
            }
            guard let rate = thread.ticksPerSecond(since: old, within: at - earlier.at) else {
                return Change(thread: id, ticksPerSecond: nil)
            }
            tick = Change(thread: id, ticksPerSecond: rate)
        }
        if let gone = before.keys.first(where: { after[$0] == nil }) {
            return Change(thread: gone, ticksPerSecond: nil)
        }
        return ignoresTicks ? nil : tick
    }

    /// Why the program must stay awake, whatever it has done; nil: it need not.
    var obstacle: String? {
        for process in processes {
            if let obstacle = SleepAssessment(process, process, interval: .seconds(1)).obstacles.first {
                return ProgramFindings.words(obstacle)
            }
            if process.threads.contains(where: { $0.activity == nil }) {
                return "this kernel does not count how often its threads run"
            }
        }
        return nil
    }

    // MARK: After the freeze

    /// Whether the program, which is frozen now, still waits as it did before: nothing has been taken from
    /// what it waits for, and nothing else has begun.
    func isFrozen(_ group: ProgramGroup) -> Bool {
        guard let now = try? GroupLook(group) else { return false }
        let (before, after) = (threads, now.threads)
        guard before.count == after.count else { return false }
        return after.allSatisfy { id, thread in
            guard let old = before[id], case .blocked(let call) = thread.state,
                case .blocked(let oldCall) = old.state, call.number == oldCall.number,
                call.arguments == oldCall.arguments, thread.interests == old.interests,
                let runs = thread.activity?.runs, let oldRuns = old.activity?.runs
            else { return thread.hasEnded && before[id]?.hasEnded ?? false }
            // The freeze itself makes a thread run, once. One that was woken at that moment has run once as
            // well, and holds what it was woken for. The end of a sleep is a timer's, which is watched.
            return runs <= oldRuns + 1 && (call.kind == .sleep || Self.isInterrupted(id))
        }
    }

    /// Whether a frozen thread's call has been interrupted, and not ended.
    private static func isInterrupted(_ thread: pid_t) -> Bool {
        var result = 0
        guard unsafe clinux_pending_result(thread, &result) == 0 else { return false }
        let goesOn = -516...(-512)
        return result == -Int(EINTR) || goesOn.contains(result)
    }
}

extension ProcessLook.Thread {
    /// It has ended, and others of its process go on.
    fileprivate var hasEnded: Bool { schedulerState == "Z" || schedulerState == "X" }

    /// How often the thread has run between two looks, if it did nothing but look around: it waits as before,
    /// with a timeout, and has hardly used a processor. nil: it has done more.
    ///
    /// - Parameter time: between the looks, in nanoseconds.
    fileprivate func ticksPerSecond(since old: Self, within time: Int64) -> Int? {
        switch end {
        case .after, .at: break
        case .never, .unknown: return nil
        }
        guard time > 0, interests == old.interests, let activity, let before = old.activity,
            activity.runs >= before.runs, activity.nanoseconds >= before.nanoseconds,
            case .blocked(let call) = state, case .blocked(let oldCall) = old.state, call.kind == oldCall.kind
        else { return nil }
        let rate = Double(activity.runs - before.runs) * 1e9 / Double(time)
        let share = Double(activity.nanoseconds - before.nanoseconds) / Double(time)
        return rate <= 100 && share <= 0.02 ? Int(rate.rounded(.up)) : nil
    }
}
