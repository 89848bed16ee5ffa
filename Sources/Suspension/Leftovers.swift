import CLinux
import Glibc
import LinuxSystem

/// Suspended processes of an earlier run of an instance, by either method: the next run may use the other
/// one.
enum Leftovers {
    /// - Parameter place: the present run's own cgroup, which stays; without one, all cgroups of the instance
    ///   are removed.
    static func thaw(
        of instance: InstanceNames, in state: RuntimeState, keeping place: Cgroup? = nil
    ) -> [LeftoverReport] {
        thawCgroups(of: instance, in: state, keeping: place) + continueStopped(in: state)
    }

    // MARK: Cgroups

    /// The name of the cgroups below which an instance puts its clients.
    static func name(of instance: InstanceNames) -> String { "nightbell-" + instance.name }

    /// One is below the instance's own cgroup, and one in each cgroup that clients come from. Recorded paths
    /// that cannot be such a cgroup are ignored.
    static func places(of instance: InstanceNames, in state: RuntimeState) -> [Cgroup] {
        guard !state.cgroups.isEmpty, let mount = CgroupMount.find() else { return [] }
        return state.cgroups.filter { path in
            path.hasPrefix(mount.path + "/") && path.hasSuffix("/" + name(of: instance))
        }.map { Cgroup(directory: $0) }
    }

    private static func thawCgroups(
        of instance: InstanceNames, in state: RuntimeState, keeping place: Cgroup?
    ) -> [LeftoverReport] {
        var cgroups = places(of: instance, in: state)
        // The default place, in case its record is lost.
        if let here = try? InstanceCgroup(instance: instance), !cgroups.contains(here.cgroup) {
            cgroups.append(here.cgroup)
        }
        return cgroups.flatMap { dissolve($0, in: state, keeping: place) }
    }

    /// Dissolves all remaining cgroups, which are thawed already.
    static func dissolve(of instance: InstanceNames, in state: RuntimeState, keeping place: Cgroup) {
        for cgroup in places(of: instance, in: state) where cgroup != place {
            _ = dissolve(cgroup, in: state, keeping: place)
        }
    }

    private static func dissolve(
        _ cgroup: Cgroup, in state: RuntimeState, keeping place: Cgroup?
    ) -> [LeftoverReport] {
        let reports = InstanceCgroup.dissolveClients(in: cgroup)
        if cgroup != place, unsafe rmdir(cgroup.directory) == 0 || errno == ENOENT {
            state.forget(cgroup: cgroup.directory)
        }
        return reports
    }

    // MARK: Signals

    private static func continueStopped(in state: RuntimeState) -> [LeftoverReport] {
        let stopped = state.stopped.sorted { $0.key < $1.key }.map {
            RuntimeState.Process(pid: $0.key, startTime: $0.value)
        }
        defer { state.noteResumed(stopped) }
        return stopped.compactMap { entry in
            do throws(SystemError) {
                // The pidfd is opened before the identity check: in this order the result stays valid.
                let process = try ProcessHandle(opening: entry.pid)
                guard try ProcFS.readStatistics(entry.pid)?.startTime == entry.startTime else { return nil }
                try process.signal(SIGCONT)
                return LeftoverReport(pid: entry.pid, method: .signal, outcome: .thawed)
            } catch {
                if error.code == ESRCH { return nil }
                return LeftoverReport(pid: entry.pid, method: .signal, outcome: .failed(error))
            }
        }
    }
}
