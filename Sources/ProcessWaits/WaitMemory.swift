import CLinux

/// Knowledge of the present waits of a program's threads, from looks at it: since when each goes on at most,
/// and when it ends. Pure.
///
/// The kernel does not tell when a call with a timeout began, nor, once the thread has been frozen, which
/// call goes on.
package struct WaitMemory: Sendable {
    /// The end of a wait.
    package enum Deadline: Sendable, Hashable {
        case never
        /// In nanoseconds of that clock.
        case at(Int64, clock: CInt)
        case unknown
    }

    fileprivate struct Known {
        var thread: ProcessLook.Thread
        let call: BlockedCall
        /// The time of the last look that did not find it, and of the first that did, of `CLOCK_MONOTONIC`.
        var notBefore: Int64
        var notAfter: Int64
        var deadline: Deadline?
    }

    private var known: [pid_t: Known] = [:]
    private var lastLook: Int64

    /// - Parameter start: a time before the first wait, in nanoseconds of `CLOCK_MONOTONIC`.
    package init(start: Int64) { lastLook = start }

    /// Takes in looks at all processes of the program, and replaces calls that go on after a freeze by the
    /// original ones.
    ///
    /// - Parameter begin: when the looks began, in nanoseconds of `CLOCK_MONOTONIC`.
    package mutating func take(_ processes: inout [ProcessLook], at begin: Int64) {
        var now: [pid_t: Known] = [:]
        for process in processes.indices {
            for thread in processes[process].threads.indices {
                let seen = processes[process].threads[thread]
                guard case .blocked(let call) = seen.state else { continue }
                var wait = Known(thread: seen, call: call, notBefore: lastLook, notAfter: begin)
                if let old = known[seen.id], old.isSame(as: call, of: seen) {
                    wait = old
                    wait.thread.activity = seen.activity
                    wait.thread.schedulerState = seen.schedulerState
                    processes[process].threads[thread] = wait.thread
                }
                now[seen.id] = wait
            }
        }
        known = now
        lastLook = begin
    }

    /// When the wait of a thread ends by itself.
    ///
    /// - Parameter estimate: when the thread ran last, in nanoseconds of `CLOCK_MONOTONIC`. It is trusted as
    ///   far as the looks do not contradict it: a program that is woken too early loses nothing.
    package mutating func deadline(
        of thread: ProcessLook.Thread, estimate: () -> Int64?
    ) -> Deadline {
        guard var wait = known[thread.id] else { return .unknown }
        if let deadline = wait.deadline { return deadline }
        let deadline: Deadline =
            switch thread.end {
            case .never: .never
            case .unknown: .unknown
            case .at(let time, let clock): .at(time.clampedNanoseconds, clock: clock)
            case .after(let time):
                .at(
                    max(wait.notBefore, min(estimate() ?? wait.notBefore, wait.notAfter))
                        .addingClamped(time.clampedNanoseconds),
                    clock: CLOCK_MONOTONIC)
            }
        wait.deadline = deadline
        known[thread.id] = wait
        return deadline
    }
}

extension WaitMemory.Known {
    fileprivate func isSame(as other: BlockedCall, of seen: ProcessLook.Thread) -> Bool {
        guard call.arguments == other.arguments else { return false }
        // A stop makes the thread run; a call with a timeout goes on with the registers of the original one.
        if other.kind == .restarted { return true }
        return call.number == other.number && seen.activity != nil
            && thread.activity?.runs == seen.activity?.runs
    }
}

extension Duration {
    fileprivate var clampedNanoseconds: Int64 {
        let (seconds, attoseconds) = components
        let (nanoseconds, overflows) = seconds.multipliedReportingOverflow(by: 1_000_000_000)
        return overflows ? .max : nanoseconds.addingClamped(attoseconds / 1_000_000_000)
    }
}

extension Int64 {
    fileprivate func addingClamped(_ other: Int64) -> Int64 {
        let (sum, overflows) = addingReportingOverflow(other)
        return overflows ? .max : sum
    }
}
