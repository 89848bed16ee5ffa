import CLinux
import Glibc
import LinuxSystem

/// The kernel's freezer: a cgroup per client, `nightbell-NAME/client-SLOT`. The process and its parent do not
/// notice, and a thaw takes effect in microseconds.
///
/// That cgroup lies below the one that the process is in already, awake or asleep: the limits and the
/// accounting of its user and its service apply to it as before. The process is moved once, and back at its
/// end, and never between a freeze and a thaw. A process that cannot be moved there is frozen below this
/// instance's own cgroup.
final class CgroupFreezer: Suspender {
    /// A directory `nightbell-NAME`, and the number of clients below it.
    private final class Place {
        let cgroup: Cgroup
        var clients = 0

        init(_ cgroup: Cgroup) { self.cgroup = cgroup }
    }

    private final class Client {
        let pid: pid_t
        /// nil: it was taken over from an earlier run and not read yet.
        var startTime: UInt64?
        let place: Place
        /// nil: it is the cgroup above the place, or stored on the client's cgroup.
        let origin: Cgroup?
        /// `cgroup.freeze`, kept open: a thaw is one system call.
        let freezer: OwnedDescriptor

        init(
            pid: pid_t, startTime: UInt64?, place: Place, origin: Cgroup?, freezer: consuming OwnedDescriptor
        ) {
            self.pid = pid
            self.startTime = startTime
            self.place = place
            self.origin = origin
            self.freezer = freezer
        }

        /// The last request: repeating it costs a system call on the wake path.
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
    private let instance: InstanceNames
    private let state: RuntimeState
    private var clients = ClientSlots<Client>()
    /// The place below this instance's own cgroup, made at the start.
    private let ownPlace: Place
    /// All other places with clients, by directory.
    private var places: [String: Place] = [:]
    /// Whether clients of an earlier run may be in other places than its own.
    private let hasNotedPlaces: Bool

    init(instance: InstanceNames, state: RuntimeState) throws(SuspensionError) {
        self.instance = instance
        self.state = state
        place = try InstanceCgroup(instance: instance)
        ownPlace = Place(place.cgroup)
        let own = place.cgroup
        hasNotedPlaces = Leftovers.places(of: instance, in: state).contains { $0 != own }
        try place.create(state)
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
        let origin = place.origin(of: pid)
        do throws(SystemError) {
            if let origin, !place.isFixed, origin != place.parent {
                do throws(SystemError) {
                    return try attach(slot, process, startTime, in: findPlace(in: origin), nil)
                } catch {
                    guard error.code != ESRCH, error.code != EMFILE, error.code != ENFILE else { throw error }
                    // Not writable, full, or unable to have a child cgroup.
                }
            }
            try attach(slot, process, startTime, in: ownPlace, origin == place.parent ? nil : origin)
        } catch {
            throw SuspensionError(attempt, error)
        }
    }

    func include(slot: UInt32, descendant pid: pid_t) throws(SuspensionError) {
        let client = try client(slot, "include \(pid)")
        do {
            try client.place.cgroup.client(slot).add(pid)
        } catch {
            if error.code != ESRCH { throw SuspensionError("include \(pid)", error) }
        }
    }

    /// - Parameter origin: the cgroup to return the process to; nil: the one above the place.
    private func attach(
        _ slot: UInt32, _ process: borrowing ProcessHandle, _ startTime: UInt64, in place: Place,
        _ origin: Cgroup?
    ) throws(SystemError) {
        let cgroup = place.cgroup.client(slot)
        place.clients += 1
        do throws(SystemError) {
            try make(cgroup, in: place)
            // It may be frozen since a crash.
            try cgroup.setFrozen(false)
            if let origin { cgroup.store(origin: origin) }
            try cgroup.add(process.pid)
            let freezer = try cgroup.openFreezer()
            // It is alive after the move, so the pid was not reused during the move.
            guard !process.hasExited else { throw SystemError(code: ESRCH, call: "pidfd") }
            clients[slot] = Client(
                pid: process.pid, startTime: startTime, place: place, origin: origin, freezer: freezer)
        } catch {
            _ = cgroup.dissolve(into: origin ?? place.cgroup.parent, else: self.place.parent)
            leave(place)
            throw error
        }
    }

