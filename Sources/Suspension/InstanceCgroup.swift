import CLinux
import Glibc
import LinuxSystem

/// The cgroup of an instance, for clients that cannot be frozen below their own.
struct InstanceCgroup {
    let mount: CgroupMount
    /// The parent of this cgroup, which also gets processes without an origin to return to.
    let parent: Cgroup
    let cgroup: Cgroup
    /// All clients are put there, whatever their own cgroup.
    let isFixed: Bool
    private let instance: InstanceNames

    /// Determines the place; makes nothing.
    init(instance: InstanceNames) throws(SuspensionError) {
        self.instance = instance
        guard let mount = CgroupMount.find() else { throw SuspensionError(.freezerMissing, "find cgroup2") }
        self.mount = mount
        // Membership of a process is determined by comparing names.
        if let parent = instance.cgroupParent,
            parent.split(separator: "/").contains(where: { $0 == "." || $0 == ".." })
        {
            throw SuspensionError(.systemError, "use the cgroup “\(parent)”")
        }
        let directory =
            instance.cgroupParent.map { mount.directory(for: $0) } ?? mount.directory(of: getpid())
        guard let directory else { throw SuspensionError(.freezerMissing, "find our own cgroup") }
        guard !instance.name.isEmpty, !instance.name.contains("/"), !instance.name.utf8.contains(0) else {
            throw SuspensionError(.systemError, "use the instance name “\(instance.name)”")
        }
        parent = Cgroup(directory: directory)
        cgroup = Cgroup(directory: directory + "/" + Leftovers.name(of: instance))
        isFixed = instance.cgroupParent != nil
    }

    /// Makes it, and records its path for a later cleanup.
    func create(_ state: RuntimeState) throws(SuspensionError) {
        do {
            try cgroup.create()
            try state.note(cgroup: cgroup.directory)
        } catch {
            throw SuspensionError("make \(cgroup.directory)", error)
        }
        guard cgroup.hasFreezer else {
            remove(state)
            throw SuspensionError(.freezerMissing, "freeze \(cgroup.directory)")
        }
    }

    /// Like `cgroup`, for the clients from that cgroup.
    func cgroup(in origin: Cgroup) -> Cgroup {
        Cgroup(directory: origin.directory + "/" + Leftovers.name(of: instance))
    }

    /// The place that this process is in as the client of this slot; nil if it is in none.
    func home(of pid: pid_t, slot: UInt32) -> Cgroup? {
        guard let directory = mount.directory(of: pid) else { return nil }
        let home = Cgroup(directory: directory).parent
        return home.client(slot).directory == directory && home == cgroup(in: home.parent) ? home : nil
    }

    /// The cgroup that a process belongs to. A child of a client starts in the client's cgroup, which is
    /// temporary: it belongs to the client's origin.
    func origin(of pid: pid_t) -> Cgroup? {
        guard let directory = mount.directory(of: pid) else { return nil }
        let current = Cgroup(directory: directory)
        let home = current.parent
        guard home == cgroup(in: home.parent) else { return current }
        return current.origin ?? home.parent
    }

    /// Dissolves the remaining cgroups of clients, removes this one and its record.
    func remove(_ state: RuntimeState) {
        Self.dissolveClients(in: cgroup)
        if unsafe rmdir(cgroup.directory) == 0 { state.forget(cgroup: cgroup.directory) }
    }

    /// Dissolves all cgroups below; returns the processes that were frozen.
    @discardableResult
    static func dissolveClients(in cgroup: Cgroup) -> [LeftoverReport] {
        var reports: [LeftoverReport] = []
        for name in ((try? SmallFile.names(in: cgroup.directory)) ?? []).sorted()
        where name.hasPrefix("client-") {
            let client = Cgroup(directory: cgroup.directory + "/" + name)
            if client.isToBeFrozen { reports += thaw(client) }
            _ = client.dissolve(into: client.origin, else: cgroup.parent)
        }
        return reports
    }

    private static func thaw(_ client: Cgroup) -> [LeftoverReport] {
        // Listed first: a process with a pending kill is gone a moment after the thaw.
        let pids = (try? client.processes()) ?? []
        var outcome = LeftoverReport.Outcome.thawed
        do {
            try client.setFrozen(false)
        } catch {
            outcome = .failed(error)
        }
        return pids.map { LeftoverReport(pid: $0, method: .cgroup, outcome: outcome) }
    }
}
