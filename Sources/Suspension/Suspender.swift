package import CLinux
import Glibc
package import LinuxSystem

/// The method of stopping clients.
package enum SuspensionMethod: String, Sendable, Hashable, CaseIterable {
    /// The best available: `cgroup`, else `signal`.
    case auto
    /// The kernel's freezer, one cgroup per client.
    case cgroup
    /// `SIGSTOP` and `SIGCONT`.
    case signal
    /// No client is stopped; for tests and for clients that only want their sockets watched.
    case none
}

package enum FreezeProgress: Sendable, Hashable {
    /// The kernel confirmed it: no thread of the client runs.
    case frozen
    /// In progress; call `progress` again.
    case pending
}

/// The state in which an earlier run has left a process.
package enum FoundState: Sendable, Hashable {
    case running
    /// A stop was requested, or another process has continued it since.
    case stopping
    case stopped
}

/// The names that keep the cgroups of several supervisors on one machine apart.
package struct InstanceNames: Sendable, Hashable {
    /// Part of a directory name, such as `system` or `1000`.
    package let name: String
    /// The cgroup for all clients, such as `/nightbell.slice`; nil: below the cgroup that each is in, or else
    /// below the instance's own.
    package let cgroupParent: String?

    package init(name: String, cgroupParent: String? = nil) {
        self.name = name
        self.cgroupParent = cgroupParent
    }
}

/// A process that an earlier run had left stopped, and the result of thawing it.
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

/// Suspends and thaws clients, identified by slot. It shares no state with other threads, so it stays on the
/// thread that made it.
package protocol Suspender: AnyObject {
    /// Never `auto`.
    var method: SuspensionMethod { get }

    /// The method for this client; differs from `method` only if `auto` had to fall back.
    func method(slot: UInt32) -> SuspensionMethod

    /// A description of place and method, to read.
    var detail: String { get }

    /// Whether a process is attached in this slot.
    func isAttached(slot: UInt32) -> Bool

    /// Prepares to stop a process. Does nothing if this very process is attached already; another one in the
    /// slot is detached first.
    func attach(slot: UInt32, process: borrowing ProcessHandle) throws(SuspensionError)

    /// Has a descendant of the attached process stopped along with it, if the method can do that: one that
    /// was started before it was attached.
    func include(slot: UInt32, descendant pid: pid_t) throws(SuspensionError)

    /// Like `attach`, for a process that an earlier run of this instance may have stopped. Returns the state
    /// that it is in: a process that was being stopped by a signal is continued. `wasStopped`: it is believed
    /// to have been stopped, which is used if its state cannot be read.
    func reattach(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> FoundState

    /// Stops it. `pending`: the kernel needs a moment, call `progress`.
    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress

    /// Checks again. `frozen` is returned only if it is true now.
    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress

    /// Undoes `freeze` only: a process that was stopped by another one stays stopped. May be called at any
    /// time.
    func thaw(slot: UInt32) throws(SuspensionError)

    /// A prepared `thaw` of a client that was frozen just now.
    func quickThaw(slot: UInt32) -> QuickThaw

    /// The client's `quickThaw` was performed. May be called again.
    func markThawed(slot: UInt32)

    /// Does the work that a thaw has deferred to keep the wake path short. Call it now and then.
    func finishDeferredWork()

    /// Thaws the process, returns it to its origin, and forgets it. Never fails.
    func detach(slot: UInt32)

    /// Detaches all clients and removes everything that this instance has made.
    func detachAll()

    /// At start: thaws all processes that an earlier run of this instance left stopped, by either method.
    func thawLeftovers() -> [LeftoverReport]
}

extension Suspender {
    package func method(slot: UInt32) -> SuspensionMethod { method }

    package func finishDeferredWork() {}

    package func include(slot: UInt32, descendant pid: pid_t) throws(SuspensionError) {}
}

extension ProcessHandle {
    /// The start time of the process. `processGone` is thrown only if it is certain.
    borrowing func startTime(_ attempt: String) throws(SuspensionError) -> UInt64 {
        do {
            if let statistics = try ProcFS.readStatistics(pid), !hasExited { return statistics.startTime }
        } catch {
            throw SuspensionError(attempt, error)
        }
        throw SuspensionError(.processGone, attempt)
    }
}

/// Makes the suspender for a method; `auto` falls back to signals if the freezer cannot be used.
package func makeSuspender(
    _ wanted: SuspensionMethod, instance: InstanceNames, state: RuntimeState
) throws(SuspensionError) -> any Suspender {
    switch wanted {
    case .none: return NoSuspension(instance: instance, state: state)
    case .signal: return StopSignal(instance: instance, state: state)
    case .cgroup: return try CgroupFreezer(instance: instance, state: state)
    case .auto:
        let signals = StopSignal(instance: instance, state: state)
        do {
            return PreferredSuspender(try CgroupFreezer(instance: instance, state: state), else: signals)
        } catch {
            signals.reason = "the freezer cannot be used: \(error)"
            return signals
        }
    }
}
