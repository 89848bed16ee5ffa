import CLinux
import Descriptors
import Glibc

/// The cgroup under which an instance makes those of its clients that cannot be had where they are.
struct InstanceCgroup {
    let mount: CgroupMount
    /// Ours is made in it, and processes without a place to return to are put there.
    let parent: Cgroup
    let cgroup: Cgroup
    /// Every client is to be put there, wherever it comes from.
    let isFixed: Bool
    private let instance: InstancePaths

    /// Finds the place; makes nothing.
    init(instance: InstancePaths) throws(SuspensionError) {
        self.instance = instance
        guard let mount = CgroupMount.find() else { throw SuspensionError(.freezerMissing, "find cgroup2") }
        self.mount = mount
        // Whether a process is in there is told by comparing names.
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

    /// Makes it, and notes where it is for whoever has to tidy up after us.
    func create() throws(SuspensionError) {
        do {
            try cgroup.create()
            if !Leftovers.places(of: instance).contains(cgroup) { try Leftovers.note(cgroup, of: instance) }
        } catch {
            throw SuspensionError("make \(cgroup.directory)", error)
        }
        guard cgroup.hasFreezer else {
            remove()
            throw SuspensionError(.freezerMissing, "freeze \(cgroup.directory)")
        }
    }

    /// As `cgroup`, for the clients that come from there.
    func cgroup(in origin: Cgroup) -> Cgroup {
        Cgroup(directory: origin.directory + "/" + Leftovers.name(of: instance))
    }

    /// The place that a process is in as the client of this slot; nil: it is not.
    func home(of pid: pid_t, slot: UInt32) -> Cgroup? {
        guard let directory = mount.directory(of: pid) else { return nil }
        let home = Cgroup(directory: directory).parent
        return home.client(slot).directory == directory && home == cgroup(in: home.parent) ? home : nil
    }

    /// Where a process is and belongs. A child of a client starts in the client's cgroup, which is not for long:
    /// it belongs where the client came from.
    func origin(of pid: pid_t) -> Cgroup? {
        guard let directory = mount.directory(of: pid) else { return nil }
        let current = Cgroup(directory: directory)
        let home = current.parent
        guard home == cgroup(in: home.parent) else { return current }
        return current.origin ?? home.parent
    }

    /// Dissolves what is left of the clients' cgroups, removes ours and forgets the note.
    func remove() {
        Self.dissolveClients(in: cgroup)
        if unsafe rmdir(cgroup.directory) == 0 { Leftovers.forget(cgroup, of: instance) }
    }

    /// Dissolves whatever is below; returns who was frozen.
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
        // Looked at first: who was only waiting to end is gone a moment after the thaw.
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
