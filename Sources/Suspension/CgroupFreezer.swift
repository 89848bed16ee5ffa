import CLinux
import Descriptors
import Glibc

/// The kernel's freezer: a cgroup per client, `nightbell-NAME/client-SLOT`. The process does not notice, nor does
/// its parent, and a thaw takes effect in microseconds.
///
/// That cgroup lies below the one that the process is in already, awake or asleep: the limits of its user and of its
/// service count for it as before, and so does the account of what it uses. It is moved once, and back at its end, and
/// never between a freeze and a thaw. A process that cannot be had there is frozen below our own cgroup.
final class CgroupFreezer: Suspender {
    /// A directory `nightbell-NAME`, and how many of our clients are below it.
    private final class Place {
        let cgroup: Cgroup
        var clients = 0

        init(_ cgroup: Cgroup) { self.cgroup = cgroup }
    }

    private final class Client {
        let pid: pid_t
        /// nil: it was taken up, and nobody has looked yet.
        var startTime: UInt64?
        let place: Place
        /// nil: it is where the place is, or noted on the cgroup.
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
    /// The place below our own cgroup, which is there from the start.
    private let ownPlace: Place
    /// All others that have a client, by their directories.
    private var places: [String: Place] = [:]
    /// Whether clients of an earlier run may be elsewhere than in our own place.
    private let hasNotedPlaces: Bool

    init(instance: InstancePaths) throws(SuspensionError) {
        self.instance = instance
        place = try InstanceCgroup(instance: instance)
        ownPlace = Place(place.cgroup)
        let own = place.cgroup
        hasNotedPlaces = Leftovers.places(of: instance).contains { $0 != own }
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
        let origin = place.origin(of: pid)
        do throws(SystemError) {
            if let origin, !place.isFixed, origin != place.parent {
                do throws(SystemError) {
                    return try attach(slot, process, startTime, in: findPlace(in: origin), nil)
                } catch {
                    guard error.code != ESRCH, error.code != EMFILE, error.code != ENFILE else { throw error }
                    // Not ours to fill, full, or none that can have another below it.
                }
            }
            try attach(slot, process, startTime, in: ownPlace, origin == place.parent ? nil : origin)
        } catch {
            throw SuspensionError(attempt, error)
        }
    }

    /// - Parameter origin: where the process belongs, unless that is where the place is.
    private func attach(
        _ slot: UInt32, _ process: borrowing ProcessHandle, _ startTime: UInt64, in place: Place,
        _ origin: Cgroup?
    ) throws(SystemError) {
        let cgroup = place.cgroup.client(slot)
        place.clients += 1
        do throws(SystemError) {
            try make(cgroup, in: place)
            // A crash may have left it frozen.
            try cgroup.setFrozen(false)
            if let origin { cgroup.note(origin: origin) }
            try cgroup.add(process.pid)
            let freezer = try cgroup.openFreezer()
            // Alive after the move, it was the one the number meant during the move.
            guard !process.hasExited else { throw SystemError(code: ESRCH, call: "pidfd") }
            clients[slot] = Client(
                pid: process.pid, startTime: startTime, place: place, origin: origin, freezer: freezer)
        } catch {
            _ = cgroup.dissolve(into: origin ?? place.cgroup.parent, else: self.place.parent)
            leave(place)
            throw error
        }
    }

    /// The place as well, if there is none yet or it has been removed since.
    private func make(_ cgroup: Cgroup, in place: Place) throws(SystemError) {
        if place.clients > 1 || place === ownPlace {
            do throws(SystemError) {
                return try cgroup.create()
            } catch {
                guard error.code == ENOENT else { throw error }
            }
        }
        try place.cgroup.create()
        try Leftovers.note(place.cgroup, of: instance)
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

    /// One client less is there. A place for which that was the last one goes as well.
    private func leave(_ place: Place) {
        place.clients -= 1
        guard place.clients == 0, place !== ownPlace else { return }
        places[place.cgroup.directory] = nil
        // What cannot be removed is still noted, for the end.
        if unsafe rmdir(place.cgroup.directory) == 0 || errno == ENOENT {
            Leftovers.forget(place.cgroup, of: instance)
        }
    }

    func takeUp(
        slot: UInt32, process: borrowing ProcessHandle, wasStopped: Bool
    ) throws(SuspensionError) -> Execution {
        // It is asked only where there is a choice: a supervisor that takes over does this for each client.
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
        // An empty cgroup freezes too, and nobody with it.
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
        let cgroup = client.place.cgroup.client(slot)
        let origin = client.origin ?? cgroup.origin ?? client.place.cgroup.parent
        _ = cgroup.dissolve(into: origin, else: place.parent)
        leave(client.place)
    }

    func detachAll() {
        for slot in clients.slots { detach(slot: slot) }
        // Where a process was about to die, there may be something left.
        Leftovers.dissolve(of: instance, keeping: place.cgroup)
        place.remove()
    }

    func thawLeftovers() -> [LeftoverReport] {
        Leftovers.thaw(of: instance, keeping: place.cgroup)
    }

    private func client(_ slot: UInt32, _ attempt: String) throws(SuspensionError) -> Client {
        if let client = clients[slot] { return client }
        throw SuspensionError(.notAttached, "\(attempt) slot \(slot)")
    }
}