    /// Makes the place as well, if it does not exist or was removed.
    private func make(_ cgroup: Cgroup, in place: Place) throws(SystemError) {
        if place.clients > 1 || place === ownPlace {
            do throws(SystemError) {
                return try cgroup.create()
            } catch {
                guard error.code == ENOENT else { throw error }
            }
        }
        try place.cgroup.create()
        try state.note(cgroup: place.cgroup.directory)
        try cgroup.create()
    }

    private func findPlace(in origin: Cgroup) -> Place {
        let cgroup = place.cgroup(in: origin)
        if cgroup == ownPlace.cgroup { return ownPlace }
        if let place = places[cgroup.directory] { return place }
        let place = Place(cgroup)
        places[cgroup.directory] = place
        return place
    }

    /// Removes a client from the place, and the place with its last client.
    private func leave(_ place: Place) {
        place.clients -= 1
        guard place.clients == 0, place !== ownPlace else { return }
        places[place.cgroup.directory] = nil
        // A place that cannot be removed stays recorded until the end.
        if unsafe rmdir(place.cgroup.directory) == 0 || errno == ENOENT {
            state.forget(cgroup: place.cgroup.directory)
        }
    }

    func reattach(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> FoundState {
        // Read only where there are several places: a supervisor that takes over does this for each client.
        let home = hasNotedPlaces ? place.home(of: process.pid, slot: slot) : nil
        let place = home.map { findPlace(in: $0.parent) } ?? ownPlace
        let cgroup = place.cgroup.client(slot)
        do throws(SystemError) {
            let client = Client(
                pid: process.pid, startTime: nil, place: place, origin: nil, freezer: try cgroup.openFreezer()
            )
            place.clients += 1
            clients[slot] = client
            guard try Cgroup.isToBeFrozen(client.freezer) else { return .running }
            let state = try cgroup.state()
            // An empty cgroup freezes too, with no process in it: another process has moved the client.
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
            throw SuspensionError("reattach \(process.pid)", error)
        }
    }

    func freeze(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        let client = try client(slot, "freeze")
        do throws(SystemError) {
            try client.set(frozen: true)
        } catch {
            throw try failure(error, of: client)
        }
        return try progress(slot: slot)
    }

    func progress(slot: UInt32) throws(SuspensionError) -> FreezeProgress {
        let client = try client(slot, "freeze")
        let state: Cgroup.State
        do throws(SystemError) {
            state = try client.place.cgroup.client(slot).state()
        } catch {
            throw try failure(error, of: client)
        }
        // An empty cgroup freezes too, with no process in it.
        guard state.isPopulated else {
            throw SuspensionError(try isAlive(client) ? .processMoved : .processGone, "freeze \(client.pid)")
        }
        return state.isFrozen ? .frozen : .pending
    }

    /// A cgroup can be removed once the process is elsewhere; the next attempt makes it again.
    private func failure(_ error: SystemError, of client: Client) throws(SuspensionError) -> SuspensionError {
        let attempt = "freeze \(client.pid)"
        guard error.code == ENODEV || error.code == ENOENT else { return SuspensionError(attempt, error) }
        return SuspensionError(try isAlive(client) ? .processMoved : .processGone, attempt, error)
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
            // Another process has removed the cgroup, so it was empty.
            if error.code == ENODEV { return }
            throw SuspensionError("thaw \(client.pid)", error)
        }
    }

    func quickThaw(slot: UInt32) -> QuickThaw {
        guard let client = clients[slot], client.isToBeFrozen else { return .none }
        return .freezer(client.freezer.rawValue)
    }

    func markThawed(slot: UInt32) { clients[slot]?.isToBeFrozen = false }

    func detach(slot: UInt32) {
        guard let client = clients.remove(slot) else { return }
        let cgroup = client.place.cgroup.client(slot)
        let origin = client.origin ?? cgroup.origin ?? client.place.cgroup.parent
        _ = cgroup.dissolve(into: origin, else: place.parent)
        leave(client.place)
    }

    func detachAll() {
        for slot in clients.slots { detach(slot: slot) }
        // A dying process may have kept a cgroup from being removed.
        Leftovers.dissolve(of: instance, in: state, keeping: place.cgroup)
        place.remove(state)
    }

    func thawLeftovers() -> [LeftoverReport] {
        Leftovers.thaw(of: instance, in: state, keeping: place.cgroup)
    }

    private func client(_ slot: UInt32, _ attempt: String) throws(SuspensionError) -> Client {
        if let client = clients[slot] { return client }
        throw SuspensionError(.notAttached, "\(attempt) slot \(slot)")
    }
}
