import CLinux
import Glibc
import LinuxSystem

/// Suspended processes of an earlier run of an instance, by either method: the next run may use the other
/// one.
enum Leftovers {
    /// - Parameter place: the present run's own cgroup, which stays; without one, all cgroups of the instance
    ///   are removed.
    static func thaw(of instance: InstancePaths, keeping place: Cgroup? = nil) -> [LeftoverReport] {
        thawCgroups(of: instance, keeping: place) + continueStopped(of: instance)
    }

    // MARK: Cgroups

    private static func notePath(of instance: InstancePaths) -> String {
        instance.runtimeDirectory + "/cgroups"
    }

    /// The name of the cgroups below which an instance puts its clients.
    static func name(of instance: InstancePaths) -> String { "nightbell-" + instance.name }

    /// One is below the instance's own cgroup and one in each cgroup that clients come from; they are
    /// recorded, one a line. Lines that cannot be such a cgroup are ignored.
    static func places(of instance: InstancePaths) -> [Cgroup] {
        guard let text = try? SmallFile.readText(notePath(of: instance)), let mount = CgroupMount.find()
        else { return [] }
        var found: Set<Substring> = []
        return text.split(separator: "\n").filter { line in
            line.hasPrefix(mount.path + "/") && line.hasSuffix("/" + name(of: instance))
                && found.insert(line).inserted
        }.map { Cgroup(directory: String($0)) }
    }

    /// Appends a line.
    static func record(_ cgroup: Cgroup, of instance: InstancePaths) throws(SystemError) {
        try write([cgroup], to: notePath(of: instance), O_APPEND)
    }

    static func forget(_ cgroup: Cgroup, of instance: InstancePaths) {
        let noted = places(of: instance)
        guard noted.contains(cgroup) else { return }
        // Atomically: the clients of an unrecorded place would stay frozen after a crash.
        let path = notePath(of: instance)
        unsafe unlink(path + ".new")
        guard (try? write(noted.filter { $0 != cgroup }, to: path + ".new", O_EXCL)) != nil else { return }
        unsafe rename(path + ".new", path)
    }

    private static func write(
        _ cgroups: [Cgroup], to path: String, _ flags: CInt
    ) throws(SystemError) {
        let file = try OwnedDescriptor(
            opening: path, O_WRONLY | O_CREAT | O_NOFOLLOW | flags, mode: 0o600)
        let rawValue = file.rawValue
        let bytes = cgroups.flatMap { Array($0.directory.utf8) + [UInt8(ascii: "\n")] }
        let count = try systemCall("write \(path)") { unsafe Glibc.write(rawValue, bytes, bytes.count) }
        guard count == bytes.count else { throw SystemError(code: ENOSPC, call: "write \(path)") }
    }

    private static func thawCgroups(of instance: InstancePaths, keeping place: Cgroup?) -> [LeftoverReport] {
        var cgroups = places(of: instance)
        // The default place, in case its record is lost.
        if let here = try? InstanceCgroup(instance: instance), !cgroups.contains(here.cgroup) {
            cgroups.append(here.cgroup)
        }
        return cgroups.flatMap { dissolve($0, of: instance, keeping: place) }
    }

    /// Dissolves all remaining cgroups, which are thawed already.
    static func dissolve(of instance: InstancePaths, keeping place: Cgroup) {
        for cgroup in places(of: instance) where cgroup != place {
            _ = dissolve(cgroup, of: instance, keeping: place)
        }
    }

    private static func dissolve(
        _ cgroup: Cgroup, of instance: InstancePaths, keeping place: Cgroup?
    ) -> [LeftoverReport] {
        let reports = InstanceCgroup.dissolveClients(in: cgroup)
        if cgroup != place, unsafe rmdir(cgroup.directory) == 0 || errno == ENOENT {
            forget(cgroup, of: instance)
        }
        return reports
    }

    // MARK: Signals

    private static func continueStopped(of instance: InstancePaths) -> [LeftoverReport] {
        defer { StoppedRecord.erase(of: instance) }
        return StoppedRecord.entries(of: instance).compactMap { entry in
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
