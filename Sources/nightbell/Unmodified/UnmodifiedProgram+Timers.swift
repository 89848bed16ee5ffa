import CLinux
import Glibc
import LinuxSystem
import Manifests
import Presentation
import ProcessWaits

/// When a sleeping program is thawed for the ends of its threads' waits.
extension UnmodifiedProgram {
    /// It is thawed a little before the end of a wait, which it then reaches running.
    private static let lead: Int64 = 1_000_000

    /// - Returns: whether the program wakes up by itself before long: then it is left awake.
    func addTimers(_ look: GroupLook) throws(WakeSet.Obstacle) -> Bool {
        prolonged.removeAll()
        var earliest: [CInt: (time: Int64, thread: pid_t)] = [:]
        var offsets: [CInt: Int64?] = [:]
        for process in look.processes {
            if let timers = try? SmallFile.read("/proc/\(process.pid)/timers"), !timers.isEmpty {
                throw WakeSet.Obstacle(reason: "it has POSIX timers, which cannot be seen")
            }
            for thread in process.threads {
                let deadline = waits.deadline(of: thread) {
                    Self.ranUntil(process.pid, thread.id, &offsets)
                }
                switch deadline {
                case .never: break
                case .unknown:
                    throw WakeSet.Obstacle(reason: "when thread \(thread.id) goes on cannot be seen")
                case .at(let time, let clock):
                    if case .blocked(let call) = thread.state, call.prolongedTimeout != nil {
                        prolonged.append((thread.id, call, time))
                    }
                    if time < earliest[clock]?.time ?? .max { earliest[clock] = (time, thread.id) }
                }
            }
        }
        let now = RunningClock.now()
        for (clock, (time, thread)) in earliest {
            let time = wakeTime(for: time, clock, at: now)
            let left = time.subtractingClamped(Self.now(clock))
            guard left >= options.sleep.idle.nanoseconds else {
                stayAwake("thread \(thread) wakes up within \(Human.duration(options.sleep.idle))")
                state = .awake(nextLook: now + max(left, 0) + Self.lead, last: nil)
                return true
            }
            try wakeSet.addTimer(at: time - Self.lead, clock: clock)
        }
        return false
    }

    /// When the program is thawed for the end of a wait, of the same clock.
    private func wakeTime(for end: Int64, _ clock: CInt, at now: Int64) -> Int64 {
        guard case .coalesce(let most) = options.sleep.timers else { return end }
        // All programs have that clock in common.
        let ahead = Self.now(clock).subtractingClamped(now)
        let earliest = end.subtractingClamped(ahead)
        let latest = earliest.addingClamped(most.nanoseconds)
        // Not before a sleep is worth while, if that is possible.
        let start = min(latest, max(earliest, now + options.sleep.idle.nanoseconds))
        return CommonInstant.within(start...latest).addingClamped(ahead)
    }

    private static func now(_ clock: CInt) -> Int64 {
        var time = timespec()
        unsafe clock_gettime(clock, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }

    /// When a thread ran last, of `CLOCK_MONOTONIC`.
    private static func ranUntil(_ pid: pid_t, _ thread: pid_t, _ offsets: inout [CInt: Int64?]) -> Int64? {
        let time = clinux_ran_until(pid, thread)
        guard time >= 0, let processor = ProcFS.statistics(pid, thread: thread)?.processor else { return nil }
        if offsets[processor] == nil {
            var offset: Int64 = 0
            let isKnown = unsafe clinux_scheduler_offset(processor, &offset) == 0
            offsets[processor] = .some(isKnown ? offset : nil)
        }
        return offsets[processor]?.map { time + $0 }
    }
}

extension Int64 {
    fileprivate func subtractingClamped(_ other: Int64) -> Int64 {
        let (difference, overflows) = subtractingReportingOverflow(other)
        return overflows ? .max : difference
    }

    fileprivate func addingClamped(_ other: Int64) -> Int64 {
        let (sum, overflows) = addingReportingOverflow(other)
        return overflows ? .max : sum
    }
}
