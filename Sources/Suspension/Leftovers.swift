import CLinux
import Descriptors
import Glibc

/// What an earlier run of an instance left behind, whichever method it used: whoever starts next may use another.
enum Leftovers {
    /// - Parameter place: the present run's own cgroup, which stays; a run without one leaves none of its instance.
    static func thaw(of instance: InstancePaths, keeping place: Cgroup? = nil) -> [LeftoverReport] {
        thawCgroups(of: instance, keeping: place) + continueStopped(of: instance)
    }

    // MARK: Cgroups

    private static func notePath(of instance: InstancePaths) -> String {
        instance.runtimeDirectory + "/cgroups"
    }

    /// The next run may start somewhere else in the hierarchy, so our places are noted, one a line.
    private static func directories(of instance: InstancePaths) -> [String] {
        guard let text = try? SmallFile.readText(notePath(of: instance)) else { return [] }
        return text.split(separator: "\n").map { String($0) }
    }

    private static func write(_ directories: [String], of instance: InstancePaths) throws(SystemError) {
        let path = notePath(of: instance)
        let flags = O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW
        let file = try OwnedDescriptor(opening: path, flags, mode: 0o600)
        let rawValue = file.rawValue
        let bytes = directories.flatMap { Array($0.utf8) + [UInt8(ascii: "\n")] }
        _ = try systemCall("write \(path)") { unsafe Glibc.write(rawValue, bytes, bytes.count) }
    }

    static func note(_ cgroup: Cgroup, of instance: InstancePaths) throws(SystemError) {
        let noted = directories(of: instance)
        if !noted.contains(cgroup.directory) { try write(noted + [cgroup.directory], of: instance) }
    }

    static func forget(_ cgroup: Cgroup, of instance: InstancePaths) {
        let noted = directories(of: instance)
        if noted.contains(cgroup.directory) {
            try? write(noted.filter { $0 != cgroup.directory }, of: instance)
        }
    }

    private static func thawCgroups(of instance: InstancePaths, keeping place: Cgroup?) -> [LeftoverReport] {
        var cgroups = directories(of: instance).map { Cgroup(directory: $0) }
        // Where ours would be: its note may be lost.
        if let here = try? InstanceCgroup(instance: instance), !cgroups.contains(here.cgroup) {
            cgroups.append(here.cgroup)
        }
        return cgroups.flatMap { cgroup in
            let reports = InstanceCgroup.dissolveClients(in: cgroup)
            if cgroup != place, unsafe rmdir(cgroup.directory) == 0 || errno == ENOENT {
                forget(cgroup, of: instance)
            }
            return reports
        }
    }

    // MARK: Signals

    private static func continueStopped(of instance: InstancePaths) -> [LeftoverReport] {
        defer { StoppedRecord.erase(of: instance) }
        return StoppedRecord.entries(of: instance).compactMap { entry in
            do throws(SystemError) {
                // First the handle, then the question whose it is: in this order the answer stays true.
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
