import CLinux
import Descriptors
import Glibc

/// The kernel's freezer: a cgroup per client, `nightbell-NAME/client-SLOT`. The process does not notice, nor does
/// its parent, and a thaw takes effect in microseconds.
final class CgroupFreezer: Suspender {
    private final class Client {
        let pid: pid_t
        /// nil: it was taken up, and nobody has looked yet.
        var startTime: UInt64?
        /// nil: there is none, or it is noted on the cgroup.
        let origin: Cgroup?
        /// `cgroup.freeze`, kept open: a thaw is one system call.
        let freezer: OwnedDescriptor

        init(pid: pid_t, startTime: UInt64?, origin: Cgroup?, freezer: consuming OwnedDescriptor) {
            self.pid = pid
            self.startTime = startTime
            self.origin = origin
            self.freezer = freezer
        }

        /// What was asked for last: asking twice for the same costs a system call on the way to a wake.
        var isToBeFrozen = false

        func set(frozen: Bool) throws(SystemError) {
            guard frozen || isToBeFrozen else { return }
            let rawValue = freezer.rawValue
            var digit = UInt8(ascii: frozen ? "1" : "0")
            isToBeFrozen = true
            _ = try systemCall("pwrite cgroup.freeze") { unsafe pwrite(rawValue, &digit, 1, 0) }
            isToBeFrozen = frozen
        }
    }

    private let place: InstanceCgroup
    private let instance: InstancePaths
    private var clients = ClientSlots<Client>()
    /// Where the last one came from: clients that were started together share the text.
    private var lastOrigin: Cgroup?

    init(instance: InstancePaths) throws(SuspensionError) {
        self.instance = instance
        place = try InstanceCgroup(instance: instance)
        try place.create()
    }

    var method: SuspensionMethod { .cgroup }

    var detail: String { "cgroup v2 freezer at \(place.cgroup.directory)" }

    var parentDirectory: String { place.parent.directory }

    func isAttached(slot: UInt32) -> Bool { clients[slot] != nil }

    func attach(slot: UInt32, process: borrowing ProcessHandle) throws(SuspensionError) {
        let pid = process.pid
        let attempt = "attach \(pid)"
        let startTime = try process.startTime(attempt)
        if let client = clients[slot] {
            if client.pid == pid, client.startTime ?? startTime == startTime {
                return client.startTime = startTime
            }
            detach(slot: slot)
        }
        let cgroup = place.client(slot)
        let origin = shared(place.origin(of: pid))
        do throws(SystemError) {
            try cgroup.create()
            // A crash may have left it frozen.
            try cgroup.setFrozen(false)
            if let origin { cgroup.note(origin: origin) }
            try cgroup.add(pid)
            let freezer = try cgroup.openFreezer()
            // Alive after the move, it was the one the number meant during the move.
            guard !process.hasExited else { throw SystemError(code: ESRCH, call: "pidfd") }
            clients[slot] = Client(
                pid: pid, startTime: startTime, origin: origin, freezer: freezer)
        } catch {
            _ = cgroup.dissolve(into: origin, else: place.parent)
            throw SuspensionError(attempt, error)
        }
    }

    func takeUp(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> Execution {
        let cgroup = place.client(slot)
        do throws(SystemError) {
            let client = Client(
                pid: process.pid, startTime: nil, origin: nil, freezer: try cgroup.openFreezer())
            clients[slot] = client
            guard try Cgroup.isToBeFrozen(client.freezer) else { return .running }
            let state = try cgroup.state()
            // An empty cgroup freezes too, and nobody with it: somebody has moved it.
            guard state.isPopulated else {
                detach(slot: slot)
                return .running
            }
            client.isToBeFrozen = true
            return state.isFrozen ? .stopped : .stopping
        } catch {
            // It was never attached.
            if error.code == ENOENT {
                detach(slot: slot)
                return .running
            }
            throw SuspensionError("take up \(process.pid)", error)
        }
    }

    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        let client = try client(slot, "freeze")
        do {
            try client.set(frozen: true)
        } catch {
            throw SuspensionError("freeze \(client.pid)", error)
        }
        return try progress(slot: slot)
    }

    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        let client = try client(slot, "freeze")
        let state: Cgroup.State
        do {
            state = try place.client(slot).state()
        } catch {
            throw SuspensionError("freeze \(client.pid)", error)
        }
        // An empty cgroup freezes too, and nobody with it.
        guard state.isPopulated else {
            throw SuspensionError(try isAlive(client) ? .processMoved : .processGone, "freeze \(client.pid)")
        }
        return state.isFrozen ? .frozen : .pending
    }

    private func isAlive(_ client: Client) throws(SuspensionError) -> Bool {
        do {
            let statistics = try ProcFS.readStatistics(client.pid)
            guard let statistics, statistics.state != "Z" else { return false }
            return client.startTime ?? statistics.startTime == statistics.startTime
        } catch {
            throw SuspensionError("freeze \(client.pid)", error)
        }
    }

    func thaw(slot: UInt32) throws(SuspensionError) {
        let client = try client(slot, "thaw")
        do {
            try client.set(frozen: false)
        } catch {
            // The cgroup was removed by somebody else, which takes an empty one.
            if error.code == ENODEV { return }
            throw SuspensionError("thaw \(client.pid)", error)
        }
    }

    func quickThaw(slot: UInt32) -> QuickThaw {
        guard let client = clients[slot], client.isToBeFrozen else { return .none }
        return .freezer(client.freezer.rawValue)
    }

    func noteThawed(slot: UInt32) { clients[slot]?.isToBeFrozen = false }

    func detach(slot: UInt32) {
        guard let client = clients.remove(slot) else { return }
        let cgroup = place.client(slot)
        _ = cgroup.dissolve(into: client.origin ?? cgroup.origin, else: place.parent)
    }

    func detachAll() {
        for slot in clients.slots { detach(slot: slot) }
        place.remove()
    }

    func thawLeftovers() -> [LeftoverReport] {
        Leftovers.thaw(of: instance, keeping: place.cgroup)
    }

    private func shared(_ origin: Cgroup?) -> Cgroup? {
        if origin != lastOrigin { lastOrigin = origin }
        return lastOrigin
    }

    private func client(_ slot: UInt32, _ attempt: String) throws(SuspensionError) -> Client {
        if let client = clients[slot] { return client }
        throw SuspensionError(.notAttached, "\(attempt) slot \(slot)")
    }
}
