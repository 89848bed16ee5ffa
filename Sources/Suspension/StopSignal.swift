import CLinux
import Glibc
import LinuxSystem

/// `SIGSTOP` and `SIGCONT`: works everywhere and without privileges, but the process's parent sees it, and a
/// `SIGCONT` from any process ends it.
final class StopSignal: Suspender {
    private final class Client {
        enum State {
            case running
            /// Stopped by this supervisor, which continues it.
            case stopped
            /// It was stopped already (`^Z`), so it stays stopped at a thaw.
            case stoppedByOthers
        }

        let process: ProcessHandle
        let startTime: UInt64
        var state = State.running

        var name: RuntimeState.Process { RuntimeState.Process(pid: process.pid, startTime: startTime) }

        init(process: consuming ProcessHandle, startTime: UInt64) {
            self.process = process
            self.startTime = startTime
        }
    }

    private let instance: InstanceNames
    private let record: RuntimeState
    private var clients = ClientSlots<Client>()
    /// Clients that run, and are still recorded as stopped.
    private var resumed: [Client] = []

    /// The reason for not using the freezer; part of `detail`.
    var reason: String?

    init(instance: InstanceNames, state: RuntimeState) {
        self.instance = instance
        record = state
    }

    var method: SuspensionMethod { .signal }

    var detail: String { reason.map { "SIGSTOP and SIGCONT; \($0)" } ?? "SIGSTOP and SIGCONT" }

    func isAttached(slot: UInt32) -> Bool { clients[slot] != nil }

    func attach(slot: UInt32, process: borrowing ProcessHandle) throws(SuspensionError) {
        let attempt = "attach \(process.pid)"
        let startTime = try process.startTime(attempt)
        if let client = clients[slot] {
            if client.process.pid == process.pid, client.startTime == startTime { return }
            detach(slot: slot)
        }
        do {
            // Signal 0 only checks the permission.
            try process.signal(0)
            clients[slot] = Client(process: try process.duplicate(), startTime: startTime)
        } catch {
            throw SuspensionError(attempt, error)
        }
    }

    /// Whether an earlier run has recorded this very process as stopped.
    func hasStopped(_ process: borrowing ProcessHandle) -> Bool {
        guard let startTime = record.stopped[process.pid] else { return false }
        return startTime == ProcFS.startTime(process.pid)
    }

    func reattach(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> FoundState {
        try attach(slot: slot, process: process)
        let client = try client(slot, "reattach")
        if hasStopped(process) {
            client.state = .stopped
            if try Self.isStopped(client, "T", "t") { return .stopped }
            // It was continued since, or the signal is still pending: either way it has to run.
            try thaw(slot: slot)
            finishDeferredWork()
            return .running
        }
        guard wasStopped, try Self.isStopped(client, "T") else { return .running }
        client.state = .stoppedByOthers
        return .stopped
    }

    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        let client = try client(slot, "freeze")
        let attempt = "freeze \(client.process.pid)"
        switch client.state {
        case .stopped, .stoppedByOthers: return try progress(slot: slot)
        case .running: break
        }
        if try Self.isStopped(client, "T") {
            client.state = .stoppedByOthers
            return .frozen
        }
        do {
            // Recorded first: after a crash in between, the next start continues a running process, which is
            // harmless.
            try record.noteStopped(client.name)
            client.state = .stopped
            try client.process.signal(SIGSTOP)
        } catch {
            client.state = .running
            record.noteResumed([client.name])
            throw SuspensionError(attempt, error)
        }
        return try progress(slot: slot)
    }

    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        let client = try client(slot, "freeze")
        switch client.state {
        case .running: return .pending
        case .stopped, .stoppedByOthers: return try Self.isStopped(client, "T", "t") ? .frozen : .pending
        }
    }

    func thaw(slot: UInt32) throws(SuspensionError) {
        let client = try client(slot, "thaw")
        switch client.state {
        case .running: return
        case .stoppedByOthers: client.state = .running
        case .stopped:
            do {
                try client.process.signal(SIGCONT)
            } catch {
                guard error.code == ESRCH else {
                    throw SuspensionError("thaw \(client.process.pid)", error)
                }
            }
            client.state = .running
            resumed.append(client)
        }
    }

    func quickThaw(slot: UInt32) -> QuickThaw {
        guard let client = clients[slot], client.state == .stopped else { return .none }
        return .pidfd(client.process.pidfdValue)
    }

    func markThawed(slot: UInt32) {
        guard let client = clients[slot] else { return }
        if client.state == .stopped { resumed.append(client) }
        client.state = .running
    }

    func finishDeferredWork() {
        guard !resumed.isEmpty else { return }
        // The record of a client that was stopped again is correct.
        record.noteResumed(resumed.filter { $0.state != .stopped }.map(\.name))
        resumed.removeAll(keepingCapacity: true)
    }

    func detach(slot: UInt32) {
        // On failure it stays recorded for the next start.
        try? thaw(slot: slot)
        finishDeferredWork()
        clients.remove(slot)
    }

    func detachAll() {
        for slot in clients.slots { detach(slot: slot) }
    }

    func thawLeftovers() -> [LeftoverReport] {
        Leftovers.thaw(of: instance, in: record)
    }

    private func client(_ slot: UInt32, _ attempt: String) throws(SuspensionError) -> Client {
        if let client = clients[slot] { return client }
        throw SuspensionError(.notAttached, "\(attempt) slot \(slot)")
    }

    /// Whether every thread is in one of the given states: the leader stops before the others do.
    private static func isStopped(_ client: Client, _ states: Character...) throws(SuspensionError) -> Bool {
        let pid = client.process.pid
        do throws(SystemError) {
            if let leader = try ProcFS.readStatistics(pid), leader.startTime == client.startTime,
                !client.process.hasExited
            {
                if leader.threads == 1 { return states.contains(leader.state) }
                for thread in try ProcFS.readThreadIdentifiers(pid) {
                    // An exiting thread does not run any more; a leader may end before the others.
                    guard let state = try ProcFS.readStatistics(pid, thread: thread)?.state else { continue }
                    guard states.contains(state) || state == "Z" || state == "X" else { return false }
                }
                return true
            }
        } catch {
            throw SuspensionError("freeze \(pid)", error)
        }
        throw SuspensionError(.processGone, "freeze \(pid)")
    }
}
