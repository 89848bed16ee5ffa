package import CLinux
package import Descriptors
import Glibc

/// How clients are stopped.
package enum SuspensionMethod: String, Sendable, Hashable, CaseIterable {
    /// The best that works here: `cgroup`, else `signal`.
    case auto
    /// The kernel's freezer, one cgroup per client.
    case cgroup
    /// `SIGSTOP` and `SIGCONT`.
    case signal
    /// Nothing is stopped; for tests and for clients that only want their sockets watched.
    case none
}

package enum FreezeProgress: Sendable, Hashable {
    /// The kernel confirmed it: nothing of the client runs.
    case frozen
    /// On its way; ask `progress` again.
    case pending
}

/// What an earlier run has made of a process.
package enum Execution: Sendable, Hashable {
    case running
    /// It was asked to stop, or let run by somebody else since.
    case stopping
    case stopped
}

/// The supervisor's own place: what keeps two supervisors on one machine apart.
package struct InstancePaths: Sendable, Hashable {
    /// Part of a directory name, such as `system` or `1000`.
    package let name: String
    /// Exists and is ours. It should not outlive a restart of the machine (`/run`).
    package let runtimeDirectory: String
    /// Where in the cgroup hierarchy to put all clients, such as `/nightbell.slice`; nil: below the cgroup that each is
    /// in, or below our own where that cannot be.
    package let cgroupParent: String?

    package init(name: String, runtimeDirectory: String, cgroupParent: String? = nil) {
        self.name = name
        self.runtimeDirectory = runtimeDirectory
        self.cgroupParent = cgroupParent
    }
}

/// What an earlier run had left stopped, and what became of it.
package struct LeftoverReport: Sendable, Hashable {
    package enum Outcome: Sendable, Hashable {
        case thawed
        case failed(SystemError)
    }

    package let pid: pid_t
    package let method: SuspensionMethod
    package let outcome: Outcome

    package init(pid: pid_t, method: SuspensionMethod, outcome: Outcome) {
        self.pid = pid
        self.method = method
        self.outcome = outcome
    }
}

/// Stops clients and lets them run again. A client is known by its slot; nothing here is shared with other
/// threads, so a suspender stays where it was made.
package protocol Suspender: AnyObject {
    /// Never `auto`.
    var method: SuspensionMethod { get }

    /// How this client is stopped; differs from `method` only where `auto` had to fall back for some.
    func method(slot: UInt32) -> SuspensionMethod

    /// Where and how, for people.
    var detail: String { get }

    /// Whether a process is attached in this slot.
    func isAttached(slot: UInt32) -> Bool

    /// Prepares to stop a process. Nothing happens if this very process is attached already; another one in the
    /// slot is detached first.
    func attach(slot: UInt32, process: borrowing ProcessHandle) throws(SuspensionError)

    /// As `attach`, for a process that an earlier run of this very instance may have stopped: leaves it as it is, and
    /// tells how that is. `wasStopped`: it is believed to have been stopped, which counts where nobody can look.
    func takeUp(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> Execution

    /// Stops it. `pending`: the kernel needs a moment, ask `progress`.
    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress

    /// Looks again. Frozen is only said when it is true now.
    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress

    /// Undoes `freeze`, and only that: who was stopped by somebody else stays stopped. May be called at any time.
    func thaw(slot: UInt32) throws(SuspensionError)

    /// How to do what `thaw` would do to a client that was frozen just now.
    func quickThaw(slot: UInt32) -> QuickThaw

    /// Its `quickThaw` was performed. May be called again.
    func noteThawed(slot: UInt32)

    /// Does what a thaw has left for later, because whoever wakes should not have to wait for it. Call it now and
    /// then.
    func settle()

    /// Thaws the process, puts it back where it was, and forgets it. Never fails: what cannot be undone any more
    /// is gone.
    func detach(slot: UInt32)

    /// Detaches everybody and removes what this instance has made.
    func detachAll()

    /// At start: lets everything run that an earlier run of this instance left stopped, by whichever method.
    func thawLeftovers() -> [LeftoverReport]
}

extension Suspender {
    package func method(slot: UInt32) -> SuspensionMethod { method }

    package func settle() {}
}

extension ProcessHandle {
    /// When the process began. `processGone` is only said when it is true.
    borrowing func startTime(_ attempt: String) throws(SuspensionError) -> UInt64 {
        do {
            if let statistics = try ProcFS.readStatistics(pid), !hasExited { return statistics.startTime }
        } catch {
            throw SuspensionError(attempt, error)
        }
        throw SuspensionError(.processGone, attempt)
    }
}

/// Makes the suspender for a method; `auto` falls back to signals where the freezer cannot be used.
package func makeSuspender(
    _ wanted: SuspensionMethod, instance: InstancePaths
) throws(SuspensionError) -> any Suspender {
    switch wanted {
    case .none: return NoSuspension(instance: instance)
    case .signal: return try StopSignal(instance: instance)
    case .cgroup: return try CgroupFreezer(instance: instance)
    case .auto:
        let signals = try StopSignal(instance: instance)
        do {
            return PreferredSuspender(try CgroupFreezer(instance: instance), else: signals)
        } catch {
            signals.reason = "the freezer cannot be used: \(error)"
            return signals
        }
    }
}
